"""Range observers: minimum, maximum, non-finite flags and samples of all float values in a run."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import fx

from mezzo.aten.lab.runner import AtenRunner, wide
from mezzo.aten.program import TORCH_DTYPES
from mezzo.aten.read.read import TorchReading
from mezzo.contracts.lab import Feeds, MeasuredValue, Records
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind


class AtenInstruments:
    """An instrumented program with rounded low-precision results. Skips weights and FP64 values."""

    skipped: tuple[str, ...] = ()

    def __init__(self, reading: TorchReading) -> None:
        graph = reading.graph
        facts = repr([(value, *graph.constants[value]) for value in sorted(graph.constants)])
        self.fingerprint = hashlib.sha256(f"{graph.fingerprint} {facts}".encode()).hexdigest()[:32]
        self._runner = AtenRunner(reading.program, wide())
        measured_holders = {
            holder: number
            for number, holder in enumerate(reading.holders)
            if holder is not None and _is_measured(graph, number, holder)
        }
        measured = list(measured_holders.values())
        self._records = {holder: position for position, holder in enumerate(measured_holders)}
        self.size = len(measured)
        self.elements = sum(graph.values[number].elements for number in measured)
        self.values = tuple(
            MeasuredValue(position, value.name, maker.name, maker.op)
            for position, value in enumerate(graph.values[number] for number in measured)
            for maker in (graph.nodes[value.producer],)
        )

    def run(self, feeds: Feeds, draw: int, sample: int) -> Records:
        rng = np.random.default_rng(draw)
        # Kept below 1 so that length * share stays below the length.
        shares = (np.arange(sample, dtype=np.float64) + rng.random(sample)) / sample * (1 - 1e-9)
        gathering = _Gathering(self._records, torch.from_numpy(shares))
        self._runner.run(feeds, gathering.watch)
        return gathering.gathered()


class _Extremes(NamedTuple):
    lowest: float
    highest: float
    has_nan: bool
    has_infinity: bool


class _Gathering:
    """The records of one run."""

    def __init__(self, records: Mapping[fx.Node, int], shares: torch.Tensor) -> None:
        self.records, self.shares = records, shares
        self.places: list[int] = []
        self.extremes: list[_Extremes] = []
        self.counts: list[int] = []
        self.samples: list[npt.NDArray[np.float32]] = []

    def watch(self, node: fx.Node, numbers: torch.Tensor) -> None:
        record = self.records.get(node)
        if record is None:
            return
        flat = numbers.detach().reshape(-1)
        self.places.append(record)
        self.extremes.append(_measure(flat))
        self.counts.append(flat.numel())
        sample = flat
        if flat.numel() > len(self.shares):
            sample = flat[(self.shares * flat.numel()).to(torch.int64).to(flat.device)]
        self.samples.append(np.array(sample.cpu().numpy(), np.float32))

    def gathered(self) -> Records:
        columns = list(zip(*self.extremes, strict=True)) or [()] * 4
        return Records(
            values=np.array(self.places, np.int64),
            lowest=np.array(columns[0], np.float32),
            highest=np.array(columns[1], np.float32),
            has_nan=np.array(columns[2], np.bool_),
            has_infinity=np.array(columns[3], np.bool_),
            counts=np.array(self.counts, np.int64),
            lengths=np.array([len(each) for each in self.samples], np.int64),
            samples=np.concatenate([np.zeros(0, np.float32), *self.samples]),
        )


def _measure(flat: torch.Tensor) -> _Extremes:
    if not flat.numel():
        return _Extremes(np.inf, -np.inf, False, False)
    lowest, highest = (float(end) for end in torch.aminmax(flat))
    if np.isfinite(lowest) and np.isfinite(highest):
        return _Extremes(lowest, highest, False, False)
    has_nan, has_infinity = bool(flat.isnan().any()), bool(flat.isinf().any())
    finite = flat[flat.isfinite()]
    if not finite.numel():
        return _Extremes(np.inf, -np.inf, has_nan, has_infinity)
    lowest, highest = (float(end) for end in torch.aminmax(finite))
    return _Extremes(lowest, highest, has_nan, has_infinity)


def _is_measured(graph: Graph, number: int, holder: fx.Node) -> bool:
    dtype = holder.meta["val"].dtype
    is_float = dtype.is_floating_point and dtype in TORCH_DTYPES and dtype is not torch.float64
    return is_float and graph.nodes[graph.values[number].producer].kind is not Kind.SOURCE
