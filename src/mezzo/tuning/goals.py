"""Goals of a search: a budget for the output error, or for the loss of the user's own metric."""

import copy
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.contracts.plans import Accumulation
from mezzo.evaluate.data_session import DataSession
from mezzo.evaluate.resume_file import StateFormat, open_state, write_state
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.numerics.measures import Comparison, Ruling
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.numerics.metrics.user_metric import Metric, MetricTally
from mezzo.numerics.verdicts import Drop, read_drop

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch
    from mezzo.tuning.evaluator import Evaluator

# On search data the error must stay below the budget divided by this margin, as other data may have
# larger errors. Without held-out data to detect that, the margin is larger.
_MARGIN, MARGIN_UNSEEN = 1.25, 1.5
_SCORES = StateFormat("state", "mezzo-tuning-state/1", key="format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The constraint of a search: `max_error` bounds the error, `max_drop` the loss of `metric`, or
    `max_bytes` the size of the result, whose error is then the least.
    On tuning data the bound is divided by `margin`, since other data may be worse. `accumulation`:
    emulated accumulation of the target. `shares`: weights of outputs' errors by name: 1 by default,
    less for an output with a larger budget of its own, 0 where the data shows nothing.
    """

    max_error: float | None
    margin: float
    metric: str | Metric | None = None
    max_drop: Drop | None = None
    max_bytes: int | None = None
    accumulation: Accumulation | None = None
    shares: Mapping[str, float] = field(default_factory=dict)

    def settings(self) -> dict[str, str]:
        """The goal as settings of a plan."""
        if self.max_error is not None:
            settings = {"max_error": repr(self.max_error)}
        elif self.max_bytes is not None:
            settings = {"max_bytes": str(self.max_bytes)}
        else:
            assert self.max_drop is not None, "a goal bounds the error or the metric"
            is_named = isinstance(self.metric, str)
            name = self.metric if is_named else getattr(self.metric, "__name__", "a function")
            settings = {"metric": str(name), "max_drop": self.max_drop.text}
        settings["margin"] = repr(self.margin)
        if self.accumulation is not None and self.accumulation.kernels is None:
            sums = self.accumulation
            settings |= {"accumulate": str(sums.dtype), "tile": str(sums.tile)}
        return settings

    def bound(self, score: "RunScore") -> float:
        """The budget, in the unit of the bounded quantity."""
        if self.max_error is not None:
            return self.max_error
        assert self.max_drop is not None, "a goal bounds the error or the metric"
        return self.max_drop.allowed(score.reference or 0.0)

    def excess(self, score: "RunScore") -> float:
        """The bounded quantity over the bound, 1 if equal. Infinite if an output is broken."""
        if not math.isfinite(score.error):
            return math.inf
        figure = score.error if self.max_error is not None else score.drop or 0.0
        if figure <= 0.0:
            return 0.0
        bound = self.bound(score)
        return figure / bound if bound > 0.0 else math.inf

    def holds(self, score: "RunScore", slack: float = 1.0) -> bool:
        """Whether a score is within the bound divided by `slack`."""
        return self.excess(score) * slack <= 1.0


def margin_of(session: DataSession) -> float:
    """The margin of a search on a session's data."""
    return MARGIN_UNSEEN if session.held_out is None else _MARGIN


def read_goal(
    max_error: float | None,
    metric: str | Metric | None,
    max_drop: str | float | None,
    *,
    margin: float,
) -> Goal:
    """The budget of error or metric. Raises InputError: neither is given, or both."""
    if (max_error is None) is (metric is None):
        raise InputError(
            f"say what must hold: a budget such as {setting('max_error', 1e-3)}, or"
            f" {option('metric')} with {option('max_drop')}; not both"
        )
    if (metric is None) is not (max_drop is None):
        raise InputError(
            f"{option('metric')} and {option('max_drop')} go together:"
            f" {setting('metric', 'scores:accuracy')} {setting('max_drop', '0.5%')}"
        )
    if max_error is not None and not 0 < max_error < math.inf:
        raise InputError(f"max_error is {max_error}; give a relative error above 0, such as 1e-3")
    return Goal(
        max_error=max_error,
        margin=margin,
        metric=metric,
        max_drop=None if max_drop is None else read_drop(max_drop),
    )


@dataclass(frozen=True, slots=True)
class RunScore:
    """One run over data: the largest relative L2 error of an output; with a metric, its loss and
    the reference's value.
    """

    error: float
    drop: float | None = None
    reference: float | None = None


def score(
    evaluator: "Evaluator", goal: Goal, low: Mapping[int, DType], session: DataSession
) -> RunScore | None:
    """Run an assignment over data and measure what the goal bounds. None if the time limit comes
    after the first batch.

    Raises InputError: the metric fails.
    """
    total, is_late = ErrorSum(goal.shares), False
    tally = None if goal.metric is None else MetricTally(goal.metric)

    def in_time() -> "Iterator[Batch]":
        nonlocal is_late
        for number, batch in enumerate(session.data):
            is_late = number > 0 and not session.has_time()
            if is_late:
                return
            yield batch

    for batch, outcome in evaluator.run(low, in_time(), goal.shares, has_answers=tally is not None):
        if is_late:
            return None
        total.take(outcome.squares)
        if total.is_broken:
            return RunScore(math.inf)
        if tally is not None:
            assert outcome.answers is not None, "asked for"
            tally.add(*outcome.answers, batch.labels, batch.samples)
    if is_late:
        return None
    if tally is None:
        return RunScore(total.error)
    result = tally.result()
    return RunScore(total.error, result.drop, result.reference)


def score_one(
    evaluator: "Evaluator", shares: Mapping[str, float], low: Mapping[int, DType], batch: "Batch"
) -> RunScore:
    """Run an assignment over one batch and measure its error alone."""
    total = ErrorSum(shares)
    total.take(evaluator.run_one(low, batch, shares).squares)
    return RunScore(total.error)


def shares_of(comparison: Comparison) -> dict[str, float]:
    """Weights of outputs relative to the one that decided a comparison: by their own budgets, and 0
    for outputs that could not be judged.
    """
    shares = {}
    for output in comparison.outputs:
        is_dark = output.ruling is Ruling.UNKNOWN and not output.relative_l2.estimate <= (
            output.budget or 0.0
        )
        shares[output.name] = (
            0.0 if is_dark else comparison.verdict.budget / output.budget if output.budget else 1.0
        )
    return shares


class ScoreCache:
    """Scores by assignment, saved to a file if given, so that interrupted searches resume."""

    def __init__(self, path: Path | None, identity: Mapping[str, str]) -> None:
        """Read the file if it exists. Raises InputError: invalid, or of another search."""
        self._path, self._identity = path, dict(identity)
        self._search: tuple[str, ...] = ()
        self._scores: dict[str, RunScore] = {}
        if path is not None and path.exists():
            self._scores = _read_scores(path, self._identity)

    @classmethod
    def of(cls, session: DataSession, graph: Graph, settings: Mapping[str, str]) -> Self:
        """The scores in a session's file, of searches with these settings. Errors as in
        `__init__`.
        """
        data = session.data
        files = hashlib.sha256(" ".join(data.content).encode()).hexdigest()[:32]
        identity = {"model": graph.content, "data": data.name, "content of its data": files}
        return cls(session.files.scores, {**identity, **settings})

    def within(self, search: str) -> "ScoreCache":
        """The same memory for one of several searches, whose runs have separate keys."""
        other = copy.copy(self)
        other._search = (*self._search, search)
        return other

    def knows(self, part: str, low_nodes: Collection[str]) -> bool:
        """Whether the score of these low nodes on a part of the data is stored."""
        return self._key(part, low_nodes) in self._scores

    def known(self, part: str, low_nodes: Collection[str]) -> RunScore:
        """A score that is stored."""
        return self._scores[self._key(part, low_nodes)]

    def score(
        self, part: str, low_nodes: Collection[str], compute: Callable[[], RunScore]
    ) -> RunScore:
        """The score of these low nodes on a part of the data, computed if it is not stored."""
        result = self.try_score(part, low_nodes, compute)
        assert result is not None, "it is computed to its end"
        return result

    def try_score(
        self, part: str, low_nodes: Collection[str], compute: Callable[[], RunScore | None]
    ) -> RunScore | None:
        """As `score`; None, and nothing stored, if `compute` returned None."""
        key = self._key(part, low_nodes)
        if key not in self._scores:
            computed = compute()
            if computed is None:
                return None
            self._scores[key] = computed
            self._save()
        return self._scores[key]

    def _key(self, part: str, low_nodes: Collection[str]) -> str:
        text = json.dumps([*self._search, part, sorted(low_nodes)])
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def _save(self) -> None:
        if self._path is None:
            return
        scores = {
            key: [_spell(s.error), _spell(s.drop), _spell(s.reference)]
            for key, s in self._scores.items()
        }
        write_state(self._path, _SCORES, {"of": self._identity, "scores": scores}, {})


def _spell(number: float | None) -> str | None:
    """A number as text, since JSON has no infinity."""
    return None if number is None else repr(number)


def _read(text: str | None) -> float | None:
    return None if text is None else float(text)


def _read_scores(path: Path, identity: Mapping[str, str]) -> dict[str, RunScore]:
    """Read stored scores. Raises InputError: invalid, or of another search."""
    with open_state(path, _SCORES) as saved:
        with saved.reviving():
            of = dict(saved.document["of"])
            scores = {
                str(key): RunScore(float(error), _read(drop), _read(reference))
                for key, (error, drop, reference) in saved.document["scores"].items()
            }
        if of != dict(identity):
            changed = (name for name in identity if of.get(name) != identity[name])
            saved.check_same(f"a search with another {next(changed, 'something')}")
        return scores
