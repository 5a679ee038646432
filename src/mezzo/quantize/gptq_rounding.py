"""GPTQ rounding of a model's weights, with scales of the least weighted error, verified layer by
layer on held-out data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.contracts.calibrator import Grid
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.reading import Reading
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.numerics.data.datasets import Dataset
from mezzo.planner.options import Options
from mezzo.quantize.arithmetic.arithmetic import round_trip
from mezzo.quantize.arithmetic.gptq import turned_weights, weighted_scales
from mezzo.quantize.arithmetic.products import Floats, InputMoments, Product
from mezzo.quantize.arithmetic.weights import weight_grid
from mezzo.quantize.calibration import add_offsets
from mezzo.quantize.paired_error_test import Errors
from mezzo.quantize.product_layouts import weight_of

# Limit on the size of a second-moment matrix: more inputs are split into blocks.
_BLOCK = 2048
# Limit on the FP32 size of all moments in one pass over the data.
_MOST_BYTES = 1 << 28
# Rows taken per batch, and rows per layer after which it is complete: a multiple of its inputs,
# with a minimum.
_ROWS_PER_BATCH, _ROWS, _FEWEST_ROWS = 1024, 8, 16384
# Rows per sample on which a layer is verified.
_ROWS_PER_SAMPLE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A weight with a single reader, as value ids; `summed`: number of inputs per output;
    `may_clip`: its scales may be smaller than its range needs.
    """

    name: str
    weight: int
    data: int
    product: Product
    grid: Grid
    may_clip: bool
    groups: int
    summed: int

    @property
    def size_bytes(self) -> int:
        blocks = -(-self.summed // _BLOCK)
        return 4 * self.groups * blocks * (-(-self.summed // blocks)) ** 2

    def new_moments(self) -> InputMoments:
        return InputMoments(block=_BLOCK, most=max(_ROWS * self.summed, _FEWEST_ROWS))


class Turned(NamedTuple):
    """Options with GPTQ rounding, the number of candidate layers, and of improved ones."""

    options: Options
    products: int
    nearer: int


def with_turned_weights(
    model: Model, options: Options, seen: Dataset, unseen: Dataset
) -> Turned | None:
    """The options with GPTQ-rounded weights, fitted on `seen`, for layers whose error on `unseen`
    is significantly smaller. None if there is no such layer.

    Raises InputError: the data does not fit the model.
    """
    reading, judged = judge_model(model, options)
    assert judged.quantizing is not None and options.planning.quantized is not None, (
        "asked once values have parameters"
    )
    graph, units, before = reading.graph, judged.quantizing.units, options.planning.quantized
    jobs, parameters, improved = [*_jobs(graph, units, before)], dict(before), 0
    for part in _in_passes(jobs):
        moments = _collect(model, reading, part, seen)
        part = [job for job in part if moments[job.data, job.product].count]
        numbers = dict(model.weights(reading, [job.weight for job in part]))
        for job in part:
            if not job.may_clip:
                continue
            layer_moments = moments[job.data, job.product]
            parameters[job.name] = weighted_scales(
                numbers[job.weight], parameters[job.name], job.grid, job.product, layer_moments
            )
        add_offsets(model, reading, units, parameters)
        for job in part:
            layer_moments = moments[job.data, job.product]
            bits = turned_weights(
                numbers[job.weight], parameters[job.name], job.grid, job.product, layer_moments
            )
            parameters[job.name] = replace(parameters[job.name], turned=bits)
        del moments
        nearer = _nearer(model, reading, part, numbers, before, parameters, unseen)
        improved += len(nearer)
        parameters |= {job.name: before[job.name] for job in part if job.name not in nearer}
    if not improved:
        return None
    add_offsets(model, reading, units, parameters)
    return Turned(
        replace(options, planning=replace(options.planning, quantized=parameters)),
        len(jobs),
        improved,
    )


def _nearer(
    model: Model,
    planned: Reading,
    jobs: Sequence[_Job],
    numbers: Mapping[int, Floats],
    before: Mapping[str, Quantization],
    after: Mapping[str, Quantization],
    dataset: Dataset,
) -> set[str]:
    """Names of weights whose layer, on float inputs, is significantly better with `after`."""
    off = {
        job.name: [
            job.product.columns(
                round_trip(numbers[job.weight], how[job.name]) - numbers[job.weight]
            )
            for how in (before, after)
        ]
        for job in jobs
    }
    squares: dict[str, tuple[list[float], list[float]]] = {job.name: ([], []) for job in jobs}
    readers: dict[int, list[_Job]] = {}
    for job in jobs:
        readers.setdefault(job.data, []).append(job)
    show = lab_of(model).observer(model.read(*planned.lows, version=planned.version), [*readers])
    for batch in dataset:
        for shown in show(batch.feeds):
            is_cut = shown.numbers.ndim > 1 and len(shown.numbers) == batch.samples
            for sample in np.split(shown.numbers, batch.samples) if is_cut else [shown.numbers]:
                for job in readers[shown.value] if sample.size else ():
                    rows = job.product.rows(sample, _ROWS_PER_SAMPLE)
                    for sample_errors, error in zip(squares[job.name], off[job.name], strict=True):
                        sample_errors.append(float(np.square(rows @ error, dtype=np.float64).sum()))
    return {
        name
        for name, (was, now) in squares.items()
        if Errors(np.array(was)).falls_to(Errors(np.array(now)))
    }


def _jobs(
    graph: Graph, units: Sequence[QuantizedUnit], quantized: Mapping[str, Quantization]
) -> Iterator[_Job]:
    """The weights of units that have no other reader, each with its layer's input."""
    for unit in units:
        node = graph.nodes[unit.nodes[0]]
        by_kind = {read.operand.is_weight: read for read in unit.reads}
        layout = weight_of(graph, node)
        if node.scope or len(unit.reads) != 2 or by_kind.keys() != {True, False} or layout is None:
            continue
        (weight, product), data = layout, by_kind[False].value
        shape = graph.shapes.get(weight)
        if (
            by_kind[True].value != weight
            or shape is None
            or len(graph.uses[weight]) != 1
            or weight in graph.shared
            or not _is_known(graph, quantized, weight, data)
        ):
            continue
        groups, summed, _ = product.columns(
            np.broadcast_to(np.float32(0), [size or 1 for size in shape])
        ).shape
        operand = by_kind[True].operand
        yield _Job(
            name=graph.values[weight].name,
            weight=weight,
            data=data,
            product=product,
            grid=weight_grid(operand),
            may_clip=not operand.in_pairs,
            groups=groups,
            summed=summed,
        )


def _is_known(graph: Graph, quantized: Mapping[str, Quantization], weight: int, data: int) -> bool:
    is_known = all(graph.values[value].name in quantized for value in (weight, data))
    return is_known and graph.values[weight].scope == graph.values[data].scope == 0


def _in_passes(jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
    """Groups of weights whose moments fit in memory together."""
    part: list[_Job] = []
    for job in jobs:
        if part and sum(pending.size_bytes for pending in (*part, job)) > _MOST_BYTES:
            yield part
            part = []
        part.append(job)
    yield part


def _collect(
    model: Model, planned: Reading, jobs: Sequence[_Job], dataset: Dataset
) -> dict[tuple[int, Product], InputMoments]:
    """Second moments of layer inputs on the data, until there are enough."""
    moments = {(job.data, job.product): job.new_moments() for job in jobs}
    products: dict[int, list[Product]] = {}
    for value, product in moments:
        products.setdefault(value, []).append(product)
    show = lab_of(model).observer(model.read(*planned.lows, version=planned.version), [*products])
    for batch in dataset:
        if model.progress is not None:
            model.progress("correcting", 0, 0)
        for shown in show(batch.feeds):
            for product in products[shown.value]:
                layer_moments = moments[shown.value, product]
                if shown.numbers.size and not layer_moments.is_full:
                    layer_moments.add(product.rows(shown.numbers, _ROWS_PER_BATCH))
        if all(layer_moments.is_full for layer_moments in moments.values()):
            break
    return moments
