"""Constant folding of weights that a graph computes from constants: parts of a Parameter, which
`nn.MultiheadAttention` multiplies, and reparametrized weights (`weight_norm`, `spectral_norm`,
pruning, weight standardization). Planning and calibration then see weights.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from mezzo.aten.lab.runner import numbers_of
from mezzo.aten.program import Program, ProgramTensor, attribute_of, tensor_of
from mezzo.aten.torch_internals import without_python_dispatcher
from mezzo.torch.torch_internals import without_modes
from mezzo.torch.weights.frozen import inputs_that_may_change, made_of
from mezzo.torch.weights.packing import TURNS, readers_of


def fold_weights(program: Program) -> dict[str, ProgramTensor]:
    """Make constants of the FP32 weights that a program's graph computes from weights and constants
    alone and that matmuls and convolutions read; returns them by node name. Each is named by the
    first weight that it is computed from, in alphabetical order, with a number.
    """
    graph, owner = program.graph, program.owner
    may_change = inputs_that_may_change(graph)
    constants = {
        node
        for node in graph.nodes
        if node not in may_change and (node.op == "get_attr" or node.name in program.weights)
    }
    computed = sorted(made_of(graph, constants) - constants)
    folded: dict[str, ProgramTensor] = {}
    taken: Counter[str] = Counter()
    for node in computed:
        if not _is_read_as_weight(node):
            continue
        steps = _steps_to(node)
        names = [program.weights[step.name].name for step in steps if step.name in program.weights]
        if not names:
            continue
        name = min(names)  # inputs have another order where weights may change
        taken[name] += 1
        target = f"mezzo_folded_{len(folded)}"
        owner.register_buffer(target, numbers := _run(program, steps), persistent=False)
        with graph.inserting_before(node):
            constant = graph.create_node("get_attr", target)
        constant.meta = {"val": node.meta["val"]}
        # What the caller gets is computed anew, as it may be written to.
        node.replace_all_uses_with(constant, lambda user: user.op != "output")
        folded[constant.name] = ProgramTensor(f"{name}#{taken[name]}", numbers.detach)
    if folded:
        graph.eliminate_dead_code()
    return folded


def _is_read_as_weight(node: fx.Node) -> bool:
    """Whether a product reads an FP32 tensor as its weight, itself or its transpose. A transpose
    that a product reads itself is none, as the tensor behind it is.
    """
    value = tensor_of(node)
    if value is None or value.dtype is not torch.float32:
        return False
    is_transpose = node.args[1:] == TURNS.get(node.target)
    return any(
        product is not None and not (is_transpose and product.layout.channel_axis == 1)
        for product in readers_of(node)
    )


def _steps_to(node: fx.Node) -> list[fx.Node]:
    """What a node is computed from, and itself, in order."""
    steps, remaining = {node}, [node]
    while remaining:
        operands = [each for each in remaining.pop().all_input_nodes if each not in steps]
        steps.update(operands)
        remaining += operands
    return sorted(steps)


def _run(program: Program, steps: Iterable[fx.Node]) -> torch.Tensor:
    """Compute the last of some nodes that depend on constants alone."""
    values: dict[fx.Node, Any] = {}
    result: Any = None
    with without_modes(), without_python_dispatcher(), torch.no_grad():
        for node in steps:
            if node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                result = node.target(*args, **kwargs)
            elif node.name in program.weights:
                result = numbers_of(program.weights[node.name], node.name)
            else:
                result = attribute_of(program.owner, node)
            values[node] = result
    assert isinstance(result, torch.Tensor), "a weight is a tensor"
    return result
