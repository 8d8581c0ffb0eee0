"""One run: the cases it consists of, what they need, and what has been measured so far."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from kernels import Problem, Recurrence, recurrence
from kernels.inputs import make
from kernels.reference import reference
from suite import canary, checks, quality, timing
from suite.clock import Clock, HostClock, Work
from suite.cost import Busy, process_age
from suite.cuda_clock import GraphClock
from suite.environment import Nvml, collect
from suite.facts import (
    Accuracy,
    Canary,
    Case,
    Ceilings,
    Clocks,
    Cost,
    Determinism,
    Environment,
    Group,
    Look,
    Method,
    Speed,
)
from suite.limits import ceilings, demand, limit_ns, too_fast
from suite.lock import held_by_parent
from suite.options import Options
from suite.sampling import order_effect, paired

SEED = 1372

GATE_RERUNS = 3
"""Reruns just before a case is timed; the determinism cases make many more."""

Measured = TypeVar("Measured", Accuracy, Determinism, Speed)


class KeepError(Exception):
    """What was measured could not be kept where it should be; the message says where it is."""


@dataclass(frozen=True)
class Item:
    """One case before it is measured.

    Attributes:
        kind: "accuracy", "determinism" or "speed".
        recurrence: name.
        tokens: T.
        family: of the inputs.
        against: "fp64" or a recurrence's name, for accuracy alone.
    """

    kind: str
    recurrence: str
    tokens: int
    family: str
    against: str = ""

    @property
    def id(self) -> str:
        """The part in brackets of the test's name; `-k` selects by it."""
        parts = [self.recurrence, str(self.tokens), self.family]
        return "-".join([*parts, f"vs-{self.against}"] if self.against else parts)


def items(kind: str, options: Options) -> list[Item]:
    """The cases of one kind, in the order in which they are measured."""
    plan = options.plan
    planned = {"accuracy": plan.accuracy, "determinism": plan.determinism, "speed": plan.speed}[kind]
    families = options.families[:1] if kind == "speed" else options.families
    found = []
    for family in families:
        for tokens in options.tokens or planned:
            for name in options.recurrences:
                if kind != "accuracy":
                    found.append(Item(kind, name, tokens, family))
                    continue
                if tokens <= plan.fp64_up_to:
                    found.append(Item(kind, name, tokens, family, "fp64"))
                if name != options.baseline:
                    found.append(Item(kind, name, tokens, family, options.baseline))
    return found


@dataclass
class Run:
    """What a run has measured. `save` is called after each case with `complete=False`."""

    options: Options
    environment: Environment
    clock: Clock
    nvml: Nvml | None = None
    progress: Callable[[str], None] = lambda text: None
    save: Callable[[Run], None] = lambda run: None
    now: Callable[[], float] = time.monotonic
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    planned: list[Item] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    canaries: list[Canary] = field(default_factory=list)
    ceilings: Ceilings | None = None
    _inputs: dict[str, Problem] = field(default_factory=dict)
    _truths: dict[Any, Any] = field(default_factory=dict)
    _timed: dict[Item, Speed] = field(default_factory=dict)
    _checks: Busy = field(init=False)

    def __post_init__(self) -> None:
        self._checks = Busy(self.options.platform)

    @classmethod
    def start(cls, options: Options) -> Run:
        """Look at the machine and set up the platform's clock."""
        if options.platform == "host":
            environment, nvml = collect(None)
            return cls(options, environment, HostClock())
        import cupy

        cupy.cuda.Device(options.device).use()
        environment, nvml = collect(options.device)
        if nvml and (held_by_parent(nvml.uuid) if nvml.uuid else options.process is not None):
            nvml.own_processes = 2  # the one that started this one waits, with a context of its own
        return cls(options, environment, GraphClock(), nvml)

    @property
    def method(self) -> Method:
        plan = self.options.plan
        return Method(
            id=f"{self.clock.name}-2",
            timer=self.clock.name,
            l2=" and ".join(self.clock.states),
            order="abba",
            warmup_s=plan.hot.warmup_s,
            seed=SEED,
            precision=plan.hot.precision,
            budget_s=plan.hot.budget_s,
        )

    def clocks(self) -> Clocks:
        """The card's clocks now; empty on the host."""
        return self.nvml.clocks() if self.nvml else Clocks()

    def look(self) -> Look:
        """The card now; empty on the host."""
        return self.nvml.look() if self.nvml else Look()

    def cost(self) -> Cost:
        """What the run has cost so far."""
        wall = process_age()
        return Cost(
            wall_s=wall,
            timed_s=self.clock.busy_ns * 1e-9,
            checks_s=self._checks.seconds,
            nvml_share=self.nvml.busy_share(wall) if self.nvml else None,
        )

    def add(self, case: Case) -> None:
        self.cases.append(case)
        if self.nvml:
            self.nvml.watch()
        self.save(self)

    # What the cases need

    def problem(self, family: str, tokens: int) -> Problem:
        """The first `tokens` tokens of the family, on this run's device."""
        held = self._inputs.get(family)
        if held is None or held.tokens < tokens:
            most = max([tokens, *(item.tokens for item in self.planned if item.family == family)])
            self.progress(f"inputs: {most} tokens of family {family}")
            self._inputs.pop(family, None)
            held = self._inputs[family] = self._on_device(make(self.options.shape, most, family, SEED))
        return held.head(tokens)

    def _on_device(self, problem: Problem) -> Problem:
        if self.options.platform == "host":
            return problem
        import cupy

        return problem.map(cupy.asarray)

    def _truth(self, against: str, family: str, tokens: int) -> tuple[Any, Any]:
        """FP64 or the baseline's result; the last of each is kept, as neighbours in the order share it."""
        key = (family, tokens)
        if against not in self._truths or self._truths[against][0] != key:
            problem = self.problem(family, tokens)
            self._truths.pop(against, None)
            result = reference(problem) if against == "fp64" else recurrence(against)(problem)
            self._truths[against] = (key, result)
        found: tuple[Any, Any] = self._truths[against][1]
        return found

    def _refused(self, item: Item) -> str | None:
        """Why the recurrence cannot run on this device, or None."""
        return recurrence(item.recurrence).unsupported(self.problem(item.family, item.tokens))

    # The three kinds of case

    def accuracy(self, item: Item) -> Accuracy:
        """Check one recurrence against FP64 or the baseline, and keep the result."""
        case = self._measure(item, self._check_accuracy)
        if isinstance(case, str):
            case = Accuracy(
                **self._place(item),
                against=item.against,
                limit=checks.limit(item.against),
                outcome="not measured",
                reason=case,
            )
        self.add(case)
        return case

    def determinism(self, item: Item) -> Determinism:
        """Rerun one recurrence and keep the result."""
        case = self._measure(item, self._check_determinism)
        if isinstance(case, str):
            case = Determinism(**self._place(item), outcome="not measured", reason=case)
        self.add(case)
        return case

    def speed(self, item: Item) -> Speed:
        """The time of one recurrence, or why there is none.

        The first case of a token count checks and samples all recurrences of that token count in alternation.
        """
        case = self._measure(item, self._time)
        if isinstance(case, str):
            case = Speed(**self._place(item), outcome="not measured", reason=case)
        self.add(case)
        return case

    def _measure(self, item: Item, measure: Callable[[Item], Measured]) -> Measured | str:
        """What `measure` finds, or why the case cannot be measured on this device."""
        try:
            return self._refused(item) or measure(item)
        except MemoryError as error:  # CuPy's is one too
            self._inputs.clear()
            self._truths.clear()
            return f"out of memory at {item.tokens} tokens: {error}; free the device, or choose fewer with --gdn-tokens"

    def _check_accuracy(self, item: Item) -> Accuracy:
        problem = self.problem(item.family, item.tokens)
        self.progress(f"accuracy of {item.recurrence} at {item.tokens} tokens")
        with self._checks.span():
            truth = self._truth(item.against, item.family, item.tokens)
            result = recurrence(item.recurrence)(problem)
            return checks.accuracy(item.recurrence, item.against, problem, item.family, result, truth)

    def _check_determinism(self, item: Item, gate: bool = False) -> Determinism:
        """All reruns and the digests; or, before a case is timed, a few reruns alone."""
        problem = self.problem(item.family, item.tokens)
        reruns = GATE_RERUNS if gate else self.options.plan.reruns
        one = recurrence(item.recurrence)
        return checks.determinism(
            one, problem, item.family, reruns, self.progress, digests=not gate, busy=self._checks.span()
        )

    def _time(self, item: Item) -> Speed:
        if reason := self._red(item):
            return Speed(**self._place(item), outcome="red", reason=reason)
        if item not in self._timed:
            self._sample_together(item)
        return self._timed.pop(item)

    def _place(self, item: Item) -> dict[str, Any]:
        return {
            "recurrence": item.recurrence,
            "tokens": item.tokens,
            "shape": str(self.options.shape),
            "head_map": self.options.shape.head_map,
            "inputs": item.family,
        }

    def _red(self, item: Item) -> str:
        """Why the recurrence gets no time: a red check of this run or night, or of this very case, made now."""
        if item.recurrence in self.options.red:
            return "no time: a check of this night was red; the night's first record tells which"
        for case in self.cases:
            if case.recurrence == item.recurrence and case.outcome == "red" and not isinstance(case, Speed):
                kind = "accuracy" if isinstance(case, Accuracy) else "determinism"
                return f"no time: {kind} is red at {case.tokens} tokens, {case.inputs} inputs: {case.reason}"
        against = "fp64" if item.tokens <= self.options.plan.fp64_up_to else self.options.baseline
        here: list[Accuracy | Determinism] = []
        if against != item.recurrence:
            here.append(self._check_accuracy(Item("accuracy", item.recurrence, item.tokens, item.family, against)))
        here.append(self._check_determinism(item, gate=True))
        for case in here:
            if case.outcome == "red":
                return f"no time: {case.reason}"
        return ""

    def _sample_together(self, item: Item) -> None:
        """Sample every planned recurrence of this token count that can run and is not red."""
        group = [one for one in self.planned if one.kind == "speed" and one.tokens == item.tokens] or [item]
        group = [one for one in group if one == item or not (self._refused(one) or self._red(one))]
        self._truths.clear()
        if not self.canaries:
            self._canaries("before")
        names = [one.recurrence for one in group]
        # The baseline once more under another name: what differs by no more cannot be told.
        twin = names.index(self.options.baseline) if self.options.baseline in names else 0
        problem = self.problem(item.family, item.tokens)
        self.progress(f"times at {item.tokens} tokens: {', '.join(names)}")
        works = [self._work(recurrence(name), problem) for name in (*names, names[twin])]
        plan = self.options.plan
        hot = plan.hot if not self.groups else replace(plan.hot, warmup_s=0.0)  # the clocks are up
        sampled = timing.sample(self.clock, works, hot, plan.cold, plan.host_times, self.look, self.now)
        judged = self._group(item, names, twin, sampled)
        self.groups.append(judged)
        for place, one in enumerate(group):
            self._timed[one] = self._speed(one, place, twin, sampled, judged)

    def _group(self, item: Item, names: list[str], twin: int, sampled: timing.Sampled) -> Group:
        """The alternation as it is stored, judged."""
        ratio, low, high = paired(sampled.hot[twin], sampled.hot[-1]) or (None, None, None)
        mhz, spread = sampled.clock_spread
        where = {name: value for name, value in self._place(item).items() if name != "recurrence"}
        group = Group(
            **where,
            recurrences=tuple(names),
            warmup_s=sampled.warmup.seconds,
            stationary=sampled.warmup.stationary,
            wall_s=sampled.wall_s,
            device_s=sampled.device_s,
            twin_of=names[twin],
            twin=timing.times(sampled.hot[-1], sampled.calls[-1]),
            aa_ratio=ratio,
            aa_low=low,
            aa_high=high,
            sm_mhz=mhz,
            clock_spread=spread,
            before=sampled.before,
            after=sampled.after,
        )
        return msgspec.structs.replace(
            group, reasons=quality.judge_group(group, self.options.plan.bounds, sampled.steady)
        )

    def _speed(self, item: Item, place: int, twin: int, sampled: timing.Sampled, group: Group) -> Speed:
        """The case at a place of the group: its times, unless they cannot be, and whether they can be relied on."""
        hot = sampled.hot[place]
        times = timing.times(hot, sampled.calls[place])
        cold = timing.times(sampled.cold[place], 1) if sampled.cold else None
        wanted, unit = demand(self.options.shape, item.tokens), recurrence(item.recurrence).unit
        limits = [limit_ns(wanted, self.ceilings, unit, l2) for l2 in ("hot", "cold")]
        for found, limit in zip((times, cold), limits, strict=True):
            if found and found.median_ns and (reason := too_fast(found.median_ns, limit)):
                return Speed(**self._place(item), outcome="red", reason=f"no time: {reason}")
        effect = order_effect(sampled.hot[twin], hot) if place != twin else None
        reasons = [*group.reasons, *quality.judge_case(hot, effect, self.options.plan.bounds)]
        return Speed(
            **self._place(item),
            **msgspec.structs.asdict(times),
            order_effect=effect,
            cold=cold,
            host=timing.host(sampled.hosts[place], times.median_ns or 0.0) if sampled.hosts else None,
            flop=wanted.flop,
            bytes=wanted.bytes,
            limit_ns=limits[0],
            cold_limit_ns=limits[1] if cold else None,
            outcome="inconclusive" if reasons else "green",
            reason="; ".join(reasons),
        )

    def _canaries(self, when: str) -> None:
        """Time the fixed work; before the first group, it also gives the ceilings where none are kept."""
        self.progress(f"canaries {when} the times")
        before = self.look()
        try:
            fixed = canary.works(self.options.platform, self.environment.sms)
            self.canaries += timing.canaries(self.clock, fixed, when, self.options.plan.hot, self.now)
        except MemoryError as error:  # CuPy's is one too
            self.notes.append(f"no canary {when} the times: out of memory: {error}")
            return
        after = self.look()
        quiet = not quality.throttling(before, after) and not any(look.others for look in (before, after))
        if self.ceilings is None and self.options.platform == "cuda" and quiet:
            mhz = self.nvml.most_sm_mhz() if self.nvml else None
            self.ceilings = ceilings(self.canaries, self.environment, getattr(self.clock, "l2_bytes", None), mhz)

    def release(self) -> None:
        """Give the inputs' memory back, so that a fresh process has it."""
        self._inputs.clear()
        self._truths.clear()
        if self.options.platform == "cuda":
            import cupy

            cupy.get_default_memory_pool().free_all_blocks()

    def finish(self) -> None:
        """After the last case: the canaries once more, and what they and the clock have to say."""
        if self.groups:
            self._canaries("after")
            self.notes += quality.judge_canaries(self.canaries, self.options.plan.bounds)
        self.notes += self.clock.notes

    def _work(self, one: Recurrence, problem: Problem) -> Work:
        """The in-place call on arrays of its own, and its reset."""
        out, _ = one(problem)
        state = problem.state.copy()

        def reset() -> None:
            state[...] = problem.state

        return Work(lambda: one.enqueue(problem, out, state), reset, f"{one.name}, {problem.tokens} tokens")


def command() -> tuple[str, ...]:
    """The command line, however pytest was started."""
    return ("pytest", *sys.argv[1:])
