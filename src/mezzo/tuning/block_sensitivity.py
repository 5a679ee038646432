"""Sensitivity of weights to storage in low-bit blocks: the output error that each way to store a
weight causes.

A weight is run once in its coarsest storage: the squared output error over the squared local error,
that of its own products, is its amplification. It serves every other storage, whose local error is
computed without a run of the model. Local errors are taken on a sample of what the products read,
as errors of the elements alone rank weights worse than chance.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Answers, WeightTrials
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, size_bits
from mezzo.ir.graph import Graph
from mezzo.numerics.metrics.errors import ErrorSum
from mezzo.planner.choices.block_weights import BlockWeight
from mezzo.tables.block_kernels import BlockKernel

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.numerics.data.datasets import Batch

Floats = npt.NDArray[np.float32]

# Rows of a product's input that its local error is taken on.
_ROWS = 256


@dataclass(frozen=True, slots=True)
class BlockOption:
    """One way to store a weight. `storage`: None for floats. `size_bytes`: with scales and zero
    points; `square`: the squared relative output error that it causes, predicted or measured.
    """

    storage: BlockStorage | None
    size_bytes: int
    square: float


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

    def local_square(
        self, candidate: BlockCandidates, stored: Floats, sampled: Mapping[int, Floats]
    ) -> float:
        """Squared error of a weight's products relative to them, summed over its readers."""
        weight = candidate.weight
        given = self._trials.weight(weight.value)
        off = stored - given
        total = 0.0
        for value, row in self._read[weight.value]:
            if value is None:
                total += _ratio(np.square(off).sum(dtype=np.float64), np.square(given).sum())
                continue
            rows = sampled[value]
            turned = row.axis % given.ndim == 1  # the sum is along the weight's second axis
            wrong, whole = (rows @ (side.T if turned else side) for side in (off, given))
            total += _ratio(np.square(wrong).sum(dtype=np.float64), np.square(whole).sum())
        return total

    def dequantized(self, value: int, storage: BlockStorage) -> Floats:
        """A weight's elements as blocks hold them."""
        return self._trials.dequantized(value, storage)

    def error(
        self, batches: "Iterable[Batch]", exchanged: Mapping[int, Floats], *, keeps: bool = False
    ) -> float:
        """The largest relative L2 error of an output. `keeps`: outputs in FP32 are kept, for other
        runs of the same batches.
        """
        total = ErrorSum(self._shares)
        for batch in batches:
            reference = self._kept.get(batch.origin)
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
            amplification, squares = _probe(prober, candidate, sampled, batches)
            options += [
                BlockOption(storage, storage.size_bytes(candidate.weight.shape), square)
                for storage, square in zip(candidate.storages, squares, strict=True)
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
) -> tuple[float, list[float]]:
    """A weight's amplification, and the squared output error of each storage, in their order."""
    local: list[float] = []
    probe: Floats | None = None
    for storage in candidate.storages:
        stored = prober.dequantized(candidate.weight.value, storage)
        local.append(prober.local_square(candidate, stored, sampled))
        if local[-1] == max(local):
            probe = stored
    assert probe is not None, "a weight has ways to be stored"
    if max(local) == 0.0:
        return 0.0, local
    error = prober.error(batches, {candidate.weight.value: probe}, keeps=True)
    amplification = error**2 / max(local)
    return amplification, [amplification * square for square in local]


def _ratio(wrong: float, whole: float) -> float:
    return 0.0 if wrong == 0.0 else wrong / whole if whole > 0.0 else math.inf
