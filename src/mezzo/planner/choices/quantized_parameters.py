"""Quantization parameters, ports and dynamic nodes of a problem whose units are chosen."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mezzo.contracts.problem import Problem
from mezzo.contracts.quantized_level import NO_PORTS, Quantized, QuantizedPorts
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node, Role, Use


def name_offset(graph: Graph, use: Use) -> str:
    """Name of the parameters of a constant that is quantized for one use: "bias of conv1"."""
    node = graph.nodes[use.node]
    value = node.inputs[use.operand]
    assert value is not None, "a use has a value"
    return f"{graph.values[value].name} of {node.name}"


def parameters_of(problem: Problem, levels: Sequence[int]) -> tuple[tuple[str, Quantization], ...]:
    """Parameters of quantized nodes' inputs and outputs, by value name."""
    graph, line, quantized = problem.graph, problem.line, problem.quantized
    if quantized is None:
        return ()
    nodes = [node for node in graph.nodes if levels[node.id] == line.quantized]
    values = {value for node in nodes for value in _held(graph, node, quantized)}
    offsets = [
        (use, how) for use, how in quantized.offsets.items() if levels[use.node] == line.quantized
    ]
    return (
        *((graph.values[value].name, quantized.parameters[value]) for value in sorted(values)),
        *((name_offset(graph, use), how) for use, how in offsets),
    )


def _held(graph: Graph, node: Node, quantized: Quantized) -> Iterable[int]:
    """The values of a quantized node that need parameters."""
    product = quantized.dynamic.get(node.id)
    ports = (
        (*node.inputs, *node.outputs)
        if product is None
        else [graph.nodes[use.node].inputs[use.operand] for use in product.weight_uses]
    )
    return (value for _, value in _known(ports, quantized.parameters))


def dynamic_names(problem: Problem, levels: Sequence[int]) -> tuple[str, ...]:
    """The nodes with dynamic quantization."""
    graph, line = problem.graph, problem.line
    dynamic = {} if problem.quantized is None else problem.quantized.dynamic
    return tuple(graph.nodes[number].name for number in dynamic if levels[number] == line.quantized)


def quantized_ports(problem: Problem) -> QuantizedPorts:
    """Quantized inputs and outputs of the nodes that may run quantized. Where a kernel can output
    either type, its readers quantize.
    """
    line, quantized = problem.line, problem.quantized
    if line.quantized is None or quantized is None:
        return NO_PORTS
    unquantized = quantized.stay_inside | quantized.either_output | quantized.passed_through
    reads: dict[Use, Quantization] = {}
    makes: dict[int, Quantization] = {}
    for number in np.flatnonzero(problem.allowed[line.quantized]).tolist():
        node = problem.graph.nodes[number]
        if number in quantized.dynamic:
            continue
        for operand, value in _known(node.inputs, quantized.parameters):
            use = Use(number, operand)
            is_read = node.signature.inputs[operand] is Role.GROUP
            if is_read and problem.capped(use, line.quantized) == line.quantized:
                reads[use] = quantized.parameters[value]
        offsets = {use: how for use, how in quantized.offsets.items() if use.node == number}
        reads |= offsets
        outputs = (
            value
            for _, value in _known(node.outputs, quantized.parameters)
            if value not in unquantized
        )
        makes |= {value: quantized.parameters[value] for value in outputs}
    for product in quantized.dynamic.values():
        reads |= {weight.use: weight.how for weight in product.weights}
    return QuantizedPorts(reads, makes, quantized.dynamic)


def _known(
    values: Sequence[int | None], parameters: Mapping[int, Quantization]
) -> Iterable[tuple[int, int]]:
    return (
        (at, value) for at, value in enumerate(values) if value is not None and value in parameters
    )
