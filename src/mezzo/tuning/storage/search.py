"""Search for the storage of weights in low-bit blocks: the fewest bytes within an error budget, or
the least error within a budget of bytes.

Squared output errors of single weights add up, so the choice is a multiple-choice knapsack, solved
exactly (knapsack.py). The joint plan is then run, and the budget corrected by what was measured,
until no cheaper plan should hold.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.sizes import format_size
from mezzo.contracts.rounding import RoundedWeights
from mezzo.conversion.judged_model import judge_model
from mezzo.evaluate.data_session import DataSession, can_cut
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.io.rounded_weights import RoundedWeight, pack_weights
from mezzo.numerics.data.splits import cut
from mezzo.numerics.measures import DataSource
from mezzo.planner.choices.block_weights import (
    USUAL_ROUNDING,
    BlockWeight,
    block_weights,
    names_of,
)
from mezzo.planner.options import Options
from mezzo.planner.planner import judge, nodes_in_floats
from mezzo.tuning.goals import ScoreCache
from mezzo.tuning.storage.knapsack import Option, Selection, least_cost, least_error
from mezzo.tuning.storage.sensitivity import (
    BlockCandidates,
    BlockProber,
    KeptWeight,
    StoredWeight,
    measure_weights,
    offer_gptq,
)

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.ir.graph import Graph
    from mezzo.numerics.data.datasets import Batch

# Samples that probes run on: as many as give this many numbers, within bounds.
_PROBED_NUMBERS, _LEAST_PROBED, _MOST_PROBED = 1 << 15, 4, 256
# Tokens that probes run on where the samples are rows of text, in whole rows.
_PROBED_TOKENS = 256
# Passes over all data of the search.
_MOST_EVALUATIONS = 8
# Batches that moments for GPTQ are taken of.
_MOST_LEARNED = 256
# Sizes of blocks that are tried where a kernel has them. Larger blocks save scales alone.
_BLOCKS = (32, 64, 128)
# Settings that no run of a single weight depends on.
_OF_GOALS = frozenset({"max_error", "max_bytes", "margin"})
# A plan is settled if the next one would save less than this share of the bytes.
_WORTHWHILE = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePlan:
    """One storage for each weight, by name; those in floats are left out. `predicted`, `error`: the
    relative error of the outputs, predicted and measured on the data of the search, None if it was
    not run. `factor`: measured over predicted squares of the plan that was run before it.
    """

    in_blocks: Mapping[str, BlockStorage]
    size_bytes: int
    predicted: float
    error: float | None
    factor: float = 1.0

    @property
    def expected(self) -> float:
        """The error that was expected of it before it was run."""
        return self.predicted * math.sqrt(self.factor)


class BlockSearch:
    """Searches the storages of one model's weights."""

    def __init__(
        self,
        model: "Model",
        options: Options,
        session: DataSession,
        shares: Mapping[str, float],
        names: Collection[str] | None = None,
    ) -> None:
        """`shares`: weights of outputs' errors, as in a goal. `names`: of the weights; without
        them, those that are faster in blocks than at another level. Runs of single weights that
        the session's file has are not repeated, whatever budget they were for.
        """
        self._model, self._session = model, session
        in_floats = replace(options, planning=replace(options.planning, in_blocks={}))
        reading, judged = judge_model(model, in_floats)
        candidates = _candidates(judged.problem.graph, options, names)
        self._probed: list[Batch] = []
        self._sampled: Mapping[int, Floats] = {}
        self.prober = BlockProber(
            model,
            reading.version,
            candidates,
            shares,
            lambda: islice(self._unseen(self._probed), _MOST_LEARNED),
        )
        settings = {name: text for name, text in options.settings if name not in _OF_GOALS}
        self._scores = ScoreCache.of(session, self.prober.graph, settings)
        self.weights: tuple[StoredWeight, ...] = ()
        self._candidates, self.tried = candidates, list[StoragePlan]()
        self._batches = self._samples = 0
        # Elements of the last plan's weights: the next plan differs in few, and GPTQ takes long.
        self._stored: dict[tuple[int, BlockStorage], KeptWeight] = {}

    def probe(self) -> None:
        """Measure the sensitivity of every weight, rounded by itself."""
        self._probed = batches = _few(self._model, self._session, self.prober)
        self._sampled = self.prober.sample(batches)
        self.weights = measure_weights(
            self.prober,
            self._candidates,
            batches,
            self._sampled,
            self._scores,
            self._session.has_time,
            partial(self._report, "sensitivity"),
        )

    def round_on_data(self) -> None:
        """Offer GPTQ for the weights that were probed."""
        self.weights = offer_gptq(
            self.prober,
            self.weights,
            self._sampled,
            self._session.has_time,
            partial(self._report, "rounding on data"),
        )

    def _report(self, step: str, done: int) -> None:
        if self._model.progress is not None:
            self._model.progress(step, done, len(self._candidates))

    def predicted_within(self, max_error: float) -> StoragePlan:
        """The plan of the fewest bytes whose predicted error is at most `max_error`."""
        return self._plan(least_cost(self._items(), max_error**2), None)

    def smallest(self) -> StoragePlan:
        """The plan of the fewest bytes."""
        return self._plan(least_cost(self._items(), math.inf), None)

    def within_bytes(self, max_bytes: int, rest_bytes: int) -> StoragePlan:
        """The plan of least error with which the model takes at most `max_bytes`, of which
        `rest_bytes` are not of the weights.

        Raises InputError: none does.
        """
        selection = least_error(self._items(), max_bytes - rest_bytes)
        if selection is None:
            least = format_size(rest_bytes + self.smallest().size_bytes)
            given = f"{option('max_bytes')} is {format_size(max_bytes)}, and {self._model.name}"
            unmeasured = sum(len(weight.options) == 1 for weight in self.weights)
            if unmeasured and not self._session.has_time():
                raise InputError(
                    f"{given} takes {least} with {unmeasured} of {len(self.weights)} weights in"
                    f" floats, which {option('time_limit_s')} left no time to measure; allow more"
                    f" time, and keep what was measured with {option('resume')}"
                )
            raise InputError(
                f"{given} takes {least} in the fewest bits of {option('to')}; allow that much"
            )
        return self._plan(selection, None)

    def data_source(self) -> DataSource:
        """A record of the data of the search."""
        return self._session.data.source(self._batches, self._samples)

    def within_error(self, max_error: float) -> tuple[StoragePlan, str]:
        """The plan of fewest bytes whose measured error is at most `max_error`, and why the search
        ended. Weights in floats always hold it.
        """
        floats = self._plan(least_cost(self._items(), 0.0), 0.0)
        best, factor, bad_budget = floats, 1.0, math.inf
        for _ in range(_MOST_EVALUATIONS):
            if not self._session.has_time():
                return best, "the time limit"
            budget = min(max_error**2 / factor, bad_budget)
            selection = least_cost(self._items(), budget)
            assert selection is not None, "floats have no error"
            if selection.cost >= best.size_bytes * (1 - _WORTHWHILE):
                return best, "no plan with fewer bytes holds the budget"
            plan = self.measured(replace(self._plan(selection, None), factor=factor))
            assert plan.error is not None, "it was run"
            if plan.error <= max_error:
                best = plan
            else:
                bad_budget = min(bad_budget, plan.predicted**2) * 0.98
            if plan.predicted > 0.0 and 0.0 < plan.error < math.inf:
                factor = (plan.error / plan.predicted) ** 2
        return best, f"the limit of {_MOST_EVALUATIONS} evaluations"

    def _counted(self) -> "Iterator[Batch]":
        self._batches = self._samples = 0
        for batch in self._session.data:
            self._batches, self._samples = self._batches + 1, self._samples + batch.samples
            yield batch

    def _unseen(self, seen: "Sequence[Batch]") -> "Iterator[Batch]":
        """The data of the search without these batches, which are its first, the last one cut."""
        for number, batch in enumerate(self._session.data):
            if number >= len(seen):
                yield batch
            elif batch.samples > seen[number].samples:
                yield cut(batch, seen[number].samples, batch.samples)

    def exchanged(self, plan: StoragePlan) -> dict[str, Floats]:
        """The elements of weights that GPTQ has rounded for a plan, by value name."""
        values = self.prober.graph.values
        return {
            values[value].name: kept.elements
            for (value, _), kept in self._dequantized(plan).items()
            if kept.grid is not None
        }

    def rounded(self, plan: StoragePlan) -> RoundedWeights | None:
        """The weights that GPTQ has rounded for a plan, for its replays; None without any."""
        names = {weight.value: weight.name for weight in self.weights}
        weights = {
            names[value]: RoundedWeight(kept.grid, kept.elements, self.prober.source_of(value))
            for (value, _), kept in self._dequantized(plan).items()
            if kept.grid is not None
        }
        return pack_weights(weights) if weights else None

    def _dequantized(self, plan: StoragePlan) -> dict[tuple[int, BlockStorage], KeptWeight]:
        """The elements of a plan's weights in blocks, by value id and storage."""
        wanted = [
            (weight.value, plan.in_blocks[weight.name])
            for weight in self.weights
            if weight.name in plan.in_blocks
        ]
        known = {key: self._stored[key] for key in wanted if key in self._stored}
        self._stored = known  # let go of what this plan stores otherwise
        for key in wanted:
            if key not in known:
                known[key] = self.prober.kept(*key)
        return known

    def _items(self) -> list[list[Option]]:
        return [
            [Option(option.size_bytes, option.square) for option in weight.options]
            for weight in self.weights
        ]

    def _plan(self, selection: Selection | None, error: float | None) -> StoragePlan:
        assert selection is not None, "floats have no error"
        chosen = [
            (weight.name, weight.options[index].storage)
            for weight, index in zip(self.weights, selection.options, strict=True)
        ]
        return StoragePlan(
            in_blocks={name: storage for name, storage in chosen if storage is not None},
            size_bytes=selection.cost,
            predicted=math.sqrt(selection.error),
            error=error,
        )

    def measured(self, plan: StoragePlan) -> StoragePlan:
        """A plan with the error that it has on all data of the search."""
        stored = self._dequantized(plan).items()
        exchanged = {value: kept.elements for (value, _), kept in stored}
        if self._model.progress is not None:
            self._model.progress("evaluation", len(self.tried) + 1, _MOST_EVALUATIONS)
        # Runs with exchanged weights round no activations: what these add is as predicted.
        of_rounding = sum(
            option.of_rounding
            for weight in self.weights
            for option in weight.options
            if option.storage is not None and option.storage == plan.in_blocks.get(weight.name)
        )
        error = self.prober.error(self._counted(), exchanged)
        error = math.hypot(error, math.sqrt(max(of_rounding, 0.0)))
        plan = replace(plan, error=error)
        self.tried.append(plan)
        return plan


def _candidates(
    graph: "Graph", options: Options, names: Collection[str] | None
) -> list[BlockCandidates]:
    """The weights that may be stored in blocks, with every storage that is tried."""
    planning = options.planning
    excluded = nodes_in_floats(graph, planning)
    if names is None:
        names = names_of(graph, judge(graph, replace(planning, in_blocks=None)).problem.in_blocks)
    storages: dict[int, list[BlockStorage]] = {}
    weights: dict[int, BlockWeight] = {}
    fast_at_level_0: dict[int, set[int]] = {}
    for bits in sorted(planning.weight_bits):
        for weight in block_weights(graph, planning.target, bits, excluded):
            if weight.name not in names:
                continue
            weights.setdefault(weight.value, weight)
            if weight.is_fast_at_level_0:
                fast_at_level_0.setdefault(weight.value, set()).add(bits)
            sizes = [size for size in weight.blocks if size in _BLOCKS] or weight.blocks[:1]
            storages.setdefault(weight.value, []).extend(
                weight.storage(size, is_symmetric=False, rounding=USUAL_ROUNDING) for size in sizes
            )
    return [
        BlockCandidates(
            weight=weight,
            storages=tuple(storages[value]),
            fast_at_level_0=frozenset(fast_at_level_0.get(value, ())),
        )
        for value, weight in weights.items()
    ]


def _few(model: "Model", session: DataSession, prober: BlockProber) -> "list[Batch]":
    """The first samples of the data that probes run on; whole batches where they cannot be cut."""
    batches: list[Batch] = []
    left = _MOST_PROBED
    for batch in session.data:
        if batch.samples and not batches:
            left = _count_probed(batch, prober)
        kept = cut(batch, 0, left) if batch.samples > left and can_cut(model, batch) else batch
        batches.append(kept)
        left -= kept.samples
        if left <= 0:
            break
    return batches


def _count_probed(batch: "Batch", prober: BlockProber) -> int:
    """The number of samples to run probes on, of the kind that a batch has."""
    if batch.tokens is not None:
        return -(-_PROBED_TOKENS // int(batch.feeds[batch.tokens].shape[1]))
    per_sample = max(prober.count_outputs(batch) // batch.samples, 1)
    return min(max(-(-_PROBED_NUMBERS // per_sample), _LEAST_PROBED), _MOST_PROBED)
