"""Types of an operator's ports: which follow its precision, which stay, found by running it on fake tensors."""

from collections.abc import Sequence
from operator import getitem
from typing import NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from mezzo.aten.program import FROM_DTYPE, TORCH_DTYPES, tensor_of
from mezzo.aten.read.arguments import Operand, operands_of
from mezzo.aten.read.retype import as_dtype, dtypes_of, run_fake
from mezzo.aten.read.special import lacks_kernel, stays
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Role, Signature

_FLOATS = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


class Typed(NamedTuple):
    """Roles of operands and results, and whether the operator may run low."""

    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]
    dtype: DType | None
    runs_low: bool


def role_of(kind: torch.dtype | None) -> Role:
    """The role of a port by what it holds, where the operator is known to follow its operands."""
    return Role.GROUP if kind is torch.float32 else Role.FIXED if kind in _FLOATS else Role.ANY


# What PyTorch has answered: it says the same of every graph.
_ASKED: dict[object, Typed] = {}


class Prober:
    """Asks each kind of call once what it makes of low operands."""

    def __init__(self, mode: FakeTensorMode, owner: torch.nn.Module, low: DType) -> None:
        self._mode, self._owner, self._low = mode, owner, FROM_DTYPE[low]
        self._signatures: dict[object, Signature] = {}

    def ports_of(self, node: fx.Node, operands: Sequence[Operand], is_known: bool) -> Typed:
        """The ports of one call. `is_known`: facts know the operator; what they do not know keeps its types."""
        is_known = is_known and not lacks_kernel(node)
        reads = tuple(_role(node, operand) for operand in operands)
        kinds = tuple(None if operand.node is None else _dtype(operand.node) for operand in operands)
        key = self._low, node.target, kinds, reads, is_known, dtypes_of(node.meta.get("val")), _types_in(node)
        if key not in _ASKED:
            _ASKED[key] = self._find(node, reads, kinds, is_known)
        return _ASKED[key]

    def ports_of_composite(self, operands: Sequence[fx.Node], results: Sequence[fx.Node]) -> Typed:
        """The ports of pieces that compute in FP32 whatever comes in and goes out."""
        reads = tuple(role_of(_dtype(operand)) for operand in operands)
        makes = tuple(role_of(_dtype(result)) for result in results)
        follows = Role.GROUP in reads and Role.GROUP in makes
        if not follows:
            return Typed(_fixed(reads), _fixed(makes), None, False)
        return Typed(reads, makes, HIGH, True)

    def signature(self, dialect: str, op: str, typed: Typed) -> Signature:
        """The signature of an operator, one for all calls alike."""
        key = dialect, op, typed
        if key not in self._signatures:
            legal = {HIGH} if typed.dtype is not None else set()
            self._signatures[key] = Signature(
                dialect=dialect,
                op=op,
                version=1,
                inputs=typed.inputs,
                outputs=typed.outputs,
                dtype=typed.dtype,
                legal=frozenset(legal | ({TORCH_DTYPES[self._low]} if typed.runs_low else set())),
            )
        return self._signatures[key]

    def _find(
        self, node: fx.Node, reads: tuple[Role, ...], kinds: Sequence[torch.dtype | None], is_known: bool
    ) -> Typed:
        made = dtypes_of(node.meta.get("val"))
        makes = tuple(map(role_of, made))
        if not any(role is Role.GROUP and kind is not None for role, kind in zip(reads, kinds, strict=True)):
            return Typed(_fixed(reads), _fixed(makes), None, False)
        if Role.GROUP not in makes and Role.FIXED in makes:
            return Typed(
                _fixed(reads), makes, None, False
            )  # a conversion of the program's own, which rounds on purpose
        if not is_known:
            return Typed(reads, makes, HIGH, False)
        found = self._try_low(node)
        if found is None or len(found) != len(made):
            return Typed(reads, makes, HIGH, False)
        after = [self._after(*result) for result in zip(makes, made, found, strict=True)]
        if None in after:
            return Typed(reads, makes, HIGH, False)
        return Typed(reads, tuple(role for role in after if role is not None), HIGH, True)

    def _after(self, role: Role, high: torch.dtype | None, low: torch.dtype | None) -> Role | None:
        """The role of a result by what a run on low operands made it; None where that is no type of a plan, as complex
        numbers of halves.
        """
        if role is not Role.GROUP:
            return role if low is high else None
        return Role.GROUP if low is self._low else Role.FIXED if low is torch.float32 else None

    def _try_low(self, node: fx.Node) -> tuple[torch.dtype | None, ...] | None:
        """What a call makes of low operands; None where PyTorch refuses them."""

        stay = {operand.node for operand in operands_of(node) if stays(node, operand.argument)}

        def give(operand: fx.Node) -> object:
            held = operand.meta["val"]
            if isinstance(held, torch.Tensor) and held.dtype is torch.float32 and operand not in stay:
                return as_dtype(self._mode, held, self._low)
            return held

        try:
            return dtypes_of(run_fake(self._mode, node, self._owner, give))
        except Exception:  # noqa: BLE001  # whatever an operator raises, it does not take these types
            return None


def _role(node: fx.Node, operand: Operand) -> Role:
    if operand.node is None:
        return Role.GROUP  # a number is taken as the tensors beside it are
    role = role_of(_dtype(operand.node))
    return Role.FIXED if role is Role.GROUP and stays(node, operand.argument) else role


def _dtype(node: fx.Node) -> torch.dtype | None:
    held = tensor_of(node)
    return None if held is None else held.dtype


def _fixed(roles: Sequence[Role]) -> tuple[Role, ...]:
    return tuple(Role.FIXED if role is Role.GROUP else role for role in roles)


def _types_in(node: fx.Node) -> tuple[object, ...]:
    """Types that a call names itself, as `dtype=` of a sum."""
    held = [*node.args, *node.kwargs.values()]
    return tuple(one for one in held if isinstance(one, torch.dtype))


def is_getitem(node: fx.Node) -> bool:
    """Whether a node picks one result of several."""
    return node.op == "call_function" and node.target is getitem
