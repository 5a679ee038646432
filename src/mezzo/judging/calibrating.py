"""Scales and zero points for what may be quantized: values are watched on data, and weights read one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mezzo.converting.conversion import judge_model
from mezzo.converting.results import lab_of
from mezzo.core.calibrator import Calibrator, Grid
from mezzo.core.frontend import Model
from mezzo.core.graph import Graph
from mezzo.core.quantization import Quantization
from mezzo.core.quantized_kernels import Operand
from mezzo.deciding.options import Options
from mezzo.errors import InputError
from mezzo.numerics.datasets import Dataset
from mezzo.quant.choosing import align, choose_range
from mezzo.quant.collector import Collector
from mezzo.quant.parameters import parameters_for, weight_parameters
from mezzo.units.quantized import Held, held_values
from mezzo.voices import option


def calibrate(model: Model, options: Options, dataset: Dataset, calibrator: Calibrator) -> Options:
    """The options with the parameters of every value that the target's kernels may read or make quantized.

    Raises:
        InputError: the data is at fault, or has no sample.
        ContractError: the model does not run.
    """
    reading, judged = judge_model(model, options)
    graph = reading.graph
    assert judged.units is not None, "asked where something is to be quantized"
    held = {value: how for value, how in held_values(judged.units).items() if graph.values[value].scope == 0}
    weights = [value for value, how in held.items() if how.style.is_weight]
    watched = {graph.values[value].name: value for value, how in held.items() if not how.style.is_weight}
    collector = _watch(model, options, dataset, [*watched])
    found = _of_values(collector, {name: held[value] for name, value in watched.items()}, graph, calibrator)
    for value, numbers in model.weights(reading, weights):
        style = held[value].style
        axis = style.axis if style.axis is None else style.axis % numbers.ndim
        found[graph.values[value].name] = weight_parameters(numbers, _grid(style), axis)
    return replace(options, wishes=replace(options.wishes, quantized=found))


def _watch(model: Model, options: Options, dataset: Dataset, names: Sequence[str]) -> Collector:
    """What values of the model, by name, hold on the data."""
    reading, collector = model.read(options.wishes.low), Collector()
    numbers = {value.name: number for number, value in enumerate(reading.graph.values) if value.scope == 0}
    show = lab_of(model).observer(reading, [numbers[name] for name in names if name in numbers])
    done = 0
    for batch in dataset:
        if model.progress is not None:
            model.progress("calibrating", done, 0)
        for shown in show(batch.feeds):
            collector.add(reading.graph.values[shown.value].name, shown.numbers)
        done += batch.samples
    if not done:
        raise InputError(f"{dataset.name}: has no sample, and scales come from data; give some with {option('data')}")
    return collector


def _of_values(
    collector: Collector, held: Mapping[str, Held], graph: Graph, calibrator: Calibrator
) -> dict[str, Quantization]:
    """The parameters of values that were watched; those of a group share theirs. What was never seen gets none."""
    ranges = {}
    for name, how in held.items():
        chosen = choose_range(calibrator, collector.summary(name), _grid(how.style)) if name in collector.names else None
        if chosen is not None:
            ranges[name] = chosen
    groups: dict[int, list[str]] = {}
    for name, how in held.items():
        groups.setdefault(how.group, []).append(name)
    aligned = align(ranges, groups.values())
    return {name: parameters_for(held_range, _grid(held[name].style)) for name, held_range in aligned.items()}


def _grid(style: Operand) -> Grid:
    return Grid(dtype=style.dtype, is_symmetric=style.is_symmetric, is_narrow=style.is_weight)
