"""Is a measurement good enough to be judged by? Pure rules; each broken one is a sentence.

A case whose measurement breaks one is inconclusive, never green or red.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suite.clock import HostTime
from suite.facts import Canary, Group, Look
from suite.sampling import Taken

FEWEST_SAMPLES = 4
"""With fewer that count, there is no time."""

WORST_DROPPED = 0.2
"""Share of dropped samples above which the rest is not trusted either."""

SHORT_TOKENS = 512
"""Below, a call is so short that the event's resolution and the launch weigh in: `Bounds.aa_short` holds."""


POWER_CAP = "software power cap"
"""NVML's reason for a clock that is as high as the power allows: a heavy kernel's usual clock can be such a one."""

HELD_NS = 1_000_000
"""Time held back, in nanoseconds, below which it does not count."""


@dataclass(frozen=True)
class Bounds:
    """What a platform's measurements must keep to, all of them relative: 0.005 is half a per cent.

    Attributes:
        aa: distance of the A/A ratio from 1, from `SHORT_TOKENS` tokens on.
        aa_short: the same below.
        half_width: of the median's interval.
        clock_spread: of the SM clocks of a recurrence.
        order: of the order effect.
        canary: of the canary after the run against the one before it.
        rest: whether the warm-up must have come to rest.
    """

    aa: float
    aa_short: float
    half_width: float
    clock_spread: float
    order: float
    canary: float
    rest: bool = True


CARD = Bounds(aa=0.005, aa_short=0.015, half_width=0.02, clock_spread=0.03, order=0.05, canary=0.02)
"""On a GPU. A/A: what ten fresh processes must keep to; the others are above what a quiet card shows. The order effect
of tensor at 96 to 192 tokens is 2 to 3 % on an H200, run after run, and ABBA order takes the mean of both."""

HOST = Bounds(aa=1.0, aa_short=1.0, half_width=1.0, clock_spread=1.0, order=1.0, canary=1.0, rest=False)
"""On a host, whose times show that the suite works and are not for judging: only the grossest noise counts."""


def clock_spread(taken: Sequence[Taken]) -> tuple[float | None, float | None]:
    """(median SM clock in MHz of all samples, dropped ones too; the largest spread of one recurrence's).

    A spread is the 95th less the 5th percentile over the median. Recurrences may run at different clocks, as they load
    the card differently.
    """
    every = [
        [s.sm_mhz for s in (*one.samples, *(dropped for dropped, _ in one.dropped)) if s.sm_mhz is not None]
        for one in taken
    ]
    quantiles = [np.percentile(mhz, (5, 50, 95)) for mhz in every if mhz]
    if not quantiles:
        return None, None
    return float(np.median(np.concatenate(every))), float(max((high - low) / mid for low, mid, high in quantiles))


def judge_group(group: Group, bounds: Bounds, steady: bool = False) -> tuple[str, ...]:
    """What is wrong with the alternation as a whole, a sentence each.

    Args:
        group: the alternation.
        bounds: what it must keep to.
        steady: whether each recurrence had one SM clock in all of its samples, so that what the power held back is
            that recurrence's usual clock: under the load of tensor cores that of an H200 is lower, and steady.
    """
    found = []
    if bounds.rest and not group.stationary:
        found.append(f"times or clocks still moved after {group.warmup_s:.1f} s of warm-up")
    if held := throttling(group.before, group.after, steady):
        found.append(f"the card held its clocks back: {held}")
    if others := max((look.others or 0 for look in (group.before, group.after)), default=0):
        found.append(f"{others} other process{'es' if others > 1 else ''} computed on the card")
    if group.clock_spread is not None and group.clock_spread > bounds.clock_spread:
        found.append(
            f"the SM clock of one recurrence spread over {group.clock_spread:.1%}, above {bounds.clock_spread:.1%}"
        )
    bound = bounds.aa if group.tokens >= SHORT_TOKENS else bounds.aa_short
    if group.aa_ratio is not None and abs(group.aa_ratio - 1) > bound:
        found.append(
            f"{group.twin_of} against itself (A/A) was {group.aa_ratio - 1:+.2%}, beyond {bound:.1%}: "
            "what differs by as little cannot be told"
        )
    return tuple(found)


def throttling(before: Look, after: Look, steady: bool = False) -> str:
    """Why the clocks were held back at two looks, and for how long between.

    Where they are known to have been steady, the power's cap and the time do not count; heat and hardware do.
    """
    named = [one for look in (before, after) for one in (look.clocks.throttle or "").split(", ") if one]
    reasons: dict[str, None] = dict.fromkeys(one for one in named if not (steady and one == POWER_CAP))
    held = None
    if before.throttled_ns is not None and after.throttled_ns is not None:
        held = after.throttled_ns - before.throttled_ns
    if held and held >= HELD_NS and not steady:
        reasons[f"for {held / 1e6:,.0f} ms"] = None
    return ", ".join(reasons)


def judge_case(taken: Taken, order_effect: float | None, bounds: Bounds) -> tuple[str, ...]:
    """What is wrong with the samples of one recurrence, a sentence each."""
    count, dropped = len(taken.samples), len(taken.dropped)
    why = dict.fromkeys(reason.partition(":")[0] for _, reason in taken.dropped)
    told = f" ({', '.join(why)})" if why else ""
    if count < FEWEST_SAMPLES:
        return (f"{count} samples count and {dropped} were dropped{told}; {FEWEST_SAMPLES} are wanted",)
    found = []
    if dropped > WORST_DROPPED * (count + dropped):
        found.append(f"{dropped} of {count + dropped} samples were dropped{told}")
    if taken.half_width > bounds.half_width:
        found.append(
            f"the median is known to {taken.half_width:.1%}, {bounds.half_width:.1%} is wanted; "
            f"the {taken.stop} ran out"
        )
    if order_effect is not None and abs(order_effect) > bounds.order:
        found.append(f"it took {order_effect:+.1%} after the baseline against before it, beyond {bounds.order:.1%}")
    return tuple(found)


def judge_host(host: HostTime, device_ns: float) -> str:
    """What is wrong with a call's host time, or an empty text: allocations, or a host that the device waits for."""
    found = []
    if host.allocations:
        calls = f"{host.allocations} allocation{'s' if host.allocations > 1 else ''}"
        found.append(f"a call makes {calls} of {host.allocated_bytes:,} bytes; a call must not allocate")
    if host.replay_ns is not None and host.call_ns > max(10 * host.replay_ns, 2 * device_ns):
        found.append(
            f"a plain call costs the host {host.call_ns / 1e3:,.0f} us, the replay of its graph "
            f"{host.replay_ns / 1e3:,.0f} us and the device {device_ns / 1e3:,.0f} us"
        )
    return "; ".join(found)


def judge_canaries(canaries: Sequence[Canary], bounds: Bounds) -> tuple[str, ...]:
    """Whether the machine changed between the first speed case and the last, a sentence for each fixed work."""
    medians = {(one.name, one.when): one.times.median_ns for one in canaries}
    found = []
    for name in dict.fromkeys(one.name for one in canaries):
        before, after = medians.get((name, "before")), medians.get((name, "after"))
        if before and after and abs(after / before - 1) > bounds.canary:
            found.append(
                f"the canary {name} took {after / before - 1:+.1%} after the run against before it: the machine "
                "changed, not the recurrences"
            )
    return tuple(found)
