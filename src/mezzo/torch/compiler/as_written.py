"""What `keep` keeps runs as it is written: each operator whole, by PyTorch's own kernel, in its order.

A compiler takes operators apart, computes several in one kernel, and leaves out roundings between them, so the last
bits are others than eager PyTorch's. What is kept stays whole, as an operator that the compiler knows nothing of.
"""

import functools
import re
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx
from torch._inductor.decomposition import select_decomp_table
from torch.fx.traceback import get_current_meta

from mezzo.aten.marks import mark_of, marks_in

_LIBRARY = torch.library.Library("mezzo_kept", "FRAGMENT")
# Draws of random numbers are the compiler's, and how much some give is known only when they run.
_NOT_KEPT = frozenset(
    {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
)
_TENSORS = frozenset({"Tensor", "List[Tensor]"})
_Decompose = Callable[..., Any]


def decompositions_for(module: fx.GraphModule) -> dict[Any, _Decompose] | None:
    """Inductor's decompositions without those of what is kept in a graph of Dynamo; None where nothing is kept."""
    if not any(found.mark is not None and found.mark.is_exact for found in marks_in(module)):
        return None
    forward: set[int] = set()  # of what was left whole in the forward, by what autograd numbers its backward with
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
                forward.add(torch.autograd._get_sequence_nr() - 1)
        return NotImplemented if is_kept else decompose(*args, **kwargs)

    return call


def write_as_kept(owner: fx.GraphModule, bodies: Collection[tuple[str, ...]]) -> None:
    """Let operators that a region keeps be such as no compiler knows: in a graph, and in the bodies of these paths.
    Autograd's own sums of what comes from the region alone are in it too.
    """
    kept: set[fx.Node] = set()
    for found in list(marks_in(owner)):
        node = found.node
        is_sum = node.meta.get("is_gradient_acc", False) and kept.issuperset(node.all_input_nodes)
        if not is_sum and (found.mark is None or not found.mark.is_exact or (found.body and found.body not in bodies)):
            continue
        kept.add(node)
        if node.op == "call_function" and is_written(node.target):
            node.target = as_written(node.target, _numbers_in(node))
            if found.body:
                node.graph.owning_module.recompile()


def is_written(target: object) -> bool:
    """Whether an operator computes tensors, and nothing else: views and writes hold no numbers of their own."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace == _LIBRARY.ns:
        return False
    schema = target._schema
    is_alone = all(one.alias_info is None for one in (*schema.arguments, *schema.returns))
    makes_tensors = bool(schema.returns) and all(str(one.type) in _TENSORS for one in schema.returns)
    return is_alone and makes_tensors and _NOT_KEPT.isdisjoint(target.tags)


def _numbers_in(node: fx.Node) -> tuple[str, ...]:
    """The operands of a call that are numbers where its operator takes tensors."""
    target: Any = node.target
    return tuple(
        about.name
        for about, given in zip(target._schema.arguments, node.args, strict=False)
        if str(about.type) == "Tensor" and not isinstance(_made_by(given), torch.Tensor)
    )


def _made_by(given: Any) -> Any:
    return given.meta.get("val") if isinstance(given, fx.Node) else given


@functools.cache
def as_written(target: torch._ops.OpOverload, numbers: tuple[str, ...] = ()) -> Any:
    """An operator that calls another, and that no compiler knows; operands of these names are numbers."""
    spelled, _, signature = str(target._schema).partition("(")
    name = "_".join((spelled.replace("::", "_").replace(".", "_"), *numbers))
    for number in numbers:
        signature = re.sub(rf"\bTensor {number}\b", f"Scalar {number}", signature)
    _LIBRARY.define(f"{name}({signature}")

    def call(*args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    _LIBRARY.impl(name, call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_LIBRARY.ns}::{name}", call, lib=_LIBRARY)
    return getattr(torch.ops.mezzo_kept, name).default
