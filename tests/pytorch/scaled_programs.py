"""Programs of PyTorch whose values have random power-of-two scales, and their answers."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from operator_calls import Call
from random_modules import WIDTH, RandomModule
from torch.fx.experimental.proxy_tensor import make_fx

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.analysis.power_scales import ScaledGraph
from mezzo.aten.model import TorchModel
from mezzo.aten.opening import open_model
from mezzo.aten.program import Program, ProgramTensor
from mezzo.formats.dtypes import DType
from mezzo.planner.planner import rows_of

# Numbers near FP32's end leave its range with any scale.
_LARGEST = 1e30
_tree = torch.utils._pytree


def traced(call: Call, rng: random.Random) -> tuple[Program, list[torch.Tensor]]:
    """A call as a program, with a multiplication by 1 after each float operand, so that it can be scaled, or that
    operand as a weight; and the operands.
    """
    leaves, form = _tree.tree_flatten((call.args, call.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    operands = [leaves[place] for place in places]
    weights = [_is_free(operand) and rng.random() < 0.3 for operand in operands]

    def run(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor, is_weight in zip(places, given, weights, strict=True):
            filled[place] = tensor * 1.0 if _is_free(tensor) and not is_weight else tensor
        args, kwargs = _tree.tree_unflatten(filled, form)
        return [leaf for leaf in _tree.tree_leaves(call.func(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]

    module = make_fx(run, tracing_mode="fake")(*operands)
    inputs = module.graph.find_nodes(op="placeholder")
    held = {
        node.name: ProgramTensor(f"weight_{node.name}", lambda tensor=tensor: tensor)  # type: ignore[misc]
        for node, tensor, is_weight in zip(inputs, operands, weights, strict=True)
        if is_weight
    }
    return Program(graph=module.graph, owner=module, weights=held), operands


def module_program(seed: int) -> tuple[Program, list[torch.Tensor]]:
    """A random module, exported, with its weights and an input for operands."""
    x = torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(seed))
    program = open_model(torch.export.export(RandomModule(seed).eval(), (x,)), progress=None).original
    inputs = program.graph.find_nodes(op="placeholder")
    weights = {name: weight.tensor() for name, weight in program.weights.items() if weight.tensor is not None}
    return program, [weights.get(node.name, x) for node in inputs]


def _is_free(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.layout is torch.strided


def with_random_scales(program: Program, rng: random.Random) -> tuple[Program, dict[str, int]]:
    """The program with a random exponent for each component, and the exponents by value name."""
    model = TorchModel(program)
    reading = model.read(DType.FLOAT16)
    values = reading.graph.values
    graph = ScaledGraph(GraphView(reading.graph, rows_of(reading.graph)))
    exponents: dict[int, int] = {}
    for component in graph.components({number: rng.random() for number in range(len(values))}):
        exponents |= component.exponents(rng.randint(-4, 6))
    result = model.rescaled(reading, graph.rescaling(exponents)).original
    return result, {values[value].name: exponent for value, exponent in exponents.items()}


def answers(program: Program, operands: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a program answers, call by call."""
    interpreter = torch.fx.Interpreter(program.owner, graph=program.graph)
    torch.manual_seed(0)
    return list(interpreter.run(*operands))


def is_same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether answers are equal, bit for bit, NaN to NaN."""
    return len(first) == len(second) and all(
        one.dtype == other.dtype and torch.equal(torch.nan_to_num(one, 7.0), torch.nan_to_num(other, 7.0))
        for one, other in zip(first, second, strict=True)
    )


def is_near_the_end(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a number is so large, or none, that scales may change it."""
    floats = [tensor.double() for tensor in tensors if tensor.is_floating_point()]
    return any(not bool((tensor.abs() < _LARGEST).all()) for tensor in floats)
