"""Sensitivity of weights to storage in low-bit blocks: the output error that each way to store a
weight causes.

A weight is run once in its coarsest storage: the squared output error over the squared local error,
that of its own products, is its amplification. It serves every other storage, whose local error is
computed without a run of the model. Local errors are taken on a sample of what the products read,
as errors of the elements alone rank weights worse than chance.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.contracts.executor import Team, crew_at_work, in_turn
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Answers, WeightTrials
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, size_bits
from mezzo.formats.rounding import Floats
from mezzo.formats.weight_grid import WeightGrid
from mezzo.io.rounded_weights import digest_elements
from mezzo.ir.graph import Graph
from mezzo.ir.weight_reads import TABLE_LOOKUP, weight_reads
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.planner.choices.block_weights import USUAL_ROUNDING, BlockWeight
from mezzo.plugins.discovery import rounding
from mezzo.quantize.arithmetic.gptq import round_blocks
from mezzo.tables.block_kernels import BlockKernel
from mezzo.tuning.goals import RunScore, ScoreCache
from mezzo.tuning.storage.gptq_inputs import GptqInputs
from mezzo.tuning.storage.weight_probes import WeightProbe, WeightProbes

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.numerics.data.datasets import Batch

GPTQ = "gptq"
# GPTQ is worth its time for weights of few bits.
_GPTQ_BITS = 4
# Where it is a choice, activations are rounded up to this factor of the weight's squared error.
_MOST_OF_ROUNDING = 1.25
# Rows of a product's input, and outputs of it, that its local error is taken on.
_ROWS, _OUTPUTS = 256, 512


@dataclass(frozen=True, slots=True)
class BlockOption:
    """One way to store a weight. `storage`: None for floats. `size_bytes`: with scales and zero
    points. `square`: the squared relative output error that it is predicted to cause;
    `of_rounding`: the part of it that comes from activations, which the kernel rounds.
    """

    storage: BlockStorage | None
    size_bytes: int
    square: float
    of_rounding: float = 0.0


class LocalSquares(NamedTuple):
    """Squared error of a weight's products: of its storage alone, and with that of the activations
    which the kernel rounds.
    """

    of_weight: float
    of_both: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeight:
    """A weight with its options, floats first. `amplification`: squared output error over squared
    local error; infinite if its run breaks an output.
    """

    name: str
    value: int
    amplification: float
    options: tuple[BlockOption, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCandidates:
    """The ways to store one weight. `fast_at_level_0`: bits for which all readers have fast kernels
    that do not round activations.
    """

    weight: BlockWeight
    storages: tuple[BlockStorage, ...]
    fast_at_level_0: frozenset[int] = frozenset()


class KeptWeight(NamedTuple):
    """A weight's elements as blocks hold them; `grid`: of those that GPTQ has rounded."""

    elements: Floats
    grid: WeightGrid | None


class BlockProber:
    """Runs a model with some weights in blocks, and measures the errors of its outputs."""

    def __init__(
        self,
        model: "Model",
        version: int | None,
        candidates: Sequence[BlockCandidates],
        shares: Mapping[str, float],
        learned: "Callable[[], Iterable[Batch]]",
    ) -> None:
        """`version`: at which the model is read. `shares`: weights of outputs' errors. `learned`:
        data for GPTQ, that no local error is taken on.
        """
        reading = model.read(HIGH, version=version)
        self.graph: Graph = reading.graph
        self._model, self._version = model, version
        self._shares, lab = shares, lab_of(model)
        self._read = {
            each.weight.value: self._reads(each.weight.rows, each.weight.value)
            for each in candidates
        }
        self._trials: WeightTrials = lab.weight_trials(reading, [*self._read])
        shown = sorted({v for reads in self._read.values() for v, _ in reads if v is not None})
        self._observe = lab.observer(model.read(HIGH, version=version), shown)
        self._kept: dict[str, Answers] = {}
        # One product reads it, in few bits.
        alone = {
            each.weight.value: self._read[each.weight.value][0]
            for each in candidates
            if len(self._read[each.weight.value]) == 1
            and any(storage.bits <= _GPTQ_BITS for storage in each.storages)
        }
        widths = {
            read: self._trials.weight(weight).shape[row.axis]
            for weight, (read, row) in alone.items()
            if read is not None
        }
        self._inputs = GptqInputs(lab, lambda: model.read(HIGH, version=version), widths, learned)

    def _reads(
        self, rows: Sequence[BlockKernel], value: int
    ) -> list[tuple[int | None, BlockKernel]]:
        """For each read of a weight: the value that it is multiplied with; None if it is looked up
        in.
        """
        reads: list[tuple[int | None, BlockKernel]] = []
        for (use, _), row in zip(weight_reads(self.graph, value), rows, strict=True):
            node = self.graph.nodes[use.node]
            reads.append((node.inputs[1 - use.operand] if row.op != TABLE_LOOKUP else None, row))
        return reads

    def takes_gptq(self, weight: int, storage: BlockStorage) -> bool:
        """Whether GPTQ can round a weight to a storage: of few bits, read by one product, with
        data of its input.
        """
        (read, _), *others = self._read[weight]
        return (
            storage.bits <= _GPTQ_BITS
            and not others
            and read is not None
            and read in self._inputs
            and self._inputs.feedback(read) is not None
        )

    def sample(self, batches: "Iterable[Batch]") -> dict[int, Floats]:
        """Rows of what the products read on some batches, at most `_ROWS`, by value id."""
        found: dict[int, list[Floats]] = {}
        for batch in batches:
            for value, numbers in self._observe(batch.feeds):
                rows = numbers.reshape(-1, numbers.shape[-1])
                found.setdefault(value, []).append(rows[_spread(len(rows), _ROWS)].copy())
        return {
            value: (whole := np.concatenate(parts))[_spread(len(whole), _ROWS)]
            for value, parts in found.items()
        }

    def local_squares(
        self, weight: int, storages: Sequence[BlockStorage], sampled: Mapping[int, Floats]
    ) -> list[LocalSquares]:
        """For each storage, squared errors of some outputs of a weight's products relative to them,
        summed over its readers.
        """
        reads = self._read[weight]
        (_, row), *_ = reads
        given = self._trials.weight(weight)
        # Blocks follow each other along one axis, and all of them at some places of the other.
        axis = row.axis % given.ndim
        given = np.take(given, _spread(given.shape[1 - axis], _OUTPUTS), 1 - axis)
        turned = given.T if axis else given
        wholes = [None if read is None else sampled[read] @ turned for read, _ in reads]
        squares = []
        for storage in storages:
            stored = self._stored(weight, given, storage)
            found = stored.T if axis else stored
            of_weight = of_both = 0.0
            for (read, _), whole in zip(reads, wholes, strict=True):
                if read is None or whole is None:
                    share = _ratio(_squared(found - turned), _squared(turned))
                    of_weight, of_both = of_weight + share, of_both + share
                    continue
                rows = sampled[read]
                wrong = rows @ (found - turned)
                of_weight += _ratio(_squared(wrong), _squared(whole))
                if storage.rounded_activations:
                    wrong = round_activations(rows, storage.rounded_activations) @ found - whole
                of_both += _ratio(_squared(wrong), _squared(whole))
            squares.append(LocalSquares(of_weight, of_both))
        return squares

    def dequantized(self, weight: int, storage: BlockStorage) -> Floats:
        """A weight's elements as blocks hold them."""
        return self._stored(weight, self._trials.weight(weight), storage)

    def kept(self, weight: int, storage: BlockStorage) -> KeptWeight:
        """The same, outside of memory if the model is so, with the grid of GPTQ."""
        keep, numbers = self._trials.keep, self._trials.weight(weight)
        if storage.rounding != GPTQ:
            return KeptWeight(keep(self._trials.dequantized(numbers, storage)), None)
        elements, grid = self._rounded(weight, numbers, storage)
        zeros = None if grid.zero_points is None else keep(grid.zero_points)
        grid = replace(grid, scales=keep(grid.scales), zero_points=zeros)
        return KeptWeight(keep(elements), grid)

    def source_of(self, weight: int) -> str:
        """The digest of a weight's elements in the model."""
        return digest_elements(self._trials.weight(weight))

    def _stored(self, weight: int, numbers: Floats, storage: BlockStorage) -> Floats:
        """Some of a weight's elements, whole along the axis of blocks, as blocks hold them."""
        if storage.rounding != GPTQ:
            return self._trials.dequantized(numbers, storage)
        return self._rounded(weight, numbers, storage)[0]

    def _rounded(
        self, weight: int, numbers: Floats, storage: BlockStorage
    ) -> tuple[Floats, WeightGrid]:
        """The same by GPTQ, with its scales and zero points."""
        ((read, _),) = self._read[weight]
        feedback = None if read is None else self._inputs.feedback(read)
        assert feedback is not None, "a product reads it, and the data shows it"
        turned = numbers.T if storage.axis == 1 else numbers
        rounded = round_blocks(turned, feedback, storage, rounding(USUAL_ROUNDING))
        stored = np.empty(turned.shape, np.float32)
        for number, zero in enumerate(rounded.zero_points):
            rows = slice(number * storage.block, (number + 1) * storage.block)
            steps = (rounded.integers[rows] - zero).astype(np.float32)
            stored[rows] = steps * rounded.scales[number]
        scales, zeros = rounded.scales, rounded.zero_points.astype(np.uint8)
        if storage.axis == 1:
            stored, scales, zeros = stored.T, scales.T, zeros.T
        grid = WeightGrid(
            storage=storage,
            shape=numbers.shape,
            scales=np.ascontiguousarray(scales),
            zero_points=None if storage.is_symmetric else np.ascontiguousarray(zeros),
        )
        return np.ascontiguousarray(stored), grid

    def count_outputs(self, batch: "Batch") -> int:
        """The number of elements of all outputs on a batch."""
        outputs = self._trials.run(batch.feeds, {}).values()
        return sum(int(getattr(output, "size", 0)) for output in outputs)

    def error(self, batches: "Iterable[Batch]", exchanged: Mapping[int, Floats]) -> float:
        """The largest relative L2 error of an output with these elements in place of weights."""
        total = ErrorSum(self._shares)
        for batch in batches:
            reference = self._trials.run(batch.feeds, {})
            total.add(reference, self._trials.run(batch.feeds, exchanged))
            if total.is_broken:
                return math.inf
        return total.error

    def probes(self, batches: "Sequence[Batch]") -> Team[WeightProbe, float]:
        """Runs of single weights, by the executor at work."""
        job = WeightProbes(
            fingerprint=self.graph.fingerprint,
            version=self._version,
            values=tuple(self._read),
            feeds=tuple(batch.feeds for batch in batches),
            shares=dict(self._shares),
        )
        return crew_at_work().team(job, lambda: [self._model], lambda: job.on(self._trials))


def measure_weights(
    prober: BlockProber,
    candidates: Sequence[BlockCandidates],
    batches: "Sequence[Batch]",
    sampled: Mapping[int, Floats],
    scores: ScoreCache,
    may_go_on: Callable[[], bool],
    report: Callable[[int], None],
) -> tuple[StoredWeight, ...]:
    """Measure the amplification of each weight, one run each, and predict every option's error.

    Weights that no time is left for stay in floats. `sampled`: `prober.sample` of the batches.
    `scores` has the runs of an interrupted search;
    `report` receives how many weights are measured.
    """
    local: dict[int, list[LocalSquares]] = {}

    def probes() -> Iterator[WeightProbe]:
        for number, each in enumerate(_as_read(prober.graph, candidates), 1):
            if not may_go_on():
                return
            report(number)
            value = each.weight.value
            local[value] = prober.local_squares(value, each.storages, sampled)
            worst = _worst(local[value])
            probe = WeightProbe(value, each.storages[worst])
            is_known = scores.knows("sensitivity", [_key(each, worst)])
            if local[value][worst].of_weight > 0.0 and not is_known:
                yield probe

    by_value = {each.weight.value: each for each in candidates}
    for probe, error in in_turn(prober.probes(batches), probes()):
        each = by_value[probe.value]
        key = _key(each, each.storages.index(probe.storage))
        scores.score("sensitivity", [key], partial(RunScore, error))
    return tuple(
        _amplified(each, local[each.weight.value], scores)
        if each.weight.value in local
        else _stored_weight(each, math.inf, (), ())
        for each in candidates
    )


def _as_read(graph: Graph, candidates: Sequence[BlockCandidates]) -> list[BlockCandidates]:
    """The candidates in the order in which the model reads them."""
    return sorted(
        candidates, key=lambda each: min(use.node for use in graph.uses[each.weight.value])
    )


def _worst(local: Sequence[LocalSquares]) -> int:
    return max(range(len(local)), key=lambda at: local[at].of_weight)


def _key(candidate: BlockCandidates, storage: int) -> str:
    return f"{candidate.weight.name}: {candidate.storages[storage]}"


def _amplified(
    candidate: BlockCandidates, local: Sequence[LocalSquares], scores: ScoreCache
) -> StoredWeight:
    worst, amplification = _worst(local), 0.0
    if local[worst].of_weight > 0.0:
        error = scores.known("sensitivity", [_key(candidate, worst)]).error
        amplification = error**2 / local[worst].of_weight
    return _stored_weight(candidate, amplification, candidate.storages, local)


def offer_gptq(
    prober: BlockProber,
    weights: Sequence[StoredWeight],
    sampled: Mapping[int, Floats],
    may_go_on: Callable[[], bool],
    report: Callable[[int], None],
) -> tuple[StoredWeight, ...]:
    """The weights with options rounded by GPTQ, where data that it has not seen has a smaller
    error. `report` receives how many are done.
    """
    result = []
    for number, weight in enumerate(weights, 1):
        report(number)
        options = list(weight.options)
        places = [
            place
            for place, option in enumerate(options)
            if option.storage is not None and 0.0 < option.square < math.inf
            if may_go_on() and prober.takes_gptq(weight.value, option.storage)
        ]
        by_gptq = [replace(_storage(options[place]), rounding=GPTQ) for place in places]
        local = prober.local_squares(weight.value, by_gptq, sampled) if by_gptq else []
        for place, storage, squares in zip(places, by_gptq, local, strict=True):
            option = _option(storage, options[place].size_bytes, weight.amplification, squares)
            if option.square < options[place].square:
                options[place] = option
        result.append(replace(weight, options=tuple(options)))
    return tuple(result)


def _storage(option: BlockOption) -> BlockStorage:
    assert option.storage is not None, "of no floats"
    return option.storage


def _stored_weight(
    candidate: BlockCandidates,
    amplification: float,
    storages: Sequence[BlockStorage],
    local: Sequence[LocalSquares],
) -> StoredWeight:
    weight = candidate.weight
    floats = BlockOption(None, weight.elements * size_bits(HIGH) // 8, 0.0)
    stored = []
    for storage, squares in zip(storages, local, strict=True):
        is_coarse = squares.of_both > _MOST_OF_ROUNDING * squares.of_weight
        if is_coarse and storage.accuracy_level and storage.bits in candidate.fast_at_level_0:
            storage = replace(storage, accuracy_level=0)
            squares = LocalSquares(squares.of_weight, squares.of_weight)
        stored.append(_option(storage, weight.size_bytes(storage), amplification, squares))
    return StoredWeight(
        name=weight.name,
        value=weight.value,
        amplification=amplification,
        options=(floats, *stored),
    )


def _option(
    storage: BlockStorage, size_bytes: int, amplification: float, squares: LocalSquares
) -> BlockOption:
    return BlockOption(
        storage,
        size_bytes,
        amplification * squares.of_both,
        amplification * (squares.of_both - squares.of_weight),
    )


def _spread(count: int, most: int) -> "npt.NDArray[np.intp]":
    """All positions, or `most` of them, evenly spread."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).astype(np.intp)


def round_activations(rows: Floats, block: int) -> Floats:
    """A product's input as kernels round it: to INT8 by blocks of a row, at a scale of their
    largest magnitude over 127.
    """
    count = -(-rows.shape[1] // block)
    padded = np.zeros((len(rows), count * block), np.float32)
    padded[:, : rows.shape[1]] = rows
    blocks = padded.reshape(len(rows), count, block)
    scales = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)
    scales[scales == 0.0] = 1.0
    rounded: Floats = (np.rint(blocks / scales) * scales).reshape(len(rows), -1)
    return rounded[:, : rows.shape[1]]


def _squared(numbers: Floats) -> float:
    return float(np.square(numbers, dtype=np.float64).sum())


def _ratio(wrong: float, whole: float) -> float:
    return 0.0 if wrong == 0.0 else wrong / whole if whole > 0.0 else math.inf
