"""Bit-exact regions: operators under `keep` run undecomposed, by PyTorch's own kernels.

Inductor decomposes operators, fuses them and omits intermediate rounding, so that results differ
from eager PyTorch in the last bits. Operators to keep are wrapped in custom operators that Inductor
cannot look into.
"""

import functools
import re
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch.fx.traceback import get_current_meta

from mezzo.aten.marks import mark_of, marks_in
from mezzo.aten.torch_internals import OpOverload, schema_of
from mezzo.torch.operators import define
from mezzo.torch.torch_internals import autograd_sequence_number, select_decomp_table

_LIBRARY = torch.library.Library("mezzo_kept", "FRAGMENT")
# Random numbers come from Inductor's generator, and data-dependent shapes are unknown when
# compiling.
_NOT_KEPT = frozenset(
    {
        torch.Tag.nondeterministic_seeded,
        torch.Tag.dynamic_output_shape,
        torch.Tag.data_dependent_output,
    }
)
_TENSORS = frozenset({"Tensor", "List[Tensor]"})
_Decompose = Callable[..., Any]


def decompositions_for(module: fx.GraphModule) -> dict[Any, _Decompose] | None:
    """Inductor's decompositions, disabled in exact regions; None without such regions."""
    if not any(node.mark is not None and node.mark.is_exact for node in marks_in(module)):
        return None
    forward: set[int] = set()  # autograd sequence numbers of undecomposed forward calls
    return {
        op: _unless_kept(decompose, forward) if is_written(op) else decompose
        for op, decompose in select_decomp_table().items()
    }


def _unless_kept(decompose: _Decompose, forward: set[int]) -> _Decompose:
    @functools.wraps(decompose)
    def call(*args: Any, **kwargs: Any) -> Any:
        meta = get_current_meta()
        if meta.get("in_grad_fn", 0) > 0:
            is_kept = meta["grad_fn_seq_nr"][-1] in forward
        else:
            mark = mark_of(meta)
            is_kept = mark is not None and mark.is_exact
            if is_kept:
                forward.add(autograd_sequence_number() - 1)
        return NotImplemented if is_kept else decompose(*args, **kwargs)

    return call


def write_as_kept(owner: fx.GraphModule, bodies: Collection[tuple[str, ...]]) -> None:
    """Replace operators in exact regions, in a graph and these subgraphs, by custom operators.
    Includes autograd's sums of gradients that all come from the region.
    """
    exact_nodes: set[fx.Node] = set()
    for marked in list(marks_in(owner)):
        node = marked.node
        is_sum = node.meta.get("is_gradient_acc", False) and exact_nodes.issuperset(
            node.all_input_nodes
        )
        if not is_sum and (
            marked.mark is None
            or not marked.mark.is_exact
            or (marked.body and marked.body not in bodies)
        ):
            continue
        exact_nodes.add(node)
        if node.op == "call_function" and is_written(node.target):
            node.target = as_written(node.target, _numbers_in(node))
            if marked.body:
                node.graph.owning_module.recompile()


def is_written(target: object) -> bool:
    """Whether an operator only computes new tensors, in contrast to views and in-place writes."""
    if not isinstance(target, OpOverload) or target.namespace == _LIBRARY.ns:
        return False
    schema = schema_of(target)
    has_no_alias = all(value.alias_info is None for value in (*schema.arguments, *schema.returns))
    makes_tensors = bool(schema.returns) and all(
        str(value.type) in _TENSORS for value in schema.returns
    )
    return has_no_alias and makes_tensors and _NOT_KEPT.isdisjoint(target.tags)


def _numbers_in(node: fx.Node) -> tuple[str, ...]:
    """The names of a call's Tensor arguments that are given as numbers."""
    target: Any = node.target
    return tuple(
        parameter.name
        for parameter, argument in zip(schema_of(target).arguments, node.args, strict=False)
        if str(parameter.type) == "Tensor" and not isinstance(_made_by(argument), torch.Tensor)
    )


def _made_by(given: Any) -> Any:
    return given.meta.get("val") if isinstance(given, fx.Node) else given


@functools.cache
def as_written(target: OpOverload, numbers: tuple[str, ...] = ()) -> Any:
    """A custom operator that calls `target`; arguments in `numbers` are scalars."""
    qualified_name, _, signature = str(schema_of(target)).partition("(")
    name = "_".join((qualified_name.replace("::", "_").replace(".", "_"), *numbers))
    for number in numbers:
        signature = re.sub(rf"\bTensor {number}\b", f"Scalar {number}", signature)

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    return define(f"{name}({signature}", call, call, _LIBRARY)
