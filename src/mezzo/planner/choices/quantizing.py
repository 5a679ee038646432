"""What the target's quantized kernels leave to decide, and what they mean to conversions: caps, links and prices."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mezzo.analysis.fusion.between import between_products
from mezzo.analysis.fusion.quantized import QuantizedUnit, Quantizers, lacks
from mezzo.analysis.fusion.view import View as UnitView
from mezzo.analysis.structure import View
from mezzo.contracts.problem import Choice, LevelChoices, Problem
from mezzo.contracts.quantized_level import NO_PORTS, DynamicProduct, DynamicWeight, Quantized, QuantizedPorts
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import PrecisionLine
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node, Role, Use
from mezzo.planner.plan_options import PlanningOptions
from mezzo.tables.kernels import Kernels
from mezzo.tables.policy import Category, Verdict
from mezzo.tables.quantized_kernels import OutputMode, QuantizedKernel

# What is said of a node that no unit takes up, of one whose unit reads what nobody has seen, and of one that stands
# apart from products.
_ALONE, _UNKNOWN, _APART = "no-kernel", "no-range", "apart"
# And of one whose weight would be stored twice.
_COPIED = "stored-twice"
# Bytes that a number in INT8 saves, in place of FP32, over what a second copy of a number takes.
_SAVED = 3
# Numbers of a weight whose copy takes less than the nodes that dequantize it.
_FEW = 256
SMART, FULL = "smart", "full"
_LATE = "the range of what it reads is found as it runs"
# How a weight is held before anybody has asked for its scales.
_NOT_ASKED = Quantization(dtype=DType.INT8, scales=(1.0,), zero_points=(0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantizing:
    """The units that may run quantized, the parameters known of values, by id, and of constants that are held for one
    use alone, and the values of which a Quantize costs nothing.
    """

    units: tuple[QuantizedUnit, ...]
    parameters: Mapping[int, Quantization]
    offsets: Mapping[Use, Quantization]
    free: tuple[int, ...]

    def as_worthy(self, sides: Sequence[LevelChoices], line: PrecisionLine) -> tuple[LevelChoices, ...]:
        """The sides, where who runs inside a quantized kernel is worth as many casts there as in a float beside it.

        A policy takes whole regions to a float, whatever they hold; that must not draw them out of their kernels.
        """
        assert line.quantized is not None, "asked where something is to be quantized"
        at, found = line.side(line.quantized), list(sides)
        worths = list(found[at].worths)
        for number in {number for unit in self.units for number in unit.nodes}:
            worths[number] = max(side.worths[number] for side in sides)
        found[at] = replace(found[at], worths=tuple(worths))
        return tuple(found)

    def add_to(self, problem: Problem) -> Problem:
        """The problem with what quantized kernels ask: their nodes agree, what lies inside them and what they read as
        floats stays before the base's threshold, and floats come for nothing where they hand on either. Around what
        finds ranges as it runs nothing is converted.
        """
        graph, line = problem.graph, problem.line
        caps, links = dict(problem.caps), list(problem.links)
        inside, either, handed_on = set[int](), set[int](), set[int]()
        for unit in self.units:
            read = set() if unit.kernel.is_dynamic else {one.use for one in unit.reads}
            if unit.offset is not None and unit.offset.use in self.offsets:
                read.add(unit.offset.use)
            for number in unit.nodes:
                node = graph.nodes[number]
                for operand, value in enumerate(node.inputs):
                    use = Use(number, operand)
                    if value is not None and node.signature.inputs[operand] is Role.GROUP and use not in read:
                        caps[use] = (0, line.base)
            links += [(line.base, unit.nodes[0], number) for number in unit.nodes[1:]]
            inside.update(unit.inside)
            match unit.kernel.hands:
                case OutputMode.FLOATS:
                    inside.add(unit.result)
                    inside.update(value for value in graph.nodes[unit.nodes[-1]].outputs if value is not None)
                case OutputMode.EITHER:
                    either.add(unit.result)
                case OutputMode.PASSED:
                    handed_on.update(value for value in graph.nodes[unit.nodes[0]].outputs if value is not None)
        quantized = Quantized(
            parameters=self.parameters,
            offsets=self.offsets,
            stay_inside=frozenset(inside),
            hand_on_either=frozenset(either),
            handed_on=frozenset(handed_on),
            dynamic=dict(_dynamic(unit, self.parameters) for unit in self.units if unit.kernel.is_dynamic),
        )
        kernels = _with_free(problem, [*either, *self.free])
        return replace(problem, caps=caps, links=tuple(links), quantized=quantized, kernels=kernels)


def _tell_alone(node: Node, dtype: DType, planning: PlanningOptions) -> tuple[str, str]:
    """Why no unit takes a node up: a rule and its words."""
    name, rows = (
        planning.target.name,
        planning.target.quantized_kernels(dtype, *node.signature.operator, node.attributes),
    )
    if planning.is_dynamic and any(row.operands for row in rows) and not any(row.is_dynamic for row in rows):
        return _UNKNOWN, f"{name} has no kernel of it that finds ranges as it runs, and no data tells them"
    return _ALONE, f"{name} runs none like it on quantized operands, or not in this place"


def _tell_missing(graph: Graph, value: int) -> str:
    """Why nothing is known of a value that a kernel takes."""
    name = graph.values[value].name
    if value in graph.constants or graph.values[value].scope:
        what = "weight" if value in graph.constants else "value"
        return f"the {what} {name!r}, which its kernel takes, stands in a body, and scales are those of the main graph"
    return f"no data told the range of {name!r}, which its kernel takes"


def _dynamic(unit: QuantizedUnit, parameters: Mapping[int, Quantization]) -> tuple[int, DynamicProduct]:
    """The product of a unit that finds ranges as it runs, by its node's id. Its weights may not have been asked yet."""
    (data,) = (read for read in unit.reads if not read.operand.is_weight)
    weights = tuple(
        DynamicWeight(read.use.operand, parameters.get(read.value, _NOT_ASKED))
        for read in unit.reads
        if read.operand.is_weight
    )
    return unit.nodes[0], DynamicProduct(data.use.operand, weights)


def choose_units(view: View, planning: PlanningOptions, verdicts: list[Verdict], choices: list[Choice]) -> Quantizing:
    """The units that may run quantized; all other nodes may not, and their verdicts say why.

    `planning.quantized`, by the value's name, are what data and weights told; None where that is still to be asked.
    Mode "smart" leaves out what stands between no products, "full" takes all that the target runs.
    """
    graph, target, given, mode = view.graph, planning.target, planning.quantized, planning.quantize_mode
    known = None if given is None else _by_value(graph, given)
    coarse = {number: one for one in planning.coarse if (number := graph.by_name.get(one.node)) is not None}
    may_run = [choice in (Choice.FREE, Choice.LOW) and number not in coarse for number, choice in enumerate(choices)]
    quantizers = Quantizers(
        UnitView(graph, view.rows), target, view.low.dtype, may_run, known, partial(_may_take, planning)
    )
    units = quantizers.units()
    wanted = between_products(graph, view.rows, units) if mode == SMART else units
    missing = {unit.nodes: value for unit in wanted if (value := lacks(unit, known)) is not None}
    kept = tuple(unit for unit in wanted if unit.nodes not in missing)
    kept = between_products(graph, view.rows, kept) if mode == SMART and missing else kept
    # Beside a lower float the other copy may be stored in that.
    copying = _with_second_copies(graph, kept) if len(planning.line.beside) == 1 else ()
    copied = {number for unit in copying for number in unit.nodes}
    kept = tuple(unit for unit in kept if unit not in copying)
    for unit in kept:
        if unit.kernel.is_dynamic:
            said = verdicts[unit.nodes[0]]
            verdicts[unit.nodes[0]] = replace(said, because=f"{said.because}; {_LATE}")
    apart = {number for unit in units for number in unit.nodes} - {number for unit in kept for number in unit.nodes}
    unseen = {number: _tell_missing(graph, value) for nodes, value in missing.items() for number in nodes}
    members = {number for unit in kept for number in unit.nodes}
    for number, choice in enumerate(choices):
        if choice is not Choice.FREE or number in members:
            continue
        choices[number] = Choice.HIGH
        if verdicts[number].category is Category.DENY:
            continue
        rule, text = _tell_alone(graph.nodes[number], view.low.dtype, planning)
        if number in coarse:
            rule, text = coarse[number].rule, coarse[number].because
        if number in apart:
            rule, text = _APART, "stands between no two products with weights that run quantized"
        if number in unseen:
            rule, text = _UNKNOWN, unseen[number]
        if number in copied:
            rule, text = _COPIED, "its weight is read in floats too, and a second copy makes the model no smaller"
        verdicts[number] = Verdict(category=Category.DENY, rule=rule, because=text)
    named, uses = given or {}, [unit.offset.use for unit in kept if unit.offset is not None]
    offsets = {use: named[key] for use in uses if (key := name_offset(graph, use)) in named}
    free = tuple(quantizers.free_quantizes())
    return Quantizing(units=kept, parameters=known or {}, offsets=offsets, free=free)


def _with_second_copies(graph: Graph, units: Sequence[QuantizedUnit]) -> tuple[QuantizedUnit, ...]:
    """The units whose weights are read in floats too, so that both forms are stored, as far as the copies take more
    than other weights save: small ones stay.
    """
    reads = [(unit, read) for unit in units for read in unit.reads if read.operand.is_weight]
    uses, weights = {read.use for _, read in reads}, {read.value for _, read in reads}
    count = {value: math.prod(size or 0 for size in graph.shapes.get(value) or ()) for value in weights}
    copied = {value for value in weights if any(use not in uses for use in graph.uses[value])}
    left, large = _SAVED * sum(count[value] for value in weights - copied), set[int]()
    for value in sorted(copied, key=lambda one: (count[one], one)):
        if count[value] <= _FEW:
            continue
        if count[value] <= left:
            left -= count[value]
        else:
            large.add(value)
    return tuple(unit for unit, read in reads if read.value in large)


def _may_take(planning: PlanningOptions, node: Node, kernel: QuantizedKernel) -> bool:
    """Whether a kernel may be taken for a node: a plan that is replayed says whose ranges are found at run time."""
    if planning.dynamic is not None:
        return kernel.is_dynamic == (node.name in planning.dynamic)
    return kernel.is_dynamic or not planning.is_dynamic


def name_offset(graph: Graph, use: Use) -> str:
    """What the parameters of a constant are known by that it is held in for one of its uses: "bias of conv1"."""
    node = graph.nodes[use.node]
    value = node.inputs[use.operand]
    assert value is not None, "a use has a value"
    return f"{graph.values[value].name} of {node.name}"


def parameters_of(problem: Problem, levels: Sequence[int]) -> tuple[tuple[str, Quantization], ...]:
    """The parameters of what nodes read and make that run quantized, by the names that `choose_units` takes."""
    graph, line, known = problem.graph, problem.line, problem.quantized
    if known is None:
        return ()
    nodes = [node for node in graph.nodes if levels[node.id] == line.quantized]
    values = {value for node in nodes for value in _held(node, known)}
    offsets = [(use, how) for use, how in known.offsets.items() if levels[use.node] == line.quantized]
    return (
        *((graph.values[value].name, known.parameters[value]) for value in sorted(values)),
        *((name_offset(graph, use), how) for use, how in offsets),
    )


def _held(node: Node, known: Quantized) -> Iterable[int]:
    """The values whose parameters a node takes that runs quantized."""
    product = known.dynamic.get(node.id)
    ports = (*node.inputs, *node.outputs) if product is None else [node.inputs[at] for at in product.weight_operands]
    return (value for _, value in _known(ports, known.parameters))


def dynamic_names(problem: Problem, levels: Sequence[int]) -> tuple[str, ...]:
    """The nodes that find the range of their data as they run."""
    graph, line = problem.graph, problem.line
    dynamic = {} if problem.quantized is None else problem.quantized.dynamic
    return tuple(graph.nodes[number].name for number in dynamic if levels[number] == line.quantized)


def _by_value(graph: Graph, given: Mapping[str, Quantization]) -> dict[int, Quantization]:
    """Parameters by value id: names are those of the main graph, and bodies may use them again."""
    return {
        number: given[value.name]
        for number, value in enumerate(graph.values)
        if value.scope == 0 and value.name in given
    }


def _with_free(problem: Problem, values: Sequence[int]) -> Kernels:
    """The problem's kernels, with those that hand on floats or integers as the reader wants."""
    columns, count = problem.graph.columns, len(problem.line.thresholds)
    kernels = problem.kernels
    if kernels is None:
        of_uses, of_values = (count, len(columns.use_value)), (count, len(columns.value_producer))
        levels = len(problem.line.levels)
        kernels = Kernels(
            reads_free=np.zeros(of_uses, bool),
            writes_free=np.zeros(of_values, bool),
            takes_apart=np.zeros(of_uses, bool),
            computes_base=np.zeros((levels, len(columns.node_kind)), bool),
            hidden=np.zeros((levels, len(columns.value_producer)), bool),
        )
    writes_free = kernels.writes_free.copy()
    writes_free[problem.line.base, sorted(values)] = True
    return replace(kernels, writes_free=writes_free)


def quantized_ports(problem: Problem) -> QuantizedPorts:
    """What nodes read and make that run quantized. Where a kernel hands on either, its readers quantize."""
    line, known = problem.line, problem.quantized
    if line.quantized is None or known is None:
        return NO_PORTS
    spared = known.stay_inside | known.hand_on_either | known.handed_on
    reads: dict[Use, Quantization] = {}
    makes: dict[int, Quantization] = {}
    for number in np.flatnonzero(problem.allowed[line.quantized]).tolist():
        node = problem.graph.nodes[number]
        if number in known.dynamic:
            continue
        for operand, value in _known(node.inputs, known.parameters):
            use = Use(number, operand)
            is_read = node.signature.inputs[operand] is Role.GROUP
            if is_read and problem.capped(use, line.quantized) == line.quantized:
                reads[use] = known.parameters[value]
        here = {use: how for use, how in known.offsets.items() if use.node == number}
        reads |= here
        made = (value for _, value in _known(node.outputs, known.parameters) if value not in spared)
        makes |= {value: known.parameters[value] for value in made}
    return QuantizedPorts(reads, makes, known.dynamic)


def _known(values: Sequence[int | None], parameters: Mapping[int, Quantization]) -> Iterable[tuple[int, int]]:
    return ((at, value) for at, value in enumerate(values) if value is not None and value in parameters)
