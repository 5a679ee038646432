"""Scales and zero points for what may be quantized: values are watched on data, and weights read one by one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mezzo.analysis.fusion.quantized import QuantizedUnit, storage_of
from mezzo.analysis.structure import structure_rules
from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.calibrator import Calibrator, Grid, Range
from mezzo.contracts.frontend import Model
from mezzo.contracts.reading import Reading
from mezzo.conversion.fusing import fuse
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import STORED_AS, DType, integer_span
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.measures import DataSource
from mezzo.planner.choices.quantizing import name_offset
from mezzo.planner.options import Options
from mezzo.plugins.discovery import calibrators
from mezzo.quantize.arithmetic.choosing import align, choose_range
from mezzo.quantize.arithmetic.parameters import bias_parameters, guarded_weights, parameters_for
from mezzo.quantize.arithmetic.weights import weight_parameters
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.collection import collect
from mezzo.quantize.observers.collector import Collector
from mezzo.quantize.shared_scales import coarse_parts
from mezzo.tables.policy import Lifting, NamedFinding
from mezzo.tables.quantized_kernels import Operand, OutputMode

_ANY_RANGE = Range(0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What data shows of a model's values, for any calibrator to choose from; `batches` are those that it has, of which
    time may have left some out.
    """

    data: DataSource
    batches: int
    reading: Reading
    units: Sequence[QuantizedUnit]
    asked: "_Asked"
    collector: Collector


def calibrate(
    model: Model, options: Options, dataset: Dataset, calibrator: Calibrator, resume: Path | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Options:  # fmt: skip
    """The options with the parameters of every value that the target's kernels may read or make quantized. `resume`
    keeps what was collected, and is gone on from where it exists. `may_go_on` is asked before each batch but the first:
    where it may not, scales are of the batches until then, and a note says so.

    Raises:
        InputError: the data is at fault, or has no sample, or the calibrator does not suit the format.
        ContractError: the model does not run.
    """
    check_method(calibrator, options)
    watched = watch(model, options, dataset, [calibrator], resume, may_go_on)
    return choose_parameters(model, options, watched, calibrator)


def watch(
    model: Model, options: Options, dataset: Dataset, calibrators: Sequence[Calibrator], resume: Path | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Watched:  # fmt: skip
    """What values that may be quantized hold on the data; calibrators see it too. Errors are those of `calibrate`."""
    reading, judged = judge_model(model, _without_suspicions(options))
    assert judged.quantizing is not None, "asked where something is to be quantized"
    asked = _asked(reading.graph, judged.quantizing.units)
    held = collect(model, reading, dataset, [*asked.operands], calibrators, resume, may_go_on)
    return Watched(
        data=held.data, batches=held.batches, reading=reading, units=judged.quantizing.units, asked=asked,
        collector=held.collector,
    )  # fmt: skip


def choose_parameters(model: Model, options: Options, watched: Watched, calibrator: Calibrator) -> Options:
    """The options with the parameters that a calibrator chooses that suits the format. Raises InputError: it fails."""
    dtype = options.planning.line.quantized_format
    assert dtype is not None, "asked where something is to be quantized"
    units, asked, coarse, ranges = watched.units, watched.asked, dict[tuple[int, ...], NamedFinding](), {}
    while True:
        ranges = _ranges(watched.collector, asked, calibrator, dtype)
        shared = align(ranges, asked.groups)
        more = coarse_parts(watched.reading.graph, units, ranges, shared) if _is_even(dtype) else {}
        if not more:
            break
        coarse |= more
        units = [unit for unit in units if unit.nodes not in coarse]
        asked = _asked(watched.reading.graph, units)
    found = _of_values(shared, asked, dtype)
    found |= _of_weights(model, watched.reading, asked)
    add_offsets(model, watched.reading, units, found)
    notes = (*tell_cut(watched), *_tell_strangers(watched.collector))
    told = (note for note in notes if note not in options.notes)
    notes = (*options.notes, *told)
    planning = replace(options.planning, quantized=found, coarse=(*options.planning.coarse, *coarse.values()))
    return replace(options, planning=planning, notes=notes)


def tell_cut(watched: Watched) -> list[str]:
    """What of the data gave no scale, as time was up."""
    done, every = watched.data.batches, watched.batches
    if done == every:
        return []
    return [f"the time limit ended the calibration: scales are from {done} of {every} batches of {watched.data.name}"]


def _tell_strangers(collector: Collector) -> list[str]:
    """What of the data gave no scale, as it is no finite number."""
    held = {name: strangers for name in collector.names if (strangers := collector.summary(name).strangers)}
    if not held:
        return []
    first, count = next(iter(held.items()))
    more = f" and {len(held) - 1} more values" if len(held) > 1 else ""
    return [f"NaN and infinities in the data gave no scale: {count} of the numbers of {first!r}{more}; mend the data"]


def _without_suspicions(options: Options) -> Options:
    """The options without the structure rules that data may lift: what it lifts needs scales as all else does."""
    policy = options.planning.policy
    firm = frozenset(rule.name for rule in structure_rules() if rule.lifting is Lifting.NEVER)
    findings = firm if policy.findings is None else firm & policy.findings
    return replace(options, planning=replace(options.planning, policy=replace(policy, findings=findings)))


def at_run_time(model: Model, options: Options) -> Options:
    """The options with the parameters of weights, which are all that is needed where ranges are found at run time."""
    reading, judged = judge_model(model, _without_suspicions(options))
    assert judged.quantizing is not None, "asked where something is to be quantized"
    found = _of_weights(model, reading, _asked(reading.graph, judged.quantizing.units))
    return replace(options, planning=replace(options.planning, quantized=found))


def without_data(model: Model, options: Options) -> tuple[Model, Options]:
    """The model to plan, and the options with scales that stand for those of data, for a plan and nothing else; weights
    have their own. Where ranges are found at run time none is needed, and the plan is what a conversion makes. Both as
    they are where nothing is to be quantized.
    """
    model, options = fuse(model, options)
    if options.planning.line.quantized is None:
        return model, options
    if options.planning.is_dynamic:
        return model, at_run_time(model, options)
    reading, judged = judge_model(model, options)
    assert judged.quantizing is not None, "asked where something is to be quantized"
    asked = _asked(reading.graph, judged.quantizing.units)
    dtype = options.planning.line.quantized_format
    assert dtype is not None, "the same"
    ways = _storages(asked, dtype)
    found = {name: parameters_for(_ANY_RANGE, _grid(way)) for name, way in ways.items()}
    found |= _of_weights(model, reading, asked)
    add_offsets(model, reading, judged.quantizing.units, found)
    note = "no data told any range: the plan shows which kernels are taken, and its scales stand for none"
    planning = replace(options.planning, quantized=found)
    return model, replace(options, planning=planning, notes=(*options.notes, note))


def _storages(asked: "_Asked", dtype: DType) -> dict[str, tuple[DType, bool]]:
    """How values are best held of which nothing is known but who reads them."""
    return {name: storage_of(dtype, operands, False) for name, operands in asked.together().items()}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What units ask of values, by name: the operands that read each, weights by id with theirs, and who shares."""

    operands: dict[str, list[Operand]] = field(default_factory=dict)
    weights: dict[int, Operand] = field(default_factory=dict)
    groups: list[tuple[str, ...]] = field(default_factory=list)

    def together(self) -> dict[str, list[Operand]]:
        """The operands that read each value, or one that it shares its parameters with."""
        shared = {name: [*operands] for name, operands in self.operands.items()}
        for group in self.groups:
            readers = [operand for name in group for operand in self.operands.get(name, ())]
            for name in group:
                shared[name] = [*shared.get(name, ()), *readers]
        return shared


def _asked(graph: Graph, units: Sequence[QuantizedUnit]) -> _Asked:
    """What has to be known of values of the main graph for every unit to run quantized."""
    asked = _Asked()

    def watch(value: int, *operands: Operand) -> None:
        if graph.values[value].scope == 0:
            asked.operands.setdefault(graph.values[value].name, []).extend(operands)

    for unit in units:
        for read in unit.reads:
            if read.operand.is_weight and graph.values[read.value].scope > 0:
                continue  # parameters go by names of the main graph
            if read.operand.is_weight:
                held = asked.weights.get(read.value, read.operand)
                asked.weights[read.value] = held if held.axis == read.operand.axis else replace(held, axis=None)
            elif not unit.kernel.is_dynamic:
                watch(read.value, read.operand)
        made = [value for value in graph.nodes[unit.nodes[0]].outputs if value is not None]
        if unit.kernel.is_dynamic:
            continue
        if unit.kernel.hands in (OutputMode.READ, OutputMode.PASSED):
            for value in made:
                watch(value)
            shared = (*(read.value for read in unit.reads if not read.operand.is_weight), *made)
            asked.groups.append(tuple(graph.values[value].name for value in shared))
        elif unit.kernel.hands is not OutputMode.FLOATS:
            watch(unit.result)
        for value in unit.inside if unit.kernel.is_cut else ():
            watch(value)
    return asked


def _ranges(collector: Collector, asked: _Asked, calibrator: Calibrator, dtype: DType) -> dict[str, Range]:
    """The ranges that a calibrator chooses of values that were watched. What was never seen gets none."""
    shared = asked.together()
    ranges: dict[str, Range] = {}
    for name, operands in shared.items():
        if name not in collector.names:
            continue
        seen = collector.summary(name)
        is_never_negative = seen.extremes is not None and seen.extremes.low >= 0.0
        chosen = choose_range(calibrator.of(name), seen, _grid(storage_of(dtype, operands, is_never_negative)))
        if chosen is not None:
            ranges[name] = chosen
    return ranges


def _of_values(ranges: Mapping[str, Range], asked: _Asked, dtype: DType) -> dict[str, Quantization]:
    """The parameters of values that are held to ranges."""
    shared = asked.together()
    return {
        name: parameters_for(held, _grid(storage_of(dtype, shared[name], held.low >= 0.0)))
        for name, held in ranges.items()
    }


def _is_even(dtype: DType) -> bool:
    """Whether a format's steps are all of one size."""
    return integer_span(STORED_AS[dtype][0]) is not None


def _of_weights(model: Model, reading: Reading, asked: _Asked) -> dict[str, Quantization]:
    found = {}
    for value, numbers in model.weights(reading, [*asked.weights]):
        operand = asked.weights[value]
        axis = operand.axis if operand.axis is None else operand.axis % numbers.ndim
        grid = Grid(dtype=operand.dtype, is_symmetric=operand.is_symmetric, is_narrow=True)
        found[reading.graph.values[value].name] = weight_parameters(numbers, grid, axis)
    return found


def add_offsets(model: Model, reading: Reading, units: Sequence[QuantizedUnit], found: dict[str, Quantization]) -> None:
    """Add the parameters of what is added up in INT32, at the scale of its unit's operands multiplied; weights' scales
    are raised where it would take too much of the sum. A weight may be read by several units, so all are raised first.
    """
    graph, offsets = reading.graph, dict[int, list[tuple[QuantizedUnit, str, str]]]()
    for unit in units:
        named = {read.operand.is_weight: graph.values[read.value].name for read in unit.reads}
        if unit.offset is not None and named.keys() == {True, False} and {*named.values()} <= found.keys():
            offsets.setdefault(unit.offset.value, []).append((unit, named[False], named[True]))
    held = []
    for value, numbers in model.weights(reading, [*offsets]):
        for unit, data, weight in offsets[value]:
            channels = numbers.shape[-1:] or (1,)
            if found[weight].axis is not None and channels != (len(found[weight].scales),):
                continue  # one number for all channels
            largest = np.abs(numbers).max(axis=tuple(range(numbers.ndim - 1)), initial=0.0)
            raised = guarded_weights(found[weight], largest, found[data])
            if raised is not None:
                found[weight] = raised
                held.append((unit, data, weight, numbers.ndim - 1))
    for unit, data, weight, axis in held:
        assert unit.offset is not None, "one of those with an offset"
        found[name_offset(graph, unit.offset.use)] = bias_parameters(found[data], found[weight], axis)


def _grid(storage: tuple[DType, bool]) -> Grid:
    return Grid(dtype=storage[0], is_symmetric=storage[1])


def with_parameters(
    model: Model, options: Options, dataset: Dataset, calibrator: str, resume: Path | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Options:  # fmt: skip
    """The options with the parameters that data gives, where something is to be quantized; else as they are. Where
    ranges are found at run time only weights have parameters. `resume` and `may_go_on`: as of `calibrate`.

    Raises InputError: there is no such calibrator.
    """
    if options.planning.line.quantized is None:
        return options
    if options.planning.is_dynamic:
        return at_run_time(model, options)
    return calibrate(model, options, dataset, calibrator_of(calibrator), resume, may_go_on)


def suits(calibrator: Calibrator, options: Options) -> bool:
    """Whether a way to choose ranges suits the format."""
    dtype = options.planning.line.quantized_format
    return dtype is None or not calibrator.needs_even or _is_even(dtype)


def check_method(calibrator: Calibrator, options: Options) -> None:
    """Raises InputError: a way to choose ranges does not suit the format."""
    if not suits(calibrator, options):
        dtype = options.planning.line.quantized_format
        able = ", ".join(name for name, one in calibrators().items() if not one.needs_even)
        raise InputError(
            f"{option('calibrator')} is {calibrator.name!r}, which weighs steps of one size, and those of {dtype} grow "
            f"with its numbers; choose one of {able}"
        )
