"""One run: the cases it consists of, what they need, and what has been measured so far."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from kernels import Problem, Recurrence, recurrence
from kernels.inputs import make
from kernels.reference import reference
from suite import checks
from suite.clock import Clock, GraphClock, HostClock, Samples, Work, alternate
from suite.environment import Nvml, collect
from suite.facts import Accuracy, Case, Clocks, Determinism, Environment, Method, Speed
from suite.options import Options
from suite.statistics import median_interval

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
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    planned: list[Item] = field(default_factory=list)
    _inputs: dict[str, Problem] = field(default_factory=dict)
    _truths: dict[Any, Any] = field(default_factory=dict)
    _samples: dict[Item, Samples] = field(default_factory=dict)
    _warm: bool = False

    @classmethod
    def start(cls, options: Options) -> Run:
        """Look at the machine and set up the platform's clock."""
        if options.platform == "host":
            environment, nvml = collect(None)
            return cls(options, environment, HostClock())
        import cupy

        cupy.cuda.Device(options.device).use()
        environment, nvml = collect(options.device)
        return cls(options, environment, GraphClock(), nvml)

    @property
    def method(self) -> Method:
        plan = self.options.plan
        return Method(
            id=f"{self.clock.name}-hot-1",
            timer=self.clock.name,
            l2="hot",
            order="abba",
            warmup_s=plan.warmup_s,
            seed=SEED,
        )

    def clocks(self) -> Clocks:
        """The card's clocks now; empty on the host."""
        return self.nvml.clocks() if self.nvml else Clocks()

    def add(self, case: Case) -> None:
        self.cases.append(case)
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
        truth = self._truth(item.against, item.family, item.tokens)
        result = recurrence(item.recurrence)(problem)
        return checks.accuracy(item.recurrence, item.against, problem, item.family, result, truth)

    def _check_determinism(self, item: Item, reruns: int | None = None) -> Determinism:
        problem = self.problem(item.family, item.tokens)
        reruns = reruns or self.options.plan.reruns
        return checks.determinism(recurrence(item.recurrence), problem, item.family, reruns, self.progress)

    def _time(self, item: Item) -> Speed:
        if reason := self._red(item):
            return Speed(**self._place(item), outcome="red", reason=reason)
        if item not in self._samples:
            self._sample_together(item)
        samples = self._samples.pop(item)
        median, low, high = median_interval(np.array(samples.ns))
        return Speed(
            **self._place(item),
            samples_ns=samples.ns,
            calls_per_sample=samples.calls,
            median_ns=median,
            low_ns=low,
            high_ns=high,
            outcome="green",
        )

    def _place(self, item: Item) -> dict[str, Any]:
        return {
            "recurrence": item.recurrence,
            "tokens": item.tokens,
            "shape": str(self.options.shape),
            "head_map": self.options.shape.head_map,
            "inputs": item.family,
        }

    def _red(self, item: Item) -> str:
        """Why the recurrence gets no time: a red check of this run, or of this very case, made now."""
        for case in self.cases:
            if case.recurrence == item.recurrence and case.outcome == "red" and not isinstance(case, Speed):
                kind = "accuracy" if isinstance(case, Accuracy) else "determinism"
                return f"no time: {kind} is red at {case.tokens} tokens, {case.inputs} inputs: {case.reason}"
        against = "fp64" if item.tokens <= self.options.plan.fp64_up_to else self.options.baseline
        here: list[Accuracy | Determinism] = []
        if against != item.recurrence:
            here.append(self._check_accuracy(Item("accuracy", item.recurrence, item.tokens, item.family, against)))
        here.append(self._check_determinism(item, GATE_RERUNS))
        for case in here:
            if case.outcome == "red":
                return f"no time: {case.reason}"
        return ""

    def _sample_together(self, item: Item) -> None:
        """Sample every planned recurrence of this token count that can run and is not red."""
        group = [one for one in self.planned if one.kind == "speed" and one.tokens == item.tokens] or [item]
        group = [one for one in group if one == item or not (self._refused(one) or self._red(one))]
        self._truths.clear()
        problem = self.problem(item.family, item.tokens)
        self.progress(f"times at {item.tokens} tokens: {', '.join(one.recurrence for one in group)}")
        works = [self._work(recurrence(one.recurrence), problem) for one in group]
        plan = self.options.plan
        warmup = 0.0 if self._warm else plan.warmup_s
        taken = alternate(self.clock, works, plan.rounds, plan.budget_s, warmup)
        self._warm = True
        self._samples.update(zip(group, taken, strict=True))

    def _work(self, one: Recurrence, problem: Problem) -> Work:
        """The in-place call on arrays of its own, and its reset."""
        out, _ = one(problem)
        state = problem.state.copy()

        def reset() -> None:
            state[...] = problem.state

        return Work(lambda: one.enqueue(problem, out, state), reset)


def command() -> tuple[str, ...]:
    """The command line, however pytest was started."""
    return ("pytest", *sys.argv[1:])
