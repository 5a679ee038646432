"""A lab that runs sequences: wherever a lab takes feeds, it also takes those of many steps, except
to time them.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

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
from mezzo.contracts.sequences.step_feeds import StepFeeds, StepOutputs, first_feeds

if TYPE_CHECKING:
    import numpy.typing as npt

    from mezzo.contracts.plans import Accumulation
    from mezzo.contracts.reading import Artifact, Reading
    from mezzo.formats.dtypes import DType

# Fewest samples per value and step of a range measurement.
_FEWEST_SAMPLES = 8


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
        outputs = StepOutputs(feeds)
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
        ours, theirs = StepOutputs(feeds, self._layers), StepOutputs(feeds, self._layers)
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

    def saturating(self) -> Sequence[str]:
        return self._pair.saturating()

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
    """The lab of a model, which also runs sequences."""

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
