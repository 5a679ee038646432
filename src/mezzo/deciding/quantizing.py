"""What the target's quantized kernels leave to decide, and what they mean to conversions: caps, links and prices."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mezzo.core.graph import Graph
from mezzo.core.kernels import Kernels
from mezzo.core.nodes import Role, Use
from mezzo.core.policy import Category, Verdict
from mezzo.core.problem import Choice, Problem
from mezzo.core.quantization import Quantization
from mezzo.core.quantized import NO_PORTS, Quantized, QuantizedPorts
from mezzo.core.quantized_kernels import Hands
from mezzo.core.target import Target
from mezzo.structure import View
from mezzo.units.quantized import QuantizedUnit, quantized_units
from mezzo.units.view import View as UnitView

# What is said of a node that no unit takes up.
_ALONE = "no-kernel"
_UNKNOWN = "no-range"


def choose_units(
    view: View,
    target: Target,
    parameters: Mapping[str, Quantization] | None,
    verdicts: list[Verdict],
    choices: list[Choice],
) -> tuple[QuantizedUnit, ...]:
    """The units that may run quantized; all other nodes may not, and their verdicts say why.

    `parameters`, by the value's name, are what data and weights told; None where that is still to be asked.
    """
    graph = view.graph
    units = quantized_units(
        UnitView(graph, view.rows), target.quantized, [choice in (Choice.FREE, Choice.LOW) for choice in choices]
    )
    missing = {unit.nodes: name for unit in units if (name := _lacks(graph, unit, parameters))}
    kept = tuple(unit for unit in units if unit.nodes not in missing)
    because = {number: name for nodes, name in missing.items() for number in nodes}
    members = {number for unit in kept for number in unit.nodes}
    for number, choice in enumerate(choices):
        if choice is not Choice.FREE or number in members:
            continue
        choices[number] = Choice.HIGH
        if verdicts[number].category is Category.DENY:
            continue
        if number in because:
            text = f"no data told the range of {because[number]!r}, which its kernel takes"
            verdicts[number] = Verdict(category=Category.DENY, rule=_UNKNOWN, because=text)
        else:
            text = f"{target.name} has no kernel for it that reads what it reads quantized"
            verdicts[number] = Verdict(category=Category.DENY, rule=_ALONE, because=text)
    return kept


def _lacks(graph: Graph, unit: QuantizedUnit, parameters: Mapping[str, Quantization] | None) -> str | None:
    """The name of a value whose parameters a unit takes and nobody knows, where they have been asked for."""
    if parameters is None:
        return None
    needed = [read.value for read in unit.reads]
    if unit.kernel.hands in (Hands.INTEGERS, Hands.READ):
        needed.append(unit.result)
    held = (graph.values[value] for value in needed)
    return next((value.name for value in held if value.scope != 0 or value.name not in parameters), None)


def with_quantized(
    problem: Problem, units: Sequence[QuantizedUnit], parameters: Mapping[str, Quantization] | None
) -> Problem:
    """The problem with what quantized kernels ask: their nodes agree, what lies inside them and what they read as
    floats stays before the base's threshold, and floats come for nothing where they hand on either.
    """
    graph, line = problem.graph, problem.line
    caps, links = dict(problem.caps), list(problem.links)
    inside, either = set[int](), set[int]()
    for unit in units:
        read = {one.use for one in unit.reads}
        for number in unit.nodes:
            node = graph.nodes[number]
            for operand, value in enumerate(node.inputs):
                use = Use(number, operand)
                if value is not None and node.signature.inputs[operand] is Role.GROUP and use not in read:
                    caps[use] = (0, line.base)
        links += [(line.base, unit.nodes[0], number) for number in unit.nodes[1:]]
        inside |= {value for number in unit.nodes[:-1] for value in graph.nodes[number].outputs if value is not None}
        if unit.kernel.hands is Hands.FLOATS:
            inside.add(unit.result)
        elif unit.kernel.hands is Hands.EITHER:
            either.add(unit.result)
    known = {
        number: parameters[value.name]
        for number, value in enumerate(graph.values)
        if parameters is not None and value.scope == 0 and value.name in parameters
    }
    quantized = Quantized(parameters=known, stay_inside=frozenset(inside), hand_on_either=frozenset(either))
    return replace(
        problem, caps=caps, links=tuple(links), quantized=quantized, kernels=_with_free(problem, sorted(either))
    )


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
    writes_free[problem.line.base, list(values)] = True
    return replace(kernels, writes_free=writes_free)


def quantized_ports(problem: Problem) -> QuantizedPorts:
    """What nodes read and make that run quantized. Where a kernel hands on either, its readers quantize."""
    line, known = problem.line, problem.quantized
    if line.quantized is None or known is None:
        return NO_PORTS
    spared = known.stay_inside | known.hand_on_either
    reads, makes = {}, {}
    for number in np.flatnonzero(problem.allowed[line.quantized]).tolist():
        node = problem.graph.nodes[number]
        for operand, value in enumerate(node.inputs):
            use = Use(number, operand)
            is_read = value in known.parameters and node.signature.inputs[operand] is Role.GROUP
            if is_read and value is not None and problem.capped(use, line.quantized) == line.quantized:
                reads[use] = known.parameters[value]
        for value in node.outputs:
            if (
                value is not None
                and value in known.parameters
                and value not in spared
            ):
                makes[value] = known.parameters[value]
    return QuantizedPorts(reads, makes)
