"""Quantized kernels of a target in the problem: eligible units, caps, links and prices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mezzo.analysis.fusion.between import between_products
from mezzo.analysis.fusion.quantized import QuantizedUnit, Quantizers, lacks
from mezzo.analysis.fusion.view import FusionView
from mezzo.analysis.structure import StructureView
from mezzo.contracts.problem import Choice, LevelChoices, Problem
from mezzo.contracts.quantized_level import (
    DynamicProduct,
    DynamicWeight,
    Quantized,
)
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import PrecisionLine
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node, Role, Use
from mezzo.planner.choices.quantized_parameters import name_offset
from mezzo.planner.plan_options import PlanningOptions
from mezzo.tables.kernels import Kernels
from mezzo.tables.policy import Category, NodeVerdict
from mezzo.tables.quantized_kernels import OutputMode, QuantizedKernel

# Rules of nodes in no quantized unit, without a calibrated range, and not between two quantized
# matmuls or convolutions.
_ALONE, _UNKNOWN, _APART = "no-kernel", "no-range", "apart"
# The rule of a node whose weight would be stored twice.
_COPIED = "stored-twice"
# INT8 saves 3 bytes per element over FP32; a second INT8 copy of an element takes 1 byte.
_SAVED = 3
# Elements of a weight whose copy takes less space than the nodes that dequantize it.
_FEW = 256
SMART, FULL, REPLAYED = "smart", "full", "replayed"
_LATE = "the range of what it reads is found as it runs"
# Placeholder for a weight whose scales are not computed yet.
_NOT_ASKED = Quantization(dtype=DType.INT8, scales=(1.0,), zero_points=(0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedUnits:
    """The units that may run quantized; quantization parameters by value id, and by use for
    constants that are quantized for one use; `free`: values whose Quantize costs nothing.
    """

    units: tuple[QuantizedUnit, ...]
    parameters: Mapping[int, Quantization]
    offsets: Mapping[Use, Quantization]
    free: tuple[int, ...]

    def as_worthy(
        self, sides: Sequence[LevelChoices], line: PrecisionLine
    ) -> tuple[LevelChoices, ...]:
        """The sides, with each node of a unit worth as many casts at the quantized level as at any
        other level.

        A policy may favour a float for whole regions; that must not take nodes out of their
        quantized kernels.
        """
        assert line.quantized is not None, "asked where something is to be quantized"
        index, updated = line.side(line.quantized), list(sides)
        worths = list(updated[index].worths)
        for number in {number for unit in self.units for number in unit.nodes}:
            worths[number] = max(side.worths[number] for side in sides)
        updated[index] = replace(updated[index], worths=tuple(worths))
        return tuple(updated)

    def add_to(self, problem: Problem) -> Problem:
        """The problem with the constraints of quantized kernels: a unit's nodes share one level;
        values inside a unit and its float inputs are not quantized; outputs are free to read as
        floats where the kernel can output either type. Dynamic units need no casts.
        """
        graph, line = problem.graph, problem.line
        caps, links = dict(problem.caps), list(problem.links)
        inside, either, passed_through = set[int](), set[int](), set[int]()
        for unit in self.units:
            quantized_uses = (
                set()
                if unit.kernel.is_dynamic
                else {operand_read.use for operand_read in unit.reads}
            )
            if unit.offset is not None and unit.offset.use in self.offsets:
                quantized_uses.add(unit.offset.use)
            for number in unit.nodes:
                node = graph.nodes[number]
                for operand, value in enumerate(node.inputs):
                    use = Use(number, operand)
                    if (
                        value is not None
                        and node.signature.inputs[operand] is Role.GROUP
                        and use not in quantized_uses
                    ):
                        caps[use] = (0, line.base)
            links += [(line.base, unit.nodes[0], number) for number in unit.nodes[1:]]
            inside.update(unit.inside)
            match unit.hands:
                case OutputMode.FLOATS:
                    inside.add(unit.result)
                    inside.update(
                        value for value in graph.nodes[unit.nodes[-1]].outputs if value is not None
                    )
                case OutputMode.EITHER:
                    either.add(unit.result)
                case OutputMode.PASSED:
                    passed_through.update(
                        value for value in graph.nodes[unit.nodes[0]].outputs if value is not None
                    )
        quantized = Quantized(
            parameters=self.parameters,
            offsets=self.offsets,
            stay_inside=frozenset(inside),
            either_output=frozenset(either),
            passed_through=frozenset(passed_through),
            dynamic=dict(
                _dynamic(unit, self.parameters) for unit in self.units if unit.kernel.is_dynamic
            ),
        )
        kernels = _with_free(problem, [*either, *self.free])
        return replace(problem, caps=caps, links=tuple(links), quantized=quantized, kernels=kernels)


def _tell_alone(node: Node, dtype: DType, planning: PlanningOptions) -> tuple[str, str]:
    """Why no unit contains a node: the rule and its text."""
    name, rows = (
        planning.target.name,
        planning.target.quantized_kernels(dtype, *node.signature.operator, node.attributes),
    )
    if (
        planning.is_dynamic
        and any(row.operands for row in rows)
        and not any(row.is_dynamic for row in rows)
    ):
        return (
            _UNKNOWN,
            f"{name} has no kernel of it that finds ranges as it runs, and no data tells them",
        )
    return _ALONE, f"{name} runs none like it on quantized operands, or not in this place"


def _tell_missing(graph: Graph, value: int) -> str:
    """Why no quantization parameters exist for a value that a kernel needs quantized."""
    name = graph.values[value].name
    if value in graph.constants or graph.values[value].scope:
        kind = "weight" if value in graph.constants else "value"
        return (
            f"the {kind} {name!r}, which its kernel takes, is in a subgraph, and scales are those"
            " of the main graph"
        )
    return f"no data gave the range of {name!r}, which its kernel takes"


def _dynamic(
    unit: QuantizedUnit, parameters: Mapping[int, Quantization]
) -> tuple[int, DynamicProduct]:
    """The matmul or LSTM of a dynamic unit, by node id. Weights may lack scales yet."""
    (data,) = (read for read in unit.reads if not read.operand.is_weight)
    weights = tuple(
        DynamicWeight(read.use, parameters.get(read.value, _NOT_ASKED))
        for read in unit.reads
        if read.operand.is_weight
    )
    return unit.nodes[0], DynamicProduct(data.use.operand, weights)


def choose_units(
    view: StructureView,
    planning: PlanningOptions,
    verdicts: list[NodeVerdict],
    choices: list[Choice],
) -> QuantizedUnits:
    """Choose the units that may run quantized; every other node is denied, with the reason in its
    verdict.

    `planning.quantized` holds the calibrated parameters by value name; None before calibration.
    Mode "smart" leaves out units that are not between two quantized matmuls or convolutions; "full"
    takes all that the target runs, "replayed" too those whose weights are stored twice: a plan that
    is replayed says which of them run.
    """
    graph, target, calibrated, mode = (
        view.graph,
        planning.target,
        planning.quantized,
        planning.quantize_mode,
    )
    parameters = None if calibrated is None else _by_value(graph, calibrated)
    coarse = {
        number: finding
        for finding in planning.coarse
        if (number := graph.by_name.get(finding.node)) is not None
    }
    may_run = [
        choice in (Choice.FREE, Choice.LOW) and number not in coarse
        for number, choice in enumerate(choices)
    ]
    quantizers = Quantizers(
        FusionView(graph, view.rows),
        target,
        view.low.dtype,
        may_run,
        parameters,
        partial(_may_take, planning),
    )
    units, free = quantizers.units(), frozenset(quantizers.free_quantizes())
    eligible = between_products(graph, view.rows, units, free) if mode == SMART else units
    lacking = {
        unit.nodes: value for unit in eligible if (value := lacks(unit, parameters)) is not None
    }
    chosen = tuple(unit for unit in eligible if unit.nodes not in lacking)
    if mode == SMART and lacking:
        chosen = between_products(graph, view.rows, chosen, free)
    # With a lower float level, the float copy may be stored in that format.
    may_copy = mode == REPLAYED or len(planning.line.other_dtypes) > 1
    copying = () if may_copy else _with_second_copies(graph, chosen)
    copied = {number for unit in copying for number in unit.nodes}
    chosen = tuple(unit for unit in chosen if unit not in copying)
    for unit in chosen:
        if unit.kernel.is_dynamic:
            verdict = verdicts[unit.nodes[0]]
            verdicts[unit.nodes[0]] = replace(verdict, because=f"{verdict.because}; {_LATE}")
    dropped = {number for unit in units for number in unit.nodes} - {
        number for unit in chosen for number in unit.nodes
    }
    uncalibrated = {
        number: _tell_missing(graph, value) for nodes, value in lacking.items() for number in nodes
    }
    members = {number for unit in chosen for number in unit.nodes}
    for number, choice in enumerate(choices):
        if choice is not Choice.FREE or number in members:
            continue
        choices[number] = Choice.HIGH
        if verdicts[number].category is Category.DENY:
            continue
        rule, text = _tell_alone(graph.nodes[number], view.low.dtype, planning)
        if number in coarse:
            rule, text = coarse[number].rule, coarse[number].because
        if number in dropped:
            rule, text = _APART, "not between two quantized matmuls"
        if number in uncalibrated:
            rule, text = _UNKNOWN, uncalibrated[number]
        if number in copied:
            rule, text = (
                _COPIED,
                "its weight is read in floats too, and a second copy makes the model no smaller",
            )
        verdicts[number] = NodeVerdict(category=Category.DENY, rule=rule, because=text)
    by_name, uses = (
        calibrated or {},
        [unit.offset.use for unit in chosen if unit.offset is not None],
    )
    offsets = {use: by_name[key] for use in uses if (key := name_offset(graph, use)) in by_name}
    return QuantizedUnits(
        units=chosen, parameters=parameters or {}, offsets=offsets, free=tuple(sorted(free))
    )


def _with_second_copies(graph: Graph, units: Sequence[QuantizedUnit]) -> tuple[QuantizedUnit, ...]:
    """The units whose weights other nodes read as floats, so that both forms are stored, once these
    copies outweigh the bytes that the other weights save. Small copies are always accepted.
    """
    reads = [(unit, read) for unit in units for read in unit.reads if read.operand.is_weight]
    uses, weights = {read.use for _, read in reads}, {read.value for _, read in reads}
    count = {
        value: math.prod(size or 0 for size in graph.shapes.get(value) or ()) for value in weights
    }
    copied = {value for value in weights if any(use not in uses for use in graph.uses[value])}
    budget, large = _SAVED * sum(count[value] for value in weights - copied), set[int]()
    for value in sorted(copied, key=lambda weight: (count[weight], weight)):
        if count[value] <= _FEW:
            continue
        if count[value] <= budget:
            budget -= count[value]
        else:
            large.add(value)
    return tuple(unit for unit, read in reads if read.value in large)


def _may_take(planning: PlanningOptions, node: Node, kernel: QuantizedKernel) -> bool:
    """Whether a kernel is allowed for a node; a replayed plan lists its dynamic nodes."""
    if planning.dynamic is not None:
        return kernel.is_dynamic == (node.name in planning.dynamic)
    return kernel.is_dynamic or not planning.is_dynamic


def _by_value(graph: Graph, by_name: Mapping[str, Quantization]) -> dict[int, Quantization]:
    """Parameters by value id. Names are those of the main graph; subgraphs may reuse them."""
    return {
        number: by_name[value.name]
        for number, value in enumerate(graph.values)
        if value.scope == 0 and value.name in by_name
    }


def _with_free(problem: Problem, values: Sequence[int]) -> Kernels:
    """The problem's kernels, with free conversion of outputs in either type."""
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
            ignores_traffic=np.zeros((levels, len(columns.node_kind)), bool),
            is_wrapped=np.zeros((levels, len(columns.node_kind)), bool),
        )
    writes_free = kernels.writes_free.copy()
    writes_free[problem.line.base, sorted(values)] = True
    return replace(kernels, writes_free=writes_free)
