"""INT8 calibration: scales and zero points of activations from data, and of weights."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mezzo.analysis.fusion.quantized import QuantizedUnit
from mezzo.analysis.structure import structure_rules
from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.calibrator import Calibrator, Grid, Range
from mezzo.contracts.frontend import Model
from mezzo.contracts.reading import Reading
from mezzo.conversion.fusing import fuse
from mezzo.conversion.judged_model import judge_model
from mezzo.evaluate.data_session import DataSession
from mezzo.formats.dtypes import STORED_AS, DType, integer_span
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.numerics.measures import DataSource
from mezzo.planner.choices.quantized_parameters import name_offset
from mezzo.planner.options import Options
from mezzo.plugins.discovery import calibrators
from mezzo.quantize.arithmetic.choosing import align, choose_range
from mezzo.quantize.arithmetic.parameters import bias_parameters, guarded_weights, parameters_for
from mezzo.quantize.arithmetic.weights import weight_grid, weight_parameters
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.collection import collect
from mezzo.quantize.observers.collector import Collector
from mezzo.quantize.shared_scales import coarse_parts
from mezzo.tables.policy import Lifting, NamedFinding
from mezzo.tables.quantized_kernels import Operand, OutputMode, storage_of

_ANY_RANGE = Range(0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Statistics of a model's values on data, for any calibrator. `batches`: batches in the data,
    of which a time limit may have skipped some.
    """

    data: DataSource
    batches: int
    reading: Reading
    units: Sequence[QuantizedUnit]
    asked: "_Asked"
    collector: Collector


@dataclass(frozen=True, slots=True)
class Needs:
    """What the quantized kernels of a reading need to know."""

    reading: Reading
    units: Sequence[QuantizedUnit]
    asked: "_Asked"

    @property
    def names(self) -> Collection[str]:
        """The values whose ranges are needed."""
        return self.asked.operands.keys()

    def of_weights(self, model: Model) -> dict[str, Quantization]:
        """The parameters of the weights that quantized kernels may read, by name."""
        return _of_weights(model, self.reading, self.asked)

    def watched(self, data: DataSource, batches: int, collector: Collector) -> Watched:
        """The same with statistics of data."""
        return Watched(
            data=data,
            batches=batches,
            reading=self.reading,
            units=self.units,
            asked=self.asked,
            collector=collector,
        )


def needs_of(model: Model, options: Options) -> Needs:
    """What is needed for every unit to run quantized that may."""
    reading, judged = judge_model(model, _without_suspicions(options))
    assert judged.quantizing is not None, "asked where something is to be quantized"
    units = judged.quantizing.units
    return Needs(reading, units, _asked(reading.graph, units))


def hold_out_for_scales(model: Model, session: DataSession) -> tuple[DataSession, str]:
    """The session with data to calibrate scales on and, if there is enough, held-out data that
    judges them, and a note about it.
    """
    parts = session.hold_out(model)
    name = parts.data.name
    if parts.held_out is not None:
        return parts, f"scales are from {name}, which judged no answer"
    note = (
        f"scales are from {name}, all of it, and the answers were judged on the same: other data"
        " may be worse"
    )
    return parts, note


def with_parameters(model: Model, options: Options, session: DataSession) -> Options:
    """The options with quantization parameters of every value that the target's INT8 kernels may
    read or produce; for dynamic quantization of weights alone; unchanged if nothing is to be
    quantized. Scales come from the batches until the time limit, and a note says so.

    Raises:
        InputError: the data is invalid or has no sample, or the calibrator is unknown or does not
            suit the format.
        ContractError: the model does not run.
    """
    if options.planning.line.quantized is None:
        return options
    if options.planning.is_dynamic:
        return at_run_time(model, options)
    calibrator = calibrator_of(options.calibrator)
    check_method(calibrator, options)
    watched = watch(model, options, session, [calibrator])
    return choose_parameters(model, options, watched, calibrator)


def watch(
    model: Model, options: Options, session: DataSession, calibrators: Sequence[Calibrator]
) -> Watched:
    """Collect statistics of all values that may be quantized; calibrators observe the data too.
    Errors as in `with_parameters`.
    """
    needs = needs_of(model, options)
    collected = collect(model, needs.reading, session, [*needs.names], calibrators)
    return needs.watched(collected.data, collected.batches, collected.collector)


def choose_parameters(
    model: Model, options: Options, watched: Watched, calibrator: Calibrator
) -> Options:
    """The options with a calibrator's parameters. Raises InputError: the calibrator fails."""
    dtype = options.planning.line.quantized_format
    assert dtype is not None, "asked where something is to be quantized"
    units, needs, coarse, ranges = (
        watched.units,
        watched.asked,
        dict[tuple[int, ...], NamedFinding](),
        {},
    )
    while True:
        ranges = _ranges(watched.collector, needs, calibrator, dtype)
        shared = align(ranges, needs.groups)
        more = coarse_parts(watched.reading.graph, units, ranges, shared) if _is_even(dtype) else {}
        if not more:
            break
        coarse |= more
        units = [unit for unit in units if unit.nodes not in coarse]
        needs = _asked(watched.reading.graph, units)
    parameters = _of_values(shared, needs, dtype)
    parameters |= _of_weights(model, watched.reading, needs)
    add_offsets(model, watched.reading, units, parameters)
    notes = (*describe_cut(watched), *_tell_strangers(watched.collector))
    new_notes = (note for note in notes if note not in options.notes)
    notes = (*options.notes, *new_notes)
    planning = replace(
        options.planning, quantized=parameters, coarse=(*options.planning.coarse, *coarse.values())
    )
    return replace(options, planning=planning, notes=notes)


def describe_cut(watched: Watched) -> list[str]:
    """A note if a time limit ended the calibration early."""
    done, every = watched.data.batches, watched.batches
    if done == every:
        return []
    return [
        f"the time limit ended the calibration: scales are from {done} of {every} batches of"
        f" {watched.data.name}"
    ]


def _tell_strangers(collector: Collector) -> list[str]:
    """A note if the data had NaN or infinities, which no scale covers."""
    nonfinite = {
        name: strangers
        for name in collector.names
        if (strangers := collector.summary(name).strangers)
    }
    if not nonfinite:
        return []
    first, count = next(iter(nonfinite.items()))
    more = f" and {len(nonfinite) - 1} more values" if len(nonfinite) > 1 else ""
    return [
        f"NaN and infinities in the data gave no scale: {count} of the numbers of {first!r}{more};"
        " mend the data"
    ]


def _without_suspicions(options: Options) -> Options:
    """The options without rules that data may overrule: cleared nodes need scales too."""
    policy = options.planning.policy
    firm = frozenset(rule.name for rule in structure_rules() if rule.lifting is Lifting.NEVER)
    findings = firm if policy.findings is None else firm & policy.findings
    return replace(
        options, planning=replace(options.planning, policy=replace(policy, findings=findings))
    )


def at_run_time(model: Model, options: Options) -> Options:
    """The options with weight parameters alone, for dynamic quantization, which needs no others."""
    parameters = needs_of(model, options).of_weights(model)
    return replace(options, planning=replace(options.planning, quantized=parameters))


def without_data(model: Model, options: Options) -> tuple[Model, Options]:
    """The model, and options with placeholder scales, to plan without calibration data; weights
    have their own scales. For dynamic quantization the plan equals that of a conversion. Both are
    unchanged if nothing is to be quantized.
    """
    model, options = fuse(model, options)
    return model, with_placeholders(model, options)


def with_placeholders(model: Model, options: Options) -> Options:
    """The options of `without_data`, of a model in normal form."""
    if options.planning.line.quantized is None:
        return options
    if options.planning.is_dynamic:
        return at_run_time(model, options)
    reading, judged = judge_model(model, options)
    assert judged.quantizing is not None, "asked where something is to be quantized"
    needs = _asked(reading.graph, judged.quantizing.units)
    dtype = options.planning.line.quantized_format
    assert dtype is not None, "the same"
    ways = _storages(needs, dtype)
    parameters = {name: parameters_for(_ANY_RANGE, _grid(way)) for name, way in ways.items()}
    parameters |= _of_weights(model, reading, needs)
    add_offsets(model, reading, judged.quantizing.units, parameters)
    note = (
        "no data gave any range: the plan shows which kernels run, and its scales are placeholders"
    )
    planning = replace(options.planning, quantized=parameters)
    notes = options.notes if note in options.notes else (*options.notes, note)
    return replace(options, planning=planning, notes=notes)


def _storages(needs: "_Asked", dtype: DType) -> dict[str, tuple[DType, bool]]:
    """The best storage type of each value, given only the operands that read it."""
    return {name: storage_of(dtype, operands, False) for name, operands in needs.together().items()}


@dataclass(frozen=True, slots=True)
class _Asked:
    """The requirements of units: reading operands by value name, weights by value id, and groups
    with shared parameters.
    """

    operands: dict[str, list[Operand]] = field(default_factory=dict)
    weights: dict[int, Operand] = field(default_factory=dict)
    groups: list[tuple[str, ...]] = field(default_factory=list)

    def together(self) -> dict[str, list[Operand]]:
        """The operands that read each value, or a value with which it shares parameters."""
        shared = {name: [*operands] for name, operands in self.operands.items()}
        for group in self.groups:
            readers = [operand for name in group for operand in self.operands.get(name, ())]
            for name in group:
                shared[name] = [*shared.get(name, ()), *readers]
        return shared


def _asked(graph: Graph, units: Sequence[QuantizedUnit]) -> _Asked:
    """The requirements for every unit to run quantized, for values of the main graph."""
    needs = _Asked()

    def watch(value: int, *operands: Operand) -> None:
        if graph.values[value].scope == 0:
            needs.operands.setdefault(graph.values[value].name, []).extend(operands)

    for unit in units:
        for read in unit.reads:
            if read.operand.is_weight and graph.values[read.value].scope > 0:
                continue  # parameters are stored by names of the main graph
            if read.operand.is_weight:
                earlier = needs.weights.get(read.value, read.operand)
                needs.weights[read.value] = (
                    earlier if earlier.axis == read.operand.axis else replace(earlier, axis=None)
                )
            elif not unit.kernel.is_dynamic:
                watch(read.value, read.operand)
        outputs = [value for value in graph.nodes[unit.nodes[0]].outputs if value is not None]
        if unit.kernel.is_dynamic:
            continue
        if unit.kernel.only_moves:
            for value in outputs:
                watch(value)
            shared = (*(read.value for read in unit.reads if not read.operand.is_weight), *outputs)
            needs.groups.append(tuple(graph.values[value].name for value in shared))
        elif unit.hands is not OutputMode.FLOATS:
            watch(unit.result)
        for value in unit.inside if unit.kernel.is_cut else ():
            watch(value)
    return needs


def _ranges(
    collector: Collector, needs: _Asked, calibrator: Calibrator, dtype: DType
) -> dict[str, Range]:
    """The ranges that a calibrator chooses. Values that were never observed have none."""
    shared = needs.together()
    ranges: dict[str, Range] = {}
    for name, operands in shared.items():
        if name not in collector.names:
            continue
        summary = collector.summary(name)
        is_never_negative = summary.extremes is not None and summary.extremes.low >= 0.0
        chosen = choose_range(
            calibrator.of(name), summary, _grid(storage_of(dtype, operands, is_never_negative))
        )
        if chosen is not None:
            ranges[name] = chosen
    return ranges


def _of_values(ranges: Mapping[str, Range], needs: _Asked, dtype: DType) -> dict[str, Quantization]:
    """The parameters of values with ranges."""
    shared = needs.together()
    return {
        name: parameters_for(
            value_range, _grid(storage_of(dtype, shared[name], value_range.low >= 0.0))
        )
        for name, value_range in ranges.items()
    }


def _is_even(dtype: DType) -> bool:
    """Whether a format has a uniform step size."""
    return integer_span(STORED_AS[dtype][0]) is not None


def _of_weights(model: Model, reading: Reading, needs: _Asked) -> dict[str, Quantization]:
    parameters = {}
    for value, numbers in model.weights(reading, [*needs.weights]):
        operand = needs.weights[value]
        axis = operand.axis if operand.axis is None else operand.axis % numbers.ndim
        name, grid = reading.graph.values[value].name, weight_grid(operand)
        parameters[name] = weight_parameters(numbers, grid, axis, operand.in_pairs)
    return parameters


def add_offsets(
    model: Model, reading: Reading, units: Sequence[QuantizedUnit], found: dict[str, Quantization]
) -> None:
    """Add the parameters of INT32 biases, whose scale is that of the unit's input times the
    weights'; the weights' scales are raised where the bias would take too much of the INT32 range.
    Units may share weights, so all scales are raised before any bias.
    """
    graph, offsets = reading.graph, dict[int, list[tuple[QuantizedUnit, str, str]]]()
    for unit in units:
        named = {read.operand.is_weight: graph.values[read.value].name for read in unit.reads}
        if (
            unit.offset is not None
            and named.keys() == {True, False}
            and {*named.values()} <= found.keys()
        ):
            offsets.setdefault(unit.offset.value, []).append((unit, named[False], named[True]))
    biases = []
    for value, numbers in model.weights(reading, [*offsets]):
        for unit, data, weight in offsets[value]:
            channels = numbers.shape[-1:] or (1,)
            if found[weight].axis is not None and channels != (len(found[weight].scales),):
                continue  # one number for all channels
            largest = np.abs(numbers).max(axis=tuple(range(numbers.ndim - 1)), initial=0.0)
            raised = guarded_weights(found[weight], largest, found[data])
            if raised is not None:
                found[weight] = raised
                biases.append((unit, data, weight, numbers.ndim - 1))
    for unit, data, weight, axis in biases:
        assert unit.offset is not None, "one of those with an offset"
        found[name_offset(graph, unit.offset.use)] = bias_parameters(
            found[data], found[weight], axis
        )


def _grid(storage: tuple[DType, bool]) -> Grid:
    return Grid(dtype=storage[0], is_symmetric=storage[1])


def suits(calibrator: Calibrator, options: Options) -> bool:
    """Whether a calibrator supports the format."""
    dtype = options.planning.line.quantized_format
    return dtype is None or not calibrator.needs_even or _is_even(dtype)


def check_method(calibrator: Calibrator, options: Options) -> None:
    """Raises InputError: the calibrator does not support the format."""
    if not suits(calibrator, options):
        dtype = options.planning.line.quantized_format
        able = ", ".join(
            name for name, candidate in calibrators().items() if not candidate.needs_even
        )
        raise InputError(
            f"{option('calibrator')} is {calibrator.name!r}, which weighs steps of one size, and"
            f" those of {dtype} grow with its numbers; choose one of {able}"
        )
