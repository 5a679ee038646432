"""Sequences: feeds of many steps, in which outputs of a model become its inputs at the next step,
and a lab that runs them. Each model is fed its own outputs, so its errors accumulate as in use.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mezzo.common.errors import ContractError, InputError
from mezzo.common.memory import current_memory_limit
from mezzo.common.message_style import option
from mezzo.contracts.executor import prepare, width_of
from mezzo.contracts.lab import (
    Answers,
    Emulator,
    Feeds,
    Inputs,
    Instruments,
    Lab,
    Layers,
    MeasuredValue,
    ObservedValue,
    Pair,
    Profiler,
    Reached,
    Records,
    Run,
    Running,
    Sessions,
    Subject,
    WeightTrials,
)

if TYPE_CHECKING:
    import numpy.typing as npt

    from mezzo.contracts.plans import Accumulation
    from mezzo.contracts.reading import Artifact, Reading
    from mezzo.formats.dtypes import DType

# Output names, each with the input that it becomes at the next step.
Feedback = tuple[tuple[str, str], ...]

# Bound on the outputs of all steps together.
_MOST_BYTES = 2 << 30
# Fewest samples per value and step of a range measurement.
_FEWEST_SAMPLES = 8


class StepFeeds(Mapping[str, Any]):
    """The feeds of all steps. As a mapping it has the initial states, and other inputs stacked
    along a new first axis; of an input whose shape differs between steps, the last one.
    """

    def __init__(self, feedback: Feedback, initial: Feeds, each: Sequence[Feeds]) -> None:
        """`initial`: the first step's states; `each`: the other inputs of each step."""
        self.feedback, self.initial, self.each = feedback, dict(initial), tuple(each)

    @cached_property
    def _stacked(self) -> dict[str, Any]:
        rows = {name: _stack([feeds[name] for feeds in self.each]) for name in self.each[0]}
        rows = {name: row[-1] if isinstance(row, list) else row for name, row in rows.items()}
        return {**self.initial, **rows}

    def __getitem__(self, name: str) -> Any:
        return self._stacked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stacked)

    def __len__(self) -> int:
        return len(self._stacked)

    @property
    def first(self) -> Feeds:
        """The feeds of the first step."""
        return {**self.each[0], **self.initial}

    def map(self, change: Callable[[Feeds], Feeds]) -> "StepFeeds":
        """The same steps with changed feeds."""
        return StepFeeds(
            self.feedback, change(self.initial), [change(feeds) for feeds in self.each]
        )

    def walk(self, run: Run) -> Iterator[tuple[Feeds, Answers]]:
        """Run step by step; yields each step's feeds, states included, and its outputs."""
        state = self.initial
        for number, feeds in enumerate(self.each, 1):
            fed = {**feeds, **state}
            try:
                answers = run(fed)
            except (ContractError, InputError) as error:
                raise type(error)(f"step {number:,}: {error}") from error
            yield fed, answers
            state = {name: answers[output] for output, name in self.feedback}


class _Outputs:
    """The outputs of one model, collected step by step. `last_only`: values of which only the last
    step is kept.
    """

    def __init__(self, steps: StepFeeds, last_only: Collection[str] = ()) -> None:
        self._steps, self._last_only = len(steps.each), last_only
        self._states = {output for output, _ in steps.feedback}
        self._kept: dict[str, list[Any]] = {}
        self._bytes = 0
        self._most_bytes = current_memory_limit().share_bytes(_MOST_BYTES)

    def add(self, answers: Answers) -> None:
        """Add a step. Raises InputError: the outputs of all steps would not fit in memory."""
        for name, value in answers.items():
            kept = self._kept.setdefault(name, [])
            # A cache that grows holds all that it held before.
            is_grown = name in self._states and kept and np.shape(kept[-1]) != np.shape(value)
            if name in self._last_only or is_grown:
                kept.clear()
            else:
                self._bytes += getattr(value, "nbytes", 0)
            kept.append(value)
        if self._bytes > self._most_bytes:
            raise InputError(
                f"the outputs of {self._steps:,} steps take more than"
                f" {self._most_bytes >> 20:,} MB; give fewer, as {option('steps')} does"
            )

    def result(self) -> Answers:
        """Each output, its steps stacked along a new first axis; a list of them if their shapes
        differ; of a growing cache the last one.
        """
        return {
            name: _stack(kept) if len(kept) == self._steps and name not in self._last_only
            else kept[-1]
            for name, kept in self._kept.items()
        }  # fmt: skip


def _stack(values: list[Any]) -> Any:
    is_even = all(
        isinstance(value, np.ndarray) and value.shape == values[0].shape for value in values
    )
    return np.stack(values) if is_even else values


def count_steps(feeds: Feeds) -> int | None:
    """The number of steps; None for the feeds of a single call."""
    return len(feeds.each) if isinstance(feeds, StepFeeds) else None


def first_feeds(feeds: Feeds) -> Feeds:
    """The feeds of a single call: of the first step if there are several."""
    return feeds.first if isinstance(feeds, StepFeeds) else feeds


def over_steps(run: Run) -> Run:
    """The same run, which also takes the feeds of many steps."""
    return _SteppedRun(run)


class _Stepped:
    """Forwards the announcement of coming items to an engine; those of many steps are not ready to
    be announced.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    @property
    def width(self) -> int:
        return width_of(self._engine)

    def prepare(self, many: Sequence[Any]) -> None:
        def feeds_of(item: Any) -> Any:
            return item[0] if isinstance(item, tuple) else item

        prepare(self._engine, [i for i in many if not isinstance(feeds_of(i), StepFeeds)])


class _SteppedRun(_Stepped):
    _engine: Run

    def __call__(self, feeds: Feeds) -> Answers:
        if not isinstance(feeds, StepFeeds):
            return self._engine(feeds)
        outputs = _Outputs(feeds)
        for _, answers in feeds.walk(self._engine):
            outputs.add(answers)
        return outputs.result()


class _SteppedEmulator(_Stepped):
    _engine: Emulator

    def run(self, feeds: Feeds, precision_of: "Mapping[int, DType]") -> Answers:
        return over_steps(lambda fed: self._engine.run(fed, precision_of))(feeds)


class _SteppedTrials:
    def __init__(self, trials: WeightTrials) -> None:
        self._trials = trials
        self.weight, self.dequantized, self.keep = trials.weight, trials.dequantized, trials.keep

    def run(self, feeds: Feeds, exchanged: "Mapping[int, npt.NDArray[np.float32]]") -> Answers:
        return over_steps(lambda fed: self._trials.run(fed, exchanged))(feeds)

    def each_alone(
        self, many: Sequence[Feeds]
    ) -> "Iterator[tuple[int, Callable[[npt.NDArray[np.float32]], Sequence[Answers]]]]":
        if not any(isinstance(feeds, StepFeeds) for feeds in many):
            yield from self._trials.each_alone(many)
            return
        for value, _ in self._trials.each_alone([first_feeds(feeds) for feeds in many]):
            yield value, partial(self._run_each, many, value)

    def _run_each(
        self, many: Sequence[Feeds], value: int, numbers: "npt.NDArray[np.float32]"
    ) -> Sequence[Answers]:
        return [self.run(feeds, {value: numbers}) for feeds in many]


class _SteppedSubject:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.inputs, self.reached = subject.inputs, subject.reached

    def moved(self, move: "Callable[[npt.NDArray[Any]], npt.NDArray[Any]]", most_bytes: int) -> Run:
        return over_steps(self._subject.moved(move, most_bytes))


class _SteppedSessions(_Stepped):
    """Both models, each fed its own outputs. Of layers, the last step is kept."""

    _engine: Sessions

    def __init__(self, sessions: Sessions, layers: Layers) -> None:
        super().__init__(sessions)
        self._layers, self.notes = layers, sessions.notes

    def run(self, feeds: Feeds, apart: Feeds | None = None) -> tuple[Answers, Answers]:
        if not isinstance(feeds, StepFeeds):
            return self._engine.run(feeds, apart)
        ours, theirs = _Outputs(feeds, self._layers), _Outputs(feeds, self._layers)
        state = feeds.initial

        def run_both(fed: Feeds) -> Answers:
            nonlocal state
            answers, others = self._engine.run(fed, {**fed, **state})
            state = {name: others[output] for output, name in feeds.feedback}
            theirs.add(others)
            return answers

        for _, answers in feeds.walk(run_both):
            ours.add(answers)
        return ours.result(), theirs.result()


class _SteppedPair:
    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.formats, self.outputs, self.notes = pair.formats, pair.outputs, pair.notes
        self.layers = pair.layers

    @cached_property
    def reference(self) -> Subject:
        return _SteppedSubject(self._pair.reference)

    def reached(self, fed: Collection[str]) -> Mapping[str, tuple[Reached, Reached]]:
        return self._pair.reached(fed)

    def load(self, layers: Layers) -> Sessions:
        return _SteppedSessions(self._pair.load(layers), layers)

    def candidate(self) -> Run:
        return over_steps(self._pair.candidate())

    def split_layers(self, layers: Layers, feeds: Feeds) -> Sequence[Layers]:
        return self._pair.split_layers(layers, first_feeds(feeds))


class _SteppedInstruments(_Stepped):
    """Instruments of a model; `states` runs it for the states of later steps."""

    _engine: Instruments

    def __init__(self, instruments: Instruments, states: Callable[[], Run]) -> None:
        super().__init__(instruments)
        self._states = states

    @property
    def fingerprint(self) -> str:
        return self._engine.fingerprint

    @property
    def size(self) -> int:
        return self._engine.size

    @property
    def elements(self) -> int:
        return self._engine.elements

    @property
    def values(self) -> Sequence[MeasuredValue]:
        return self._engine.values

    @property
    def skipped(self) -> tuple[str, ...]:
        return self._engine.skipped

    def run(self, feeds: Feeds, draw: int, sample: int) -> Records:
        if not isinstance(feeds, StepFeeds):
            return self._engine.run(feeds, draw, sample)
        count = len(feeds.each)
        fewer = max(sample // count, _FEWEST_SAMPLES)
        return _join([
            self._engine.run(fed, draw * count + number, fewer)
            for number, (fed, _) in enumerate(feeds.walk(self._states()))
        ])  # fmt: skip


def _join(many: Sequence[Records]) -> Records:
    names = [field.name for field in fields(Records)]
    joined = {name: np.concatenate([getattr(each, name) for each in many]) for name in names}
    return replace(many[0], **joined)


class SequenceLab:
    """The lab of a model that also takes the feeds of many steps wherever it takes feeds, except to
    time them.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    @property
    def inputs(self) -> Inputs:
        return self._lab.inputs

    @property
    def outputs(self) -> Sequence[str]:
        return self._lab.outputs

    @property
    def formats(self) -> "Collection[DType]":
        return self._lab.formats

    @property
    def profiler(self) -> Profiler | None:
        return self._lab.profiler

    def native(self) -> Run:
        return over_steps(self._lab.native())

    def emulated(self, accumulation: "Accumulation | None") -> Run:
        return over_steps(self._lab.emulated(accumulation))

    def emulator(
        self,
        reading: "Reading",
        formats: "Sequence[DType]",
        accumulation: "Accumulation | None" = None,
        **more: Any,
    ) -> Emulator:
        return _SteppedEmulator(self._lab.emulator(reading, formats, accumulation, **more))

    def weight_trials(self, reading: "Reading", values: Sequence[int]) -> WeightTrials:
        return _SteppedTrials(self._lab.weight_trials(reading, values))

    def subject(self) -> Subject:
        return _SteppedSubject(self._lab.subject())

    def pair(self, candidate: "Artifact", running: Running) -> Pair:
        return _SteppedPair(self._lab.pair(candidate, running))

    def observer(
        self, reading: "Reading", values: Sequence[int]
    ) -> Callable[[Feeds], Iterator[ObservedValue]]:
        show = self._lab.observer(reading, values)

        def show_steps(feeds: Feeds) -> Iterator[ObservedValue]:
            if not isinstance(feeds, StepFeeds):
                yield from show(feeds)
                return
            for fed, _ in feeds.walk(self._lab.native()):
                yield from show(fed)

        return show_steps

    def instruments(self, feeds: Feeds) -> Instruments:
        return _SteppedInstruments(self._lab.instruments(first_feeds(feeds)), self._lab.native)
