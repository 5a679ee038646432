"""Two models on one batch as a job: the answers of both, and of inner values that both have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mezzo.contracts.executor import prepare, width_of
from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import Answers, Feeds, Layers, Pair, Running, Sessions
from mezzo.conversion.results import lab_of


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers of both by the reference's names, and what a reader has to know of how they came."""

    answers: tuple[Answers, Answers]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairJob:
    """Runs a reference beside another model on one batch's feeds, with inner values of these names among the answers.
    The item None makes both ready and answers nothing.
    """

    running: Running
    layers: tuple[str, ...]
    title: str = "comparison"

    def open(self, models: Sequence[Model]) -> Callable[[Feeds | None], Answered]:
        reference, candidate = models
        pair = lab_of(reference).pair(candidate.runnable(candidate.original), self.running)
        known = pair.layers() if self.layers else {}
        return open_pair(pair, {name: known[name] for name in self.layers})


def open_pair(pair: Pair, layers: Layers) -> Callable[[Feeds | None], Answered]:
    """Make a pair ready that is open already."""
    return _Answering(pair.load(layers))


class _Answering:
    """Both models, ready to run."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def width(self) -> int:
        return width_of(self._sessions)

    def prepare(self, many: Sequence[Feeds | None]) -> None:
        prepare(self._sessions, [feeds for feeds in many if feeds is not None])

    def __call__(self, feeds: Feeds | None) -> Answered:
        answers: tuple[Answers, Answers] = ({}, {}) if feeds is None else self._sessions.run(feeds)
        return Answered(answers, tuple(self._sessions.notes()))
