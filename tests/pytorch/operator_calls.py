"""Calls of single core ATen operators, with operands: those that PyTorch's own tests make, and a few for the rest."""

import contextlib
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import ModuleType
from typing import Any

import torch

tree_leaves = torch.utils._pytree.tree_leaves
# Core operators that no program of tensors calls by itself: they answer sizes, or write into what they are given.
LEFT_OUT = {
    **dict.fromkeys(
        (
            "aten.sym_is_contiguous.default",
            "aten.sym_numel.default",
            "aten.sym_size.int",
            "aten.sym_storage_offset.default",
            "aten.sym_stride.int",
        ),
        "it answers a size",
    ),
    "aten.atan2.out": "it writes into an operand",
    "aten._native_batch_norm_legit.default": "it writes statistics into its operands",
    "aten.resize_.default": "it writes into its operand",
}
# Which sample inputs take minutes and reach nothing that others do not.
_NOT_ASKED = ("linalg", "masked", "sparse", "signal", "ops.", "jiterator", "_refs", "svd", "pca_lowrank")


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an operator, with operands in FP32 where they are floats."""

    func: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        operands = [
            f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
            if isinstance(leaf, torch.Tensor)
            else f"{leaf!r}"
            for leaf in tree_leaves((self.args, self.kwargs))
        ]
        return f"{self.func}({', '.join(operands)})"


def core_operators() -> dict[str, Any]:
    """Every overload that PyTorch calls core, by its name."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, packet = schema.name.partition("::")
        operators = getattr(torch.ops.aten, packet, None) if namespace == "aten" else None
        func = getattr(operators, schema.overload_name or "default", None)
        if func is not None and torch.Tag.core in func.tags:
            found[str(func)] = func
    return dict(sorted(found.items()))


def calls_of(samples: int, tries: int) -> list[Call]:
    """At most `samples` calls of each core operator, among those that the first `tries` sample inputs of each of
    PyTorch's operators come to; the calls below where they come to none.
    """
    core, counted = set(core_operators().values()) - {None}, Counter[Any]()
    taken: list[Call] = []

    class Noting(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            call = Call(func, *_copied(args, kwargs or {}))
            if func in core and str(func) not in LEFT_OUT and counted[func] < samples:
                counted[func] += 1
                taken.append(call)
            return func(*args, **(kwargs or {}))

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of operators that PyTorch is about to drop
        for op, sample in _samples(tries):
            with Noting(), contextlib.suppress(Exception):  # some are for other builds or devices
                op.op(sample.input, *sample.args, **sample.kwargs)
        for call in written_calls():
            if counted[call.func] < samples:
                counted[call.func] += 1
                taken.append(call)
    return sorted(taken, key=lambda call: str(call.func))


def _copied(args: Any, kwargs: Any) -> Any:
    """Operands as they were before the call: it may write into them, or be called on a view of what changes later."""

    def copied(leaf: Any) -> Any:
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf

    return torch.utils._pytree.tree_map(copied, (tuple(args), dict(kwargs)))


def _samples(tries: int) -> Iterator[tuple[Any, Any]]:
    if "expecttest" not in sys.modules:  # PyTorch's tests need it, and nothing that is used here
        stand_in = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
        if dtype not in op.dtypes or op.name.startswith(_NOT_ASKED):
            continue
        torch.manual_seed(0)
        with contextlib.suppress(Exception):  # some are for other builds or devices
            yield from ((op, sample) for sample in islice(op.sample_inputs("cpu", dtype), tries))


def written_calls() -> Sequence[Call]:
    """Calls that no sample input comes to."""
    aten: Any = torch.ops.aten
    generator = torch.Generator().manual_seed(0)

    def floats(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    def whole(*shape: int, most: int = 8) -> torch.Tensor:
        return torch.randint(0, most, shape, generator=generator)

    norm, group, weight = floats(4, 6), floats(2, 4, 5), floats(4, 3, 3, 3)
    layer = aten.native_layer_norm.default(norm, [6], floats(6), floats(6), 1e-5)
    grouped = aten.native_group_norm.default(group, floats(4), floats(4), 2, 4, 5, 2, 1e-5)
    return (
        *(Call(getattr(aten, f"bitwise_{name}").Tensor, (whole(3, 4), whole(3, 4))) for name in ("and", "or", "xor")),
        *(Call(getattr(aten, f"bitwise_{name}").Scalar, (whole(3, 4), 5)) for name in ("and", "or", "xor")),
        Call(aten.bitwise_not.default, (whole(3, 4),)),
        Call(aten.any.dims, (floats(3, 4) > 1, [1])),
        Call(aten.clamp.default, (floats(3, 4), -0.3, 0.7)),
        Call(aten.ge.Scalar, (floats(3, 4), 0.25)),
        Call(aten.masked_scatter.default, (floats(3, 4), floats(3, 4) > 0, floats(12))),
        Call(aten.copy.default, (floats(3, 4), floats(3, 4))),
        Call(aten.copy.default, (floats(3, 4), whole(3, 4))),
        Call(aten.div.Scalar_mode, (floats(3, 4), 0.7), {"rounding_mode": "floor"}),
        Call(aten.fmod.Scalar, (floats(3, 4), 0.7)),
        Call(aten.gt.Scalar, (floats(3, 4), 0.25)),
        Call(aten.pow.Scalar, (2.5, floats(3, 4))),
        Call(aten.randperm.default, (7,)),
        Call(aten.scatter.value, (floats(3, 4), 1, torch.tensor([[0, 2]]), 0.3)),
        Call(aten.var.dim, (floats(3, 4), [1])),
        Call(aten.upsample_bilinear2d.vec, (floats(1, 2, 4, 5), [8, 9], True, None)),
        Call(aten.upsample_nearest2d.vec, (floats(1, 2, 4, 5), None, [2.0, 2.0])),
        Call(aten.reflection_pad2d.default, (floats(1, 2, 4, 5), [1, 2, 1, 1])),
        Call(aten.reflection_pad3d.default, (floats(1, 2, 4, 5, 3), [1, 1, 1, 2, 1, 1])),
        Call(aten.replication_pad3d.default, (floats(1, 2, 4, 5, 3), [1, 1, 1, 2, 1, 1])),
        Call(aten._native_batch_norm_legit.no_stats, (floats(3, 4, 5), floats(4), floats(4), True, 0.1, 1e-5)),
        Call(
            aten._native_batch_norm_legit_no_training.default,
            (floats(3, 4, 5), floats(4), floats(4), floats(4), floats(4).abs() + 0.1, 0.1, 1e-5),
        ),
        Call(
            aten.native_layer_norm_backward.default,
            (floats(4, 6), norm, [6], layer[1], layer[2], floats(6), floats(6), [True] * 3),
        ),
        Call(
            aten.native_group_norm_backward.default,
            (floats(2, 4, 5), group, grouped[1], grouped[2], floats(4), 2, 4, 5, 2, [True] * 3),
        ),
        Call(aten._adaptive_avg_pool2d_backward.default, (floats(1, 2, 2, 2), floats(1, 2, 4, 6))),
        Call(aten.adaptive_avg_pool1d.default, (floats(1, 2, 6), [3])),
        Call(aten.avg_pool1d.default, (floats(1, 2, 6), [2])),
        Call(
            aten.avg_pool2d_backward.default,
            (floats(1, 2, 2, 3), floats(1, 2, 4, 6), [2, 2], [2, 2], [0, 0], False, True, None),
        ),
        Call(aten._embedding_bag.default, (floats(8, 4), whole(6), torch.tensor([0, 2, 3]))),
        Call(aten.embedding_dense_backward.default, (floats(3, 5, 4), whole(3, 5), 8, -1, False)),
        Call(
            aten.convolution_backward.default,
            (floats(2, 4, 4, 4), floats(2, 3, 4, 4), weight, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3),
        ),
        Call(aten.native_dropout.default, (floats(4, 6), 0.4, True)),
        Call(aten.col2im.default, (floats(2, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1])),
    )
