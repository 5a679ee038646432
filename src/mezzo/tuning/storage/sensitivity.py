"""Sensitivity of weights to storage in low-bit blocks: the output error that each way to store a
weight causes.

A weight is run once in its coarsest storage: the squared output error over the squared local error,
that of its own products, is its amplification. It serves every other storage, whose local error is
computed without a run of the model. Local errors are taken on a sample of what the products read,
as errors of the elements alone rank weights worse than chance.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.common.memory import current_memory_limit
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Answers, WeightTrials
from mezzo.formats.block_storage import ROUNDS_ACTIVATIONS, BlockStorage
from mezzo.formats.dtypes import HIGH, size_bits
from mezzo.ir.graph import Graph
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.planner.choices.block_weights import USUAL_ROUNDING, BlockWeight
from mezzo.plugins.discovery import rounding
from mezzo.quantize.arithmetic.gptq import round_blocks
from mezzo.tables.block_kernels import BlockKernel

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.numerics.data.datasets import Batch

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

GPTQ = "gptq"
# GPTQ is worth its time for weights of few bits; limit on the size of all moments.
_GPTQ_BITS, _MOST_MOMENT_BYTES = 4, 1 << 31
# Rows of a product's input that its local error is taken on.
_ROWS = 256


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
    """The ways to store one weight, and what its readers are. `rows`: a kernel for each use."""

    weight: BlockWeight
    storages: tuple[BlockStorage, ...]


class BlockProber:
    """Runs a model with some weights in blocks, and measures the errors of its outputs."""

    def __init__(
        self,
        model: "Model",
        version: int | None,
        candidates: Sequence[BlockCandidates],
        shares: Mapping[str, float],
    ) -> None:
        """`version`: at which the model is read. `shares`: weights of outputs' errors."""
        reading = model.read(HIGH, version)
        self.graph: Graph = reading.graph
        self._candidates, self._shares = candidates, shares
        values = [each.weight.value for each in candidates]
        lab = lab_of(model)
        self._read = {
            each.weight.value: self._reads(each.weight.rows, each.weight.value)
            for each in candidates
        }
        self._trials: WeightTrials = lab.weight_trials(reading, values)
        shown = sorted({v for reads in self._read.values() for v, _ in reads if v is not None})
        self._observe = lab.observer(model.read(HIGH, version), shown)
        self._kept: dict[str, Answers] = {}
        self._moments: dict[int, Doubles] = {}  # second moments of what products read, by value

    def _reads(
        self, rows: Sequence[BlockKernel], value: int
    ) -> list[tuple[int | None, BlockKernel]]:
        """For each use of a weight: the value that it is multiplied with; None if it is looked up
        in.
        """
        reads: list[tuple[int | None, BlockKernel]] = []
        for use, row in zip(self.graph.uses[value], rows, strict=True):
            node = self.graph.nodes[use.node]
            reads.append((node.inputs[1 - use.operand] if row.op != "Gather" else None, row))
        return reads

    def learn(self, batches: "Iterable[Batch]") -> None:
        """Collect second moments of what products read, for GPTQ, on data that no local error is
        taken on. Without enough memory for all of them there is no GPTQ.
        """
        widths = {
            value: self._trials.weight(weight).shape[row.axis]
            for weight, reads in self._read.items()
            for value, row in reads
            if value is not None
        }
        size_bytes = sum(8 * width**2 for width in widths.values())
        if size_bytes > current_memory_limit().share_bytes(_MOST_MOMENT_BYTES):
            return
        for batch in batches:
            for value, numbers in self._observe(batch.feeds):
                rows = numbers.reshape(-1, numbers.shape[-1]).astype(np.float64)
                self._moments.setdefault(value, np.zeros((rows.shape[1],) * 2))
                self._moments[value] += rows.T @ rows

    def takes_gptq(self, weight: int, storage: BlockStorage) -> bool:
        """Whether GPTQ can round a weight to a storage: of few bits, read by one product, with
        moments of its input.
        """
        (read, _), *others = self._read[weight]
        return storage.bits <= _GPTQ_BITS and not others and read in self._moments

    def sample(self, batches: "Iterable[Batch]") -> dict[int, Floats]:
        """Rows of what the products read on some batches, at most `_ROWS`, by value id."""
        found: dict[int, list[Floats]] = {}
        for batch in batches:
            for value, numbers in self._observe(batch.feeds):
                rows = numbers.reshape(-1, numbers.shape[-1])
                step = max(1, len(rows) // _ROWS)
                found.setdefault(value, []).append(rows[::step][:_ROWS].copy())
        return {
            value: (whole := np.concatenate(parts))[:: max(1, len(whole) // _ROWS)][:_ROWS]
            for value, parts in found.items()
        }

    def local_squares(
        self, candidate: BlockCandidates, storage: BlockStorage, sampled: Mapping[int, Floats]
    ) -> LocalSquares:
        """Squared errors of a weight's products relative to them, summed over its readers."""
        value, stored = candidate.weight.value, self.dequantized(candidate.weight.value, storage)
        given = self._trials.weight(value)
        of_weight = of_both = 0.0
        for read, row in self._read[value]:
            if read is None:
                share = _ratio(_squared(stored - given), _squared(given))
                of_weight, of_both = of_weight + share, of_both + share
                continue
            rows = sampled[read]
            turned = row.axis % given.ndim == 1  # the sum is along the weight's second axis
            right, found = (given.T, stored.T) if turned else (given, stored)
            whole = rows @ right
            wrong = rows @ (found - right)
            of_weight += _ratio(_squared(wrong), _squared(whole))
            if storage.accuracy_level == ROUNDS_ACTIVATIONS:
                wrong = round_activations(rows, storage.block) @ found - whole
            of_both += _ratio(_squared(wrong), _squared(whole))
        return LocalSquares(of_weight, of_both)

    def dequantized(self, value: int, storage: BlockStorage) -> Floats:
        """A weight's elements as blocks hold them."""
        if storage.rounding != GPTQ:
            return self._trials.dequantized(value, storage)
        ((read, _),) = self._read[value]
        assert read is not None, "a product reads it"
        weight = self._trials.weight(value)
        turned = weight.T if storage.axis == 1 else weight
        rounded = round_blocks(turned, self._moments[read], storage, rounding(USUAL_ROUNDING))
        steps = np.repeat(rounded.scales, storage.block, axis=0)[: len(turned)]
        zeros = np.repeat(rounded.zero_points, storage.block, axis=0)[: len(turned)]
        numbers = ((rounded.integers - zeros).astype(np.float32) * steps).astype(np.float32)
        return np.ascontiguousarray(numbers.T if storage.axis == 1 else numbers)

    def count_outputs(self, batch: "Batch") -> int:
        """The number of elements of all outputs on a batch."""
        outputs = self._trials.run(batch.feeds, {}).values()
        return sum(int(getattr(output, "size", 0)) for output in outputs)

    def error(
        self, batches: "Iterable[Batch]", exchanged: Mapping[int, Floats], *, keeps: bool = False
    ) -> float:
        """The largest relative L2 error of an output. `keeps`: outputs in FP32 are kept, for other
        runs of the same batches.
        """
        total = ErrorSum(self._shares)
        for batch in batches:
            reference = self._kept.get(batch.origin) if keeps else None
            if reference is None:
                reference = self._trials.run(batch.feeds, {})
                if keeps:
                    self._kept[batch.origin] = reference
            total.add(reference, self._trials.run(batch.feeds, exchanged))
            if total.is_broken:
                return math.inf
        return total.error


def measure_weights(
    prober: BlockProber,
    candidates: Sequence[BlockCandidates],
    batches: "Sequence[Batch]",
    may_go_on: Callable[[], bool],
    report: Callable[[int], None],
) -> tuple[StoredWeight, ...]:
    """Measure the amplification of each weight, one run each, and predict every option's error.

    Weights that no time is left for stay in floats.
    """
    sampled = prober.sample(batches)
    result = []
    for number, candidate in enumerate(candidates):
        options = [BlockOption(None, candidate.weight.elements * size_bits(HIGH) // 8, 0.0)]
        amplification = math.inf
        if may_go_on():
            report(number + 1)
            amplification, storages, local = _probe(prober, candidate, sampled, batches)
            options += [
                BlockOption(
                    storage,
                    storage.size_bytes(candidate.weight.shape),
                    amplification * squares.of_both,
                    amplification * (squares.of_both - squares.of_weight),
                )
                for storage, squares in zip(storages, local, strict=True)
            ]
        result.append(
            StoredWeight(
                name=candidate.weight.name,
                value=candidate.weight.value,
                amplification=amplification,
                options=tuple(options),
            )
        )
    return tuple(result)


def _probe(
    prober: BlockProber,
    candidate: BlockCandidates,
    sampled: Mapping[int, Floats],
    batches: "Sequence[Batch]",
) -> tuple[float, list[BlockStorage], list[LocalSquares]]:
    """A weight's amplification, and its storages with their local errors: by GPTQ where data that
    it has not seen has a smaller one.
    """
    storages = [*candidate.storages]
    local = [prober.local_squares(candidate, storage, sampled) for storage in storages]
    worst = max(range(len(local)), key=lambda at: local[at].of_weight)
    if local[worst].of_weight == 0.0:
        return 0.0, storages, local
    value = candidate.weight.value
    probe = prober.dequantized(value, storages[worst])
    error = prober.error(batches, {value: probe}, keeps=True)
    amplification = error**2 / local[worst].of_weight
    for at, storage in enumerate(storages):
        if prober.takes_gptq(value, storage):
            by_gptq = replace(storage, rounding=GPTQ)
            squares = prober.local_squares(candidate, by_gptq, sampled)
            if squares.of_both < local[at].of_both:
                storages[at], local[at] = by_gptq, squares
    return amplification, storages, local


def round_activations(rows: Floats, block: int) -> Floats:
    """A product's input as MatMulNBits of accuracy level 4 rounds it: to INT8 by blocks of a row,
    at a scale of their largest magnitude over 127.
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
