"""Port roles by fake execution: which inputs and outputs follow an operator's precision."""

from collections.abc import Sequence
from operator import getitem
from typing import NamedTuple

import torch
from torch import fx

from mezzo.aten.program import FROM_DTYPE, TORCH_DTYPES, torch_dtype_of
from mezzo.aten.read.arguments import CallOperand, operands_of
from mezzo.aten.read.retype import as_dtype, dtypes_of, run_fake
from mezzo.aten.read.special import lacks_kernel, stays
from mezzo.aten.torch_internals import FakeTensorMode
from mezzo.formats.dtypes import HIGH, QUANTIZED, DType
from mezzo.ir.nodes import Role, Signature

_NONE: frozenset[torch.dtype] = frozenset()
_FLOATS = frozenset({torch.float64, torch.float32, torch.float16, torch.bfloat16})


class Typed(NamedTuple):
    """Roles of inputs and outputs, and the low dtypes that the operator may run in."""

    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]
    dtype: DType | None
    runs_in: frozenset[torch.dtype]


def role_of(kind: torch.dtype | None) -> Role:
    """The role of a port of dtype `kind`, for an operator whose output type follows its inputs."""
    return Role.GROUP if kind is torch.float32 else Role.FIXED if kind in _FLOATS else Role.ANY


# Results of fake execution, valid for every graph and therefore cached globally.
_ASKED: dict[object, Typed] = {}


class Prober:
    """Determines the result types for low-precision operands, once per kind of call."""

    def __init__(self, mode: FakeTensorMode, owner: torch.nn.Module, lows: Sequence[DType]) -> None:
        self._mode, self._owner = mode, owner
        self._lows = tuple(FROM_DTYPE[low] for low in lows if low not in QUANTIZED)
        self._signatures: dict[object, Signature] = {}

    def ports_of(self, node: fx.Node, operands: Sequence[CallOperand], is_known: bool) -> Typed:
        """The ports of one call. Operators without facts (`is_known` False) keep their types."""
        lows = [low for low in self._lows if is_known and not lacks_kernel(node, low)]
        input_roles = tuple(_role(node, operand) for operand in operands)
        dtypes = tuple(
            None if operand.node is None else torch_dtype_of(operand.node) for operand in operands
        )
        key = (
            tuple(lows),
            node.target,
            dtypes,
            input_roles,
            dtypes_of(node.meta.get("val")),
            _types_in(node),
        )
        if key not in _ASKED:
            _ASKED[key] = self._find(node, input_roles, dtypes, lows)
        return _ASKED[key]

    def ports_of_composite(self, operands: Sequence[fx.Node], results: Sequence[fx.Node]) -> Typed:
        """The ports of a composite, whose pieces compute in FP32 for any input and output types."""
        input_roles = tuple(role_of(torch_dtype_of(operand)) for operand in operands)
        output_roles = tuple(role_of(torch_dtype_of(result)) for result in results)
        follows = Role.GROUP in input_roles and Role.GROUP in output_roles
        if not follows:
            return Typed(_fixed(input_roles), _fixed(output_roles), None, _NONE)
        return Typed(input_roles, output_roles, HIGH, frozenset(self._lows))

    def signature(self, dialect: str, op: str, typed: Typed) -> Signature:
        """The operator's signature, shared by all calls with the same ports."""
        key = dialect, op, typed
        if key not in self._signatures:
            # Between dequantized operands an operator stays in FP32.
            legal = {HIGH, DType.QUANTIZED8} if typed.dtype is not None else set()
            self._signatures[key] = Signature(
                dialect=dialect,
                op=op,
                version=1,
                inputs=typed.inputs,
                outputs=typed.outputs,
                dtype=typed.dtype,
                legal=frozenset(legal.union(TORCH_DTYPES[low] for low in typed.runs_in)),
            )
        return self._signatures[key]

    def _find(
        self,
        node: fx.Node,
        input_roles: tuple[Role, ...],
        dtypes: Sequence[torch.dtype | None],
        lows: Sequence[torch.dtype],
    ) -> Typed:
        high_dtypes = dtypes_of(node.meta.get("val"))
        output_roles = tuple(map(role_of, high_dtypes))
        if not any(
            role is Role.GROUP and dtype is not None
            for role, dtype in zip(input_roles, dtypes, strict=True)
        ):
            return Typed(_fixed(input_roles), _fixed(output_roles), None, _NONE)
        if Role.GROUP not in output_roles and Role.FIXED in output_roles:
            # The program's own conversion.
            return Typed(_fixed(input_roles), output_roles, None, _NONE)
        roles_in = {
            low: roles
            for low in lows
            if (roles := self._roles_in(low, node, output_roles, high_dtypes)) is not None
        }
        roles = next(iter(roles_in.values()), output_roles)
        alike = frozenset(low for low, others in roles_in.items() if others == roles)
        return Typed(input_roles, roles, HIGH, alike)

    def _roles_in(
        self,
        low: torch.dtype,
        node: fx.Node,
        roles: Sequence[Role],
        high_dtypes: Sequence[torch.dtype | None],
    ) -> tuple[Role, ...] | None:
        """Roles of a call's results with operands in a low dtype; None if it cannot run so, or a
        result's dtype is not one that a plan can express, such as complex half.
        """
        low_dtypes = self._try(low, node)
        if low_dtypes is None or len(low_dtypes) != len(high_dtypes):
            return None
        after: list[Role] = []
        for role, high, found in zip(roles, high_dtypes, low_dtypes, strict=True):
            if role is not Role.GROUP and found is high:
                after.append(role)
            elif role is Role.GROUP and found in (low, torch.float32):
                after.append(Role.GROUP if found is low else Role.FIXED)
            else:
                return None
        return tuple(after)

    def _try(self, low: torch.dtype, node: fx.Node) -> tuple[torch.dtype | None, ...] | None:
        """Result dtypes for operands in a low dtype; None if PyTorch rejects them."""

        stay = {operand.node for operand in operands_of(node) if stays(node, operand.argument)}

        def operand_value(operand: fx.Node) -> object:
            value = operand.meta["val"]
            if (
                isinstance(value, torch.Tensor)
                and value.dtype is torch.float32
                and operand not in stay
            ):
                return as_dtype(self._mode, value, low)
            return value

        try:
            return dtypes_of(run_fake(self._mode, node, self._owner, operand_value))
        except Exception:  # noqa: BLE001  # any error means that these types are unsupported
            return None


def _role(node: fx.Node, operand: CallOperand) -> Role:
    if operand.node is None:
        return Role.GROUP  # a scalar takes the type of the tensor operands
    role = role_of(torch_dtype_of(operand.node))
    return Role.FIXED if role is Role.GROUP and stays(node, operand.argument) else role


def _fixed(roles: Sequence[Role]) -> tuple[Role, ...]:
    return tuple(Role.FIXED if role is Role.GROUP else role for role in roles)


def _types_in(node: fx.Node) -> tuple[object, ...]:
    """Dtypes among a call's arguments, such as `dtype=` of a sum."""
    arguments = [*node.args, *node.kwargs.values()]
    return tuple(argument for argument in arguments if isinstance(argument, torch.dtype))


def is_getitem(node: fx.Node) -> bool:
    """Whether a node selects one of several outputs."""
    return node.op == "call_function" and node.target is getitem
