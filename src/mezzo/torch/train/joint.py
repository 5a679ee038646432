"""Joint graphs: forward and backward as one, which Inductor cuts in two after the plan is carried out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, InputMutationAOTOutput, TangentAOTInput
from torch.utils.checkpoint import CheckpointPolicy

from mezzo.aten.program import Program
from mezzo.aten.read.origins import inherited
from mezzo.aten.read.retype import CAST, COPY, as_dtype, fake_mode_of
from mezzo.torch.train.rematerialization import Kept, decide, is_view, keep_least, readers


def as_joint(program: Program) -> Program:
    """What is known of a joint graph: nothing of the numbers of weights, which change; its gradients by name."""
    return replace(
        program,
        weights={},
        outputs=_returned(program.graph, program.names),
        backward=backward_of(program.graph),
    )


def advise_partitioner(
    graph: fx.Graph, weights: Collection[str], low: torch.dtype, memory: float | None
) -> Kept | None:
    """Say of nodes whether the backward computes them again: of all of them, where `memory` weighs what is kept.

    `weights` are names of placeholders.
    """
    _compute_once(graph)
    if memory is None:
        return None
    free = [node for node in graph.nodes if node.name in weights]
    return keep_least(graph, backward_of(graph), memory, low, free)


def give_gradients(graph: fx.Graph, formats: Mapping[str, torch.dtype]) -> None:
    """Let a joint graph return the gradients of inputs in a format, by the names of placeholders, which autograd would
    convert behind the graph. What is converted at last from that format is returned as it was.
    """
    end = next(reversed(graph.nodes))
    inputs = _inputs(graph)
    returned: Any = list(end.args[0])
    mode = fake_mode_of(graph)
    for number, about in enumerate(_about_results(graph)):
        of = inputs.get(about.grad_of) if isinstance(about, GradAOTOutput) else None
        gradient = returned[number]
        if of is None or not isinstance(gradient, fx.Node) or of.name not in formats:
            continue
        dtype, made = formats[of.name], gradient.meta["val"]
        if gradient.target is CAST and gradient.all_input_nodes[0].meta["val"].dtype is dtype:
            returned[number] = gradient.all_input_nodes[0]
        elif isinstance(made, torch.Tensor) and made.dtype is torch.float32 and dtype is not torch.float32:
            with graph.inserting_before(end):
                returned[number] = graph.call_function(CAST, (gradient, dtype))
            returned[number].meta = {
                **inherited(gradient),
                "val": as_dtype(mode, made, dtype),
                "partitioner_tag": "is_backward",
            }
    end.args = (tuple(returned),)
    graph.eliminate_dead_code()


def backward_of(graph: fx.Graph) -> frozenset[fx.Node]:
    """What runs after the gradients of a graph's results have come in: what depends on them, and they themselves."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            is_late = isinstance(node.meta.get("desc"), TangentAOTInput)
        else:
            is_told = node.meta.get("partitioner_tag") == "must_be_in_backward"
            is_late = node.op != "output" and (is_told or not found.isdisjoint(node.all_input_nodes))
        if is_late:
            found.add(node)
    return frozenset(found)


def _returned(graph: fx.Graph, names: Mapping[str, str]) -> tuple[str, ...]:
    """What a joint graph returns is called: results by their numbers, "gradient of WEIGHT" after the inputs' `names`.

    `names` are those of placeholders, by the nodes' own.
    """
    inputs = _inputs(graph)
    returned = []
    for number, about in enumerate(_about_results(graph)):
        of = inputs.get(about.grad_of) if isinstance(about, GradAOTOutput) else None
        returned.append(str(number) if of is None else f"gradient of {names.get(of.name, of.name)}")
    return tuple(returned)


def _compute_once(graph: fx.Graph) -> None:
    """Let the backward not compute again what reads an input that the forward then writes: it would read what was
    written. Of floats that are trained autograd sees that, and refuses; of others plain PyTorch has wrong gradients.
    """
    inputs = _inputs(graph)
    told = (inputs.get(one.mutated_input) for one in _about_results(graph) if isinstance(one, InputMutationAOTOutput))
    copied = (node.args[0] for node in graph.nodes if node.target is COPY)
    for written in {*told, *copied}:
        for user in readers(written, _is_seen_through) if isinstance(written, fx.Node) else ():
            if not is_view(user):
                decide(user, CheckpointPolicy.MUST_SAVE)


def _inputs(graph: fx.Graph) -> dict[object, fx.Node]:
    """The inputs of a graph by what AOTAutograd says of them."""
    return {node.meta["desc"]: node for node in graph.nodes if node.op == "placeholder"}


def _about_results(graph: fx.Graph) -> Sequence[object]:
    """What AOTAutograd says of each result."""
    told: Sequence[object] = next(reversed(graph.nodes)).meta["desc"]
    return told


def _is_seen_through(node: fx.Node) -> bool:
    """Views and conversions, and copies, which Inductor drops before it cuts."""
    return node.target is CAST or node.target is torch.ops.aten.clone.default or is_view(node)
