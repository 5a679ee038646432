"""Joint forward and backward graphs, which Inductor partitions after the plan is applied."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from mezzo.aten.program import Program
from mezzo.aten.read.groups import is_view
from mezzo.aten.read.retype import CAST, COPY
from mezzo.torch.compiler.building import CallInserter
from mezzo.torch.torch_internals import (
    GradAOTOutput,
    InputMutationAOTOutput,
    TangentAOTInput,
    functorch_config,
    memory_budget_of,
)
from mezzo.torch.train.joint_nodes import decide, readers
from mezzo.torch.train.rematerialization import keep_least
from mezzo.torch.train.saved_values import Kept


def as_joint(program: Program) -> Program:
    """A joint graph's program: weights are not constant, and gradients have names."""
    return replace(
        program,
        weights={},
        outputs=_returned(program.graph, program.names),
        backward=backward_of(program.graph),
    )


def advise_partitioner(
    graph: fx.Graph, weights: Collection[str], low: torch.dtype, memory: float | None
) -> Kept | None:
    """Mark all nodes to save or recompute; without `memory`, none if the program itself has a
    budget of memory for PyTorch's partitioner.

    `weights` are names of placeholders.
    """
    _compute_once(graph)
    if memory is None and _has_budget(graph):
        return None
    always_alive = [node for node in graph.nodes if node.name in weights]
    return keep_least(graph, backward_of(graph), memory, low, always_alive)


def _has_budget(graph: fx.Graph) -> bool:
    """Whether the program asks PyTorch's partitioner for a budget of memory, in any of its ways."""
    budgets = (memory_budget_of(node) for node in graph.nodes)
    return functorch_config.activation_memory_budget != 1 or any(
        budget is not None for budget in budgets
    )


def give_gradients(graph: fx.Graph, formats: Mapping[str, torch.dtype]) -> None:
    """Return inputs' gradients in given dtypes, by placeholder names, instead of by autograd. A
    final conversion from that dtype is removed.
    """
    end = graph.output_node()
    returned: Any = list(end.args[0])
    for index, source in enumerate(_gradient_sources(graph)):
        gradient = returned[index]
        if source is None or not isinstance(gradient, fx.Node) or source.name not in formats:
            continue
        dtype, value = formats[source.name], gradient.meta["val"]
        if gradient.target is CAST and gradient.all_input_nodes[0].meta["val"].dtype is dtype:
            returned[index] = gradient.all_input_nodes[0]
        elif (
            isinstance(value, torch.Tensor)
            and value.dtype is torch.float32
            and dtype is not torch.float32
        ):
            with graph.inserting_before(end):
                returned[index] = CallInserter(graph, gradient).call(CAST, gradient, dtype)
            returned[index].meta["partitioner_tag"] = "is_backward"
    end.args = (tuple(returned),)
    graph.eliminate_dead_code()


def backward_of(graph: fx.Graph) -> frozenset[fx.Node]:
    """The output gradients and all nodes that depend on them."""
    backward_nodes: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            is_backward = isinstance(node.meta.get("desc"), TangentAOTInput)
        else:
            is_tagged = node.meta.get("partitioner_tag") == "must_be_in_backward"
            is_backward = node.op != "output" and (
                is_tagged or not backward_nodes.isdisjoint(node.all_input_nodes)
            )
        if is_backward:
            backward_nodes.add(node)
    return frozenset(backward_nodes)


def _returned(graph: fx.Graph, names: Mapping[str, str]) -> tuple[str, ...]:
    """The output names of a joint graph: numbers for results, "gradient of WEIGHT" for gradients.

    `names` are the inputs' names, by placeholder name.
    """
    return tuple(
        str(index) if source is None else f"gradient of {names.get(source.name, source.name)}"
        for index, source in enumerate(_gradient_sources(graph))
    )


def _compute_once(graph: fx.Graph) -> None:
    """Save results computed from an input that the forward then overwrites. Recomputation would
    read the new value. For trained floats autograd raises; otherwise plain PyTorch computes wrong
    gradients.
    """
    inputs = _inputs(graph)
    mutated = (
        inputs.get(output.mutated_input)
        for output in _about_results(graph)
        if isinstance(output, InputMutationAOTOutput)
    )
    copy_targets = (node.args[0] for node in graph.nodes if node.target is COPY)
    for written in {*mutated, *copy_targets}:
        for user in readers(written, _is_seen_through) if isinstance(written, fx.Node) else ():
            if not is_view(user):
                decide(user, CheckpointPolicy.MUST_SAVE)


def _inputs(graph: fx.Graph) -> dict[object, fx.Node]:
    """The inputs of a graph, by AOTAutograd's descriptors."""
    return {node.meta["desc"]: node for node in graph.find_nodes(op="placeholder")}


def _gradient_sources(graph: fx.Graph) -> Iterator[fx.Node | None]:
    """The input that each output is the gradient of; None for other outputs."""
    inputs = _inputs(graph)
    for descriptor in _about_results(graph):
        yield inputs.get(descriptor.grad_of) if isinstance(descriptor, GradAOTOutput) else None


def _about_results(graph: fx.Graph) -> Sequence[object]:
    """AOTAutograd's descriptor of each output."""
    descriptors: Sequence[object] = graph.output_node().meta["desc"]
    return descriptors


def _is_seen_through(node: fx.Node) -> bool:
    """Whether a node is a view, conversion or clone; Inductor removes clones itself."""
    return node.target is CAST or node.target is torch.ops.aten.clone.default or is_view(node)
