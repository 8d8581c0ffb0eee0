"""Fabricated histories, and what a rule of judging does with them.

A history is a number of series that are measured every night. Its truth is known, so that false alarms and what is
found can be counted. `results/rivals.py` has the rules that are held against ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from results.judging import DEFAULT, Thresholds, band, control, explained, short_history
from results.judging_changes import ALPHA, RECENT, SUSPECT, change_points, strongest, suspected
from results.judging_level import LOOK_BACK, risen


@dataclass(frozen=True)
class Model:
    """What the fabricated machine does; everything is relative, 0.01 is 1 %.

    Attributes:
        series: cases of a night.
        nights: nights of a history; the first one is accepted as the baseline.
        noise: standard deviation of a process's time, which is the noise from run to run.
        tails: degrees of freedom of that noise, Student's; infinity is normal.
        shock: standard deviation of what moves all series of a night together; each has a load of its own,
            0.5 to 1.5, that it is multiplied by.
        bad: share of bad nights: all series are slower by `bad_low` to `bad_high` times their load, and three times
            as noisy.
        lasts: share of the bad nights that last until the fresh processes have run; the others are over after the
            first process.
        blind: share of the bad nights that the canary does not see.
        canary: standard deviation of the canary's own noise, for a process.
        samples, within: samples of a process, and their standard deviation; a rule on samples needs them.
        processes: processes of a night, the first included, if a change must be confirmed.
        low_us, high_us: range of the times.
        aa: the A/A spread.
    """

    series: int = 22
    nights: int = 100
    noise: float = 0.01
    tails: float = math.inf
    shock: float = 0.005
    bad: float = 0.03
    bad_low: float = 0.03
    bad_high: float = 0.12
    lasts: float = 0.5
    blind: float = 0.0
    canary: float = 0.003
    samples: int = 30
    within: float = 0.003
    processes: int = 5
    low_us: float = 20.0
    high_us: float = 15_000.0
    aa: float = 0.005


@dataclass(frozen=True)
class Plant:
    """A change of the first series.

    Attributes:
        night: the first night of the new level.
        size: relative change of the time; 0.05 is 5 % slower.
        over: nights that it takes to get there: 1 is a step, more a drift.
    """

    night: int
    size: float
    over: int = 1


@dataclass(frozen=True)
class Histories:
    """Logarithms of times in us.

    Attributes:
        times: [histories, series, nights, processes].
        canary: [histories, nights, processes].
        seed: of the samples.
    """

    model: Model
    times: np.ndarray
    canary: np.ndarray
    plant: Plant | None
    seed: int

    def samples(self, night: int) -> np.ndarray:
        """The samples of the first process of a night, [histories, series, samples]; the same at every call."""
        chance = np.random.default_rng([self.seed, night])
        shape = (*self.times.shape[:2], self.model.samples)
        return np.asarray(self.times[:, :, night, :1] + chance.normal(0, self.model.within, shape))

    def part(self, count: int) -> Histories:
        """The first so many histories."""
        return replace(self, times=self.times[:count], canary=self.canary[:count])


def fabricate(model: Model, count: int, seed: int, plant: Plant | None = None) -> Histories:
    """Make so many histories; the same seed makes the same ones, with another plant too."""
    chance = np.random.default_rng(seed)
    shape = (count, model.series, model.nights, model.processes)
    nights = (count, model.nights)
    level = chance.uniform(math.log(model.low_us), math.log(model.high_us), shape[:2])
    load = chance.uniform(0.5, 1.5, shape[:2])
    shock = chance.normal(0, model.shock, nights)
    bad = chance.random(nights) < model.bad
    size = np.log1p(chance.uniform(model.bad_low, model.bad_high, nights))
    lasts, seen = chance.random(nights) < model.lasts, chance.random(nights) >= model.blind
    hit = bad[..., None] & (lasts[..., None] | (np.arange(model.processes) == 0))
    slow = np.where(hit, size[..., None], 0.0)
    if math.isinf(model.tails):
        noise = chance.normal(0, model.noise, shape)
    else:
        noise = chance.standard_t(model.tails, shape) * model.noise / math.sqrt(model.tails / (model.tails - 2))
    times = level[..., None, None] + load[..., None, None] * (shock[..., None] + slow)[:, None]
    times += noise * np.where(hit, 3.0, 1.0)[:, None]
    if plant is not None:
        grown = np.clip((np.arange(model.nights) - plant.night + 1) / plant.over, 0, 1)
        times[:, 0] += math.log1p(plant.size) * grown[:, None]
    canary = shock[..., None] + np.where(seen[..., None], slow, 0.0) + chance.normal(0, model.canary, hit.shape)
    return Histories(model, times, canary, plant, seed)


@dataclass
class Outcome:
    """What a rule said of every night.

    Attributes:
        alarms: [histories, nights, series], an alarm for a slower time.
        standing: (history, night, series) to the nights that the rule then names as the first slower ones.
        names: whether the rule names any; where it does not, it means that of its alarm.
        not_judged: [histories, nights], share of the series that the rule could not tell.
        fresh: [histories, nights], share of the series that fresh processes measured.
    """

    alarms: np.ndarray
    standing: dict[tuple[int, int, int], tuple[int, ...]] = field(default_factory=dict)
    names: bool = False
    not_judged: np.ndarray | None = None
    fresh: np.ndarray | None = None


Rule = Callable[[Histories], Outcome]


class _Ring:
    """The newest values of each history, oldest first; histories gain theirs on different nights."""

    def __init__(self, shape: tuple[int, ...], length: int) -> None:
        self.values = np.zeros((*shape, length))
        self.nights = np.zeros((shape[0], length), int)
        self.count = np.zeros(shape[0], int)

    def add(self, which: np.ndarray, values: np.ndarray, night: int) -> None:
        rows = np.flatnonzero(which)
        self.values[rows] = np.roll(self.values[rows], -1, axis=-1)
        self.values[rows, ..., -1] = values[rows]
        self.nights[rows] = np.roll(self.nights[rows], -1, axis=-1)
        self.nights[rows, -1] = night
        self.count[rows] += 1

    def groups(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(histories, their values), for each number of values."""
        length = self.values.shape[-1]
        held = np.minimum(self.count, length)
        return [(rows := np.flatnonzero(held == n), self.values[rows][..., length - n :]) for n in np.unique(held) if n]


def ours(histories: Histories, thresholds: Thresholds = DEFAULT, changes: bool = True) -> Outcome:
    """The rule of `results/judging.py`, with fresh processes and with green nights accepted.

    Fresh processes measure a series whose first process is outside of its band, one in whose last nights a step is
    suspected, and one whose level rose. A night is accepted where no series is slower and the canary is quiet. An
    alarm is what makes the exit code 1: a time outside of its band or, with `changes`, a level that rose
    (`results/judging_level.py`), on each night on which it is so.
    """
    model, times, canary = histories.model, histories.times, histories.canary
    count = times.shape[0]
    accepted, machine = _Ring(times.shape[:2], thresholds.window), _Ring((count,), thresholds.window)
    watch = _Watch(histories, thresholds) if changes else None
    outcome = Outcome(np.zeros((count, model.nights, model.series), bool), names=True)
    outcome.not_judged = np.zeros((count, model.nights))
    outcome.fresh = np.zeros((count, model.nights))
    everyone = np.ones(count, bool)
    first = np.median(times[:, :, 0], axis=-1)
    accepted.add(everyone, first, 0)
    machine.add(everyone, np.median(canary[:, 0], axis=-1), 0)
    if watch:
        watch.add(everyone, first, 0)
    for night in range(1, model.nights):
        slower, quiet, values = np.zeros(times.shape[:2], bool), np.ones(count, bool), times[:, :, night, 0].copy()
        asked = watch.asked(values) if watch else np.zeros(times.shape[:2], bool)
        for (rows, old), (_, old_canary) in zip(accepted.groups(), machine.groups(), strict=True):
            told = _night(
                old, times[rows, :, night], old_canary, canary[rows, night], model.aa, thresholds, asked[rows]
            )
            slower[rows], quiet[rows], values[rows], outcome.not_judged[rows, night], outcome.fresh[rows, night] = told
        if watch:
            watch.add(quiet, values, night)
            slower |= watch.look(night, quiet, outcome)
        outcome.alarms[:, night] = slower
        green = quiet & ~slower.any(axis=1)
        accepted.add(green, values, night)
        machine.add(green, canary[:, night, 0], night)
    return outcome


_Told = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _night(
    old: np.ndarray,
    new: np.ndarray,
    old_canary: np.ndarray,
    canary: np.ndarray,
    aa: float,
    thresholds: Thresholds,
    asked: np.ndarray,
) -> _Told:
    """One night of several histories with equally many accepted runs: slower, canary quiet, times, share not told.

    Args:
        old, new: [histories, series, accepted runs or processes].
        old_canary, canary: [histories, accepted runs or processes].
        asked: [histories, series], those that fresh processes measure whatever their band says.
    """
    values = new[..., 0].copy()
    if old.shape[-1] < thresholds.least:
        return _short_night(old, new, aa, thresholds)
    seen = band(old, aa, thresholds)
    reach = np.log1p(seen.limit)
    suspicious = asked | (np.abs(values - seen.centre) > reach)
    values[suspicious] = np.median(new[suspicious], axis=-1)
    sure = band(old, aa, thresholds, new.shape[-1])
    reach = np.where(suspicious, np.log1p(sure.limit), reach)
    log = values - seen.centre
    found = (np.abs(log) > reach) & control(np.where(suspicious, sure.p(log), seen.p(log)), thresholds.q)
    calm = band(old_canary, 0.0, replace(thresholds, us=0.0))
    # Where processes were added, the canary of the night is that of all of them.
    ran = np.where(suspicious.any(axis=1), np.median(canary, axis=-1), canary[:, 0]) - calm.centre
    disturbed = np.abs(ran) > np.log1p(calm.limit)
    excused = (disturbed & (ran > 0))[:, None] & (np.abs(log) <= explained(np.exp(ran)[:, None], np.expm1(reach)))
    slower = found & (log > 0) & ~excused
    untold = (np.abs(log) > reach) & ~found | (found & (log > 0) & excused)
    return slower, ~disturbed, values, untold.mean(axis=1), suspicious.mean(axis=1)


def _short_night(old: np.ndarray, new: np.ndarray, aa: float, thresholds: Thresholds) -> _Told:
    """The same with a short history. The canary is not asked: it has none either."""
    values, one, all_of = (
        new[..., 0].copy(),
        short_history(old, new[..., :1], aa, thresholds),
        short_history(old, new, aa, thresholds),
    )
    values[one.outside] = np.median(new[one.outside], axis=-1)
    outside = one.outside & all_of.outside
    sure = outside & all_of.sure & control(np.where(one.outside, all_of.p, one.p), thresholds.q)
    quiet = np.ones(new.shape[0], bool)
    return sure & (all_of.log > 0), quiet, values, (outside & ~sure).mean(axis=1), one.outside.mean(axis=1)


class _Watch:
    """The level of each series over the quiet nights of its history."""

    NEAR = 5
    """A change within so many nights of one that was reported is the same one."""

    def __init__(self, histories: Histories, thresholds: Thresholds = DEFAULT) -> None:
        # Where a change is planted, only its series is looked at; false alarms are counted without one.
        self.series = histories.model.series if histories.plant is None else 1
        self.shape = (histories.times.shape[0], histories.model.series)
        self.ring = _Ring((self.shape[0], self.series), LOOK_BACK)
        self.thresholds, self.aa = thresholds, histories.model.aa
        self.reported: dict[tuple[int, int], list[int]] = {}

    def add(self, which: np.ndarray, values: np.ndarray, night: int) -> None:
        self.ring.add(which, values[:, : self.series], night)

    def _below(self, p: float, tonight: np.ndarray | None = None) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
        """(history, series, its values, their nights) where the clearest step has a lower p; with a value of tonight,
        if it is given."""
        for rows, values in self.ring.groups():
            before = values.shape[-1]
            if tonight is not None:
                values = np.concatenate([values, tonight[rows, : self.series, None]], axis=-1)[..., -LOOK_BACK:]
            n = values.shape[-1]
            for i, series in np.argwhere(strongest(values.reshape(-1, n)).reshape(values.shape[:2]) < p):
                nights = self.ring.nights[int(rows[i]), LOOK_BACK - before :]
                yield int(rows[i]), int(series), np.exp(values[i, series]), nights

    def asked(self, tonight: np.ndarray) -> np.ndarray:
        """Which series fresh processes measure: [histories, series].

        Args:
            tonight: logarithms of the first process, [histories, series].
        """
        found = np.zeros(self.shape, bool)
        for history, series, values, _ in self._below(SUSPECT):
            found[history, series] = suspected(values, RECENT)
        for history, series, values, _ in self._below(SUSPECT, tonight):
            rose = suspected(values, RECENT) or risen(values, self.thresholds, self.aa) is not None
            found[history, series] |= rose
        return found

    def look(self, night: int, quiet: np.ndarray, outcome: Outcome) -> np.ndarray:
        """Which series' level rose, by a night that has been added: [histories, series]; steps up are reported."""
        found = np.zeros(self.shape, bool)
        for history, series, values, nights in self._below(ALPHA):
            if quiet[history]:
                steps = [int(nights[one.index]) for one in change_points(values) if one.after > one.before]
                outcome.standing[history, night, series] = tuple(steps)
                found[history, series] = risen(values, self.thresholds, self.aa) is not None
        return found

    def report(self, night: int, outcome: Outcome) -> None:
        """Let a step up that is reported for the first time be an alarm."""
        for history, series, values, nights in self._below(ALPHA):
            steps = tuple(int(nights[one.index]) for one in change_points(values) if one.after > one.before)
            outcome.standing[history, night, series] = steps
            known = self.reported.setdefault((history, series), [])
            for step in steps:
                if all(abs(step - other) > self.NEAR for other in known):
                    known.append(step)
                    outcome.alarms[history, night, series] = True


def changes_alone(histories: Histories) -> Outcome:
    """Change points over the first process of every night, without a canary, a band or fresh processes."""
    times = histories.times
    outcome = Outcome(np.zeros((times.shape[0], times.shape[2], times.shape[1]), bool), names=True)
    watch, everyone = _Watch(histories), np.ones(times.shape[0], bool)
    for night in range(times.shape[2]):
        watch.add(everyone, times[:, :, night, 0], night)
        watch.report(night, outcome)
    return outcome


def false_alarms(outcome: Outcome, first: int = 1) -> float:
    """Share of the nights from `first` on with an alarm of any series, of histories without a change."""
    return float(outcome.alarms[:, first:].any(axis=2).mean())


def found_within(outcome: Outcome, plant: Plant, nights: int) -> float:
    """Share of the histories whose changed series has an alarm in its first so many nights."""
    return float(outcome.alarms[:, plant.night : plant.night + nights, 0].any(axis=1).mean())


def attributed(outcome: Outcome, plant: Plant, nights: int = 14, off: int = 2) -> float:
    """Share of the histories whose change is reported and placed right, by the newest report of so many nights.

    A rule that names no night means the night of its first alarm.
    """
    last = plant.night + nights - 1
    if not outcome.names:
        alarms = outcome.alarms[:, plant.night : plant.night + off + 1, 0].any(axis=1)
        return float(alarms.mean())
    right, count = 0, len(outcome.alarms)
    for history in range(count):
        looks = [outcome.standing.get((history, night, 0), ()) for night in range(plant.night, last + 1)]
        newest: tuple[int, ...] = next((places for places in reversed(looks) if places), ())
        right += any(abs(one - plant.night) <= off for one in newest)
    return right / count


@dataclass(frozen=True)
class Figures:
    """A line of the table.

    Attributes:
        rule: its name.
        false: share of nights with a false alarm.
        first, third: share of 5 % steps found in the first night, and within three.
        right: share of 2 % steps attributed within 14 nights.
        fresh: share of the series and nights that fresh processes measured; NaN: the rule has none.
        judged: nights that `false` is taken over.
        steps: histories that the other figures are taken over.
    """

    rule: str
    false: float
    first: float
    third: float
    right: float
    fresh: float
    judged: int
    steps: int


@dataclass(frozen=True)
class Contest:
    """A rule in a model, and over how many histories its figures are taken."""

    name: str
    rule: Rule
    model: Model
    histories: int
    steps: int
    seed: int


def figures(contest: Contest) -> Figures:
    """Let a rule judge histories without a change, with a step of 5 % and with one of 2 %."""
    model, rule, seed = contest.model, contest.rule, contest.seed
    night = min(60, model.nights - 14)
    big, small = Plant(night, 0.05), Plant(night, 0.02)
    quiet = rule(fabricate(model, contest.histories, seed))
    short = replace(model, nights=night + 14)
    five = rule(fabricate(short, contest.steps, seed + 1, big))
    two = rule(fabricate(short, contest.steps, seed + 2, small))
    found = (found_within(five, big, 1), found_within(five, big, 3), attributed(two, small))
    fresh = math.nan if quiet.fresh is None else float(quiet.fresh[:, 1:].mean())
    judged = contest.histories * (model.nights - 1)
    return Figures(contest.name, false_alarms(quiet), *found, fresh, judged, contest.steps)


def missed(mine: Figures) -> list[str]:
    """Which of the figures that our rule is held to it misses, in words."""
    held = (
        ("nights with a false alarm", mine.false, mine.false <= 0.03, "at most 3 %"),
        ("5 % steps found in the first night", mine.first, mine.first >= 0.8, "at least 80 %"),
        ("5 % steps found within 3 nights", mine.third, mine.third >= 0.95, "at least 95 %"),
        ("2 % steps attributed", mine.right, mine.right >= 0.8, "at least 80 %"),
    )
    return [f"{name}: {value:.1%}, {bound} is wanted" for name, value, fine, bound in held if not fine]
