"""What the tables claim of PyTorch's operators, held against PyTorch: they exist, core ones have a row, claims hold."""

import contextlib
import math
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import ModuleType
from typing import Any

import pytest

from mezzo.aten.read.attributes import operand_order
from mezzo.tables.facts import Function, OpFacts
from mezzo.tables.ops import op_facts

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch

tree_leaves, tree_map = torch.utils._pytree.tree_leaves, torch.utils._pytree.tree_map

ATEN, PRIMS = op_facts("aten"), op_facts("prims")
# Core operators without a row, by the reason.
LEFT_OUT = {
    "aten._native_batch_norm_legit.default": "it writes statistics into its operands; its functional form has a row",
    "aten.resize_.default": "it changes its operand in place, which no copy in another type stands for",
}
# A view, whose schema says that it writes.
SAID_TO_WRITE = {"prims.as_strided.default"}
# Rows that keep values where a program is functional: a view of more memory than it shows reads the rest, too.
OF_WHOLE_STORAGE = {"as_strided"}
_SAMPLES = 3  # of each operator; more are other shapes of the same
# Whose operators have no row, or are others called in another way.
_ELSEWHERE = ("linalg", "masked", "special", "sparse", "fft", "signal", "ops.", "jiterator", "_")
_LARGE = 1e8


def row_of(func: Any) -> OpFacts | None:
    """The row a front end takes: that of the overload, else that of the operator."""
    namespace, _, packet = func._schema.name.partition("::")
    rows = op_facts(namespace)
    return rows.get(f"{packet}.{func._overloadname}") or rows.get(packet)


def overloads() -> Iterator[Any]:
    """Every overload of ATen and of the primitives."""
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, packet = schema.name.partition("::")
        if namespace in ("aten", "prims"):
            found = getattr(getattr(torch.ops, namespace), packet, None)
            overload = getattr(found, schema.overload_name or "default", None)
            if overload is not None:
                yield overload


def test_rows_name_operators_and_overloads_that_exist() -> None:
    import torch._inductor.inductor_prims

    missing = []
    for dialect, rows in (("aten", ATEN), ("prims", PRIMS)):
        for op in rows:
            name, _, overload = op.partition(".")
            packet = getattr(getattr(torch.ops, dialect), name, None)
            if packet is None or (overload and overload not in packet.overloads()):
                missing.append(f"{dialect}.{op}")
    assert missing == []


def test_higher_order_rows_name_operators_that_exist() -> None:
    import torch._higher_order_ops

    rows = op_facts("higher_order")
    assert [op for op in rows if not hasattr(torch.ops.higher_order, op)] == []


def test_every_core_operator_has_a_row() -> None:
    unlisted = {str(func) for func in overloads() if torch.Tag.core in func.tags and row_of(func) is None}
    assert unlisted == set(LEFT_OUT)


def writes(func: Any) -> bool:
    """Whether a call changes a tensor that it reads."""
    return any(
        argument.alias_info is not None and argument.alias_info.is_write and not argument.is_out
        for argument in func._schema.arguments
        if str(argument.type) in ("Tensor", "Optional[Tensor]")  # not lists, which TorchScript sorts
    )


def test_no_operator_with_a_row_writes_into_its_operands() -> None:
    """A copy in another type would take what was meant for the operand."""
    writing = {str(func) for func in overloads() if writes(func) and row_of(func) is not None}
    assert writing == SAID_TO_WRITE


# -- claims -----------------------------------------------------------------------------------------------------------


@dataclass
class Claims:
    """What was seen of the operators that samples reach: overloads that break a claim, rows that were asked."""

    made_up: set[str] = field(default_factory=set)
    unbounded: set[str] = field(default_factory=set)
    keeping: set[str] = field(default_factory=set)
    bounded: set[str] = field(default_factory=set)

    def check(self, func: Any, row: OpFacts, args: Any, kwargs: Any, made: Any) -> None:
        results = floats_in(made)
        if results and row.keeps_values and row.op not in OF_WHOLE_STORAGE:
            self.keeping.add(row.op)
            read = numbers_in(tree_leaves((args, kwargs)))
            if not all(
                torch.isin(numbers[~numbers.isnan()], read).all() for numbers in map(torch.Tensor.double, results)
            ):
                self.made_up.add(str(func))
        if results and row.is_bounded and floats_in(args[:1]):
            self.bounded.add(row.op)
            first = tree_map(lambda leaf: leaf * _LARGE if isinstance(leaf, torch.Tensor) else leaf, args[0])
            after = floats_in(func(first, *args[1:], **kwargs))[0]  # norms hand on their statistics behind it
            if (after[after.isfinite()].abs() > math.sqrt(_LARGE) / 2).any():
                self.unbounded.add(str(func))


class Watch(torch.utils._python_dispatch.TorchDispatchMode):
    """Hands each call that reaches ATen to a check."""

    def __init__(self, claims: Claims) -> None:
        super().__init__()
        self.claims = claims

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        row = row_of(func)
        if row is not None and not isinstance(made, int | float | bool):
            self.claims.check(func, row, args, kwargs, made)
        return made


def numbers_in(leaves: list[Any]) -> Any:
    """All numbers that a call reads, and those that fill up: zero, and the ends of a type."""
    parts = [torch.tensor([0.0, math.inf, -math.inf], dtype=torch.float64)]
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            plain = torch.view_as_real(leaf.resolve_conj()) if leaf.is_complex() else leaf
            parts.append(plain.detach().double().flatten())
        elif isinstance(leaf, bool | int | float):
            parts.append(torch.tensor([float(torch.tensor(leaf, dtype=torch.float32))], dtype=torch.float64))
    return torch.cat(parts)


def floats_in(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32]


@pytest.fixture(scope="module")
def claims() -> Claims:
    """Every operator run on sample inputs of PyTorch's own tests."""
    if "expecttest" not in sys.modules:  # those tests need it, and nothing that is used here
        stand_in = ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db

    claiming = {op.partition(".")[0].lstrip("_") for op, row in ATEN.items() if row.keeps_values or row.is_bounded}
    torch.manual_seed(0)
    seen = Claims()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of operators that PyTorch is about to drop
        for op in op_db:
            names = {op.aten_name, op.name.rpartition(".")[2], *(alias.name for alias in op.aliases)}
            if torch.float32 not in op.dtypes or op.name.startswith(_ELSEWHERE) or names.isdisjoint(claiming):
                continue
            for sample in islice(op.sample_inputs("cpu", torch.float32), _SAMPLES):
                with Watch(seen), contextlib.suppress(RuntimeError, NotImplementedError, TypeError, ValueError):
                    op.op(sample.input, *sample.args, **sample.kwargs)  # some are for other builds or devices
    return seen


def test_what_keeps_values_makes_none(claims: Claims) -> None:
    assert claims.made_up == set()
    assert len(claims.keeping) > 60, "samples reach most of the rows that claim it"


def test_what_is_bounded_stays_so_for_large_inputs(claims: Claims) -> None:
    assert claims.unbounded == set()
    assert len(claims.bounded) > 25, "samples reach most of the rows that claim it"


# -- functions --------------------------------------------------------------------------------------------------------

UNARY: dict[Function, Callable[[Any], Any]] = {
    Function.ABS: lambda x: x.abs(),
    Function.EXP: lambda x: x.exp(),
    Function.IDENTITY: lambda x: x,
    Function.LOG: lambda x: x.log(),
    Function.MEAN: lambda x: x.sum() / x.numel(),
    Function.MAX: lambda x: x.flatten().sort().values[-1],
    Function.NEGATE: lambda x: -x,
    Function.RECIPROCAL: lambda x: 1.0 / x,
    Function.RSQRT: lambda x: 1.0 / x**0.5,
    Function.SQRT: lambda x: x**0.5,
    Function.SQUARE: lambda x: x * x,
    Function.SUM: lambda x: x.flatten() @ torch.ones(x.numel()),
    Function.VARIANCE: lambda x: ((x - x.sum() / x.numel()) ** 2).sum() / (x.numel() - 1),
    Function.L2_NORM: lambda x: (x * x).sum() ** 0.5,
}
BINARY: dict[Function, Callable[[Any, Any], Any]] = {
    Function.ADD: lambda x, y: x + y,
    Function.DIVIDE: lambda x, y: x / y,
    Function.MATMUL: lambda x, y: (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2),
    Function.MAXIMUM: lambda x, y: torch.where(x > y, x, y),
    Function.MINIMUM: lambda x, y: torch.where(x > y, y, x),
    Function.MULTIPLY: lambda x, y: x * y,
    Function.POWER: lambda x, y: torch.exp(y * torch.log(x)),
    Function.SUBTRACT: lambda x, y: x - y,
}
# How these are called with one or two tensors alone.
CALLS: dict[str, Callable[..., Any]] = {
    "bmm": lambda x, y: torch.ops.aten.bmm(x[None], y[None])[0],
    "copy": lambda x: torch.ops.aten.copy(torch.zeros_like(x), x),
    "dropout": lambda x: torch.ops.aten.dropout(x, 0.5, False),
    "feature_dropout": lambda x: torch.ops.aten.feature_dropout(x, 0.5, False),
    "max.dim": lambda x: torch.ops.aten.max.dim(x.flatten(), 0)[0],
    "sum": lambda x: torch.ops.aten.sum(x),
    "var_mean": lambda x: torch.ops.aten.var_mean(x)[0],
}
# Of another base, or of no numbers that tell: only scaled.
SCALED = {"exp2": math.log(2), "special_exp2": math.log(2), "log2": math.log(2), "log10": math.log(10)}


def call(op: str, operands: tuple[Any, ...]) -> Any:
    """Call an operator on operands in the order of laws and rules."""
    if op in CALLS:
        return CALLS[op](*operands)
    packet, _, overload = op.partition(".")
    func = getattr(torch.ops.aten, packet)
    func = getattr(func, overload) if overload else func
    order = operand_order(op)
    return func(**dict(zip(order, operands, strict=True))) if order else func(*operands)


@pytest.mark.parametrize("op", [op for op, row in ATEN.items() if row.function in UNARY])
def test_function_of_one_operand_is_what_the_operator_computes(op: str) -> None:
    function = ATEN[op].function
    x = torch.rand(4, 4) + 0.5
    expected, factor = UNARY[function](x), SCALED.get(op, 1.0)
    if function is Function.EXP:
        expected = torch.exp(x * factor)
    elif function is Function.LOG:
        expected = expected / factor
    torch.testing.assert_close(call(op, (x,)), expected, rtol=1e-5, atol=1e-6)  # a few eps of FP32


@pytest.mark.parametrize("op", [op for op, row in ATEN.items() if row.function in BINARY])
def test_function_of_two_operands_is_what_the_operator_computes(op: str) -> None:
    x, y = torch.rand(4, 4) + 0.5, torch.rand(4, 4) + 0.5
    made = call(op, (x, y)).float()  # float_power answers in FP64
    torch.testing.assert_close(made, BINARY[ATEN[op].function](x, y), rtol=1e-5, atol=1e-6)  # a few eps of FP32
