"""One operator alone as a program, planned and run in a region or in none: what it may answer.

In `keep()` and `precision("fp32")` the answer is plain PyTorch's, bit for bit. Elsewhere results are of the program's
own types, and their error against FP64 is at most two roundings of the low type (operands are rounded once, and so is
the result), or 1.05 of what the operator itself errs where it magnifies the rounding of its operands: outside regions
that of autocast, in a forced one that of the operator called in the low type.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import getitem
from typing import Any

import torch
from operator_calls import Call
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from mezzo.aten.marks import KEY
from mezzo.aten.program import Program, ProgramTensor
from mezzo.formats.dtypes import DType
from mezzo.planner.options import Options
from mezzo.plugins.discovery import policies
from mezzo.tables.ops import op_facts
from mezzo.tables.policy import Category
from mezzo.torch.compiler.rewriting import rewrite
from mezzo.torch.compiler.settings import read_settings

tree_flatten, tree_map = torch.utils._pytree.tree_flatten, torch.utils._pytree.tree_map
LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}
REGIONS = (None, "low", "keep", "fp32")
_EXACT = ("keep", "fp32")
_ROUNDINGS = 2
_MOST = 1.05
# What they answer is whatever stands in memory.
_UNSET = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one call. `failure` is None where it holds the law; `plan` is what the operator ran in."""

    call: str
    kind: str
    failure: str | None = None


class Judge:
    """Judges one call, its float operands of one type, in all regions."""

    def __init__(self, call: Call, dtype: torch.dtype, to: str) -> None:
        self.to, self.low = to, LOW[to]
        self.call = _in_type(call, dtype, torch.float32)
        self.kind = str(dtype).removeprefix("torch.")
        self.plain: list[Any] | None = None
        try:
            self.plain = answers(self.call.func, self.call)
        except Exception:  # noqa: BLE001  # whatever it is, PyTorch does not run it either
            return
        self.is_random = torch.Tag.nondeterministic_seeded in call.func.tags
        self.is_unset = call.func._schema.name.partition("::")[2] in _UNSET
        wide = _try(self.call.func, _in_type(call, torch.float64, torch.float32))
        self.right = self.plain if wide is None or self.is_random else wide
        self.plain_error = distance(self.plain, self.right)
        in_low = _try(self.call.func, _in_type(self.call, self.low, torch.float32))
        self.low_error = float("inf") if in_low is None else distance(in_low, self.right)
        with torch.autocast("cpu", self.low):
            cast = _try(self.call.func, self.call)
        self.autocast_error = float("inf") if cast is None else distance(cast, self.right)
        if _autocast_runs_low(call):  # a gradient too, which it runs in the type of the forward call
            self.autocast_error = max(self.autocast_error, self.low_error)

    def judge(self, region: str | None, run: Callable[..., list[Any]], *, with_weights: bool = False) -> Verdict | None:
        """Judge a way of running it in a region; None where plain PyTorch does not run it."""
        if self.plain is None:
            return None
        word = self.to if region == "low" else region
        said = f"{self.kind} to {self.to}, {'no region' if word is None else word}{', weights' if with_weights else ''}"
        try:
            found = run(self.call, word, self.to, with_weights)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a verdict
            failure = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
        else:
            failure = self._against(found, region)
        return Verdict(call=str(self.call), kind=said, failure=failure)

    def _against(self, found: Sequence[Any], region: str | None) -> str | None:
        assert self.plain is not None, "asked of what runs"
        if types_of(found) != types_of(self.plain):
            return f"answers {types_of(found)}, and plain PyTorch {types_of(self.plain)}"
        if self.is_unset:
            return None
        if region in _EXACT:
            return None if all(map(_same, found, self.plain)) else f"is off by {distance(found, self.plain):.2e}"
        if self.is_random:
            return None
        beside = self.low_error if region == "low" else self.autocast_error
        error = distance(found, self.right)
        bound = max(_ROUNDINGS * torch.finfo(self.low).eps / 2, _MOST * max(self.plain_error, beside))
        return None if error <= bound else f"errs by {error:.2e}, and may by {bound:.2e}"


def planned(call: Call, word: str | None, to: str, with_weights: bool) -> list[Any]:
    """Run a call as the one operator of a program, planned and rewritten. Raises MezzoError: it cannot be planned."""
    leaves, tree = tree_flatten((call.args, call.kwargs))
    mode = _fake_mode()
    graph = fx.Graph()
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    inputs = [_placeholder(graph, mode, place, tensor) for place, tensor in enumerate(tensors)]
    waiting = iter(inputs)
    args, kwargs = torch.utils._pytree.tree_unflatten(
        [next(waiting) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree
    )
    node = graph.call_function(call.func, tuple(args), kwargs)
    fakes = tree_map(lambda one: one.meta["val"] if isinstance(one, fx.Node) else one, (tuple(args), kwargs))
    with mode, torch.no_grad():
        node.meta["val"] = call.func(*fakes[0], **fakes[1])
    if word is not None:
        node.meta["custom"] = {KEY: word}
    graph.output(tuple(_results(graph, node)))
    module = fx.GraphModule(torch.nn.Module(), graph)
    weights = {}
    if with_weights:
        held = [(one, real) for one, real in list(zip(inputs, tensors, strict=True))[1:] if real.is_floating_point()]
        weights = {one.name: ProgramTensor(one.name, lambda real=real: real) for one, real in held}  # type: ignore[misc]
    rewrite(Program(graph=module.graph, owner=module, weights=weights, name="one operator"), _options(to))
    module.recompile()

    def run(*given: Any, **named: Any) -> Any:
        here = tree_flatten((given, named))[0]
        return fx.Interpreter(module).run(*[one for one in here if isinstance(one, torch.Tensor)])

    return answers(run, call)


@cache
def _fake_mode() -> FakeTensorMode:
    return FakeTensorMode(shape_env=ShapeEnv())


@cache
def _options(to: str) -> Options:
    return read_settings({"to": to}).planning()


def _placeholder(graph: fx.Graph, mode: FakeTensorMode, place: int, tensor: torch.Tensor) -> fx.Node:
    node = graph.placeholder(f"operand_{place}")
    node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
    return node


def _results(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    """What the program answers: each tensor that the operator makes."""
    made = node.meta["val"]
    if not isinstance(made, tuple | list):
        return [node]
    picked = []
    for place, one in enumerate(made):
        if one is not None:
            picked.append(graph.call_function(getitem, (node, place)))
            picked[-1].meta["val"] = one
            picked[-1].meta |= {key: node.meta[key] for key in ("custom",) if key in node.meta}
    return picked


def answers(run: Callable[..., Any], call: Call) -> list[Any]:
    """What a call answers, drawing the same numbers each time; its operands are copied, as it may write into them."""
    torch.manual_seed(0)
    args, kwargs = tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, (call.args, call.kwargs))
    with torch.no_grad():
        made = run(*args, **kwargs)
    several = made if isinstance(made, tuple | list) else (made,)
    return [one for one in several if one is not None]


def _autocast_runs_low(call: Call) -> bool:
    """Whether autocast runs an operator, or the one whose gradient it is, in the low type."""
    facts = op_facts("aten").get(call.func._schema.name.partition("::")[2])
    policy = policies()["autocast"]
    return facts is not None and policy.judge(("aten", facts.op), facts, DType.BFLOAT16).category is Category.ALLOW


def types_of(made: Sequence[Any]) -> list[Any]:
    """Types and shapes of what was answered."""
    return [(one.dtype, tuple(one.shape)) if isinstance(one, torch.Tensor) else type(one) for one in made]


def distance(found: Sequence[Any], right: Sequence[Any]) -> float:
    """The largest distance of an answer from what it should be, in units of its largest finite number; of integers the
    share that differs. Infinite where one is finite and the other is not.
    """
    worst = 0.0
    for one, other in zip(found, right, strict=True):
        if isinstance(one, torch.Tensor) and one.numel():
            worst = max(worst, _distance(one, other))
        elif not isinstance(one, torch.Tensor) and one != other:
            worst = max(worst, abs(one - other) / max(abs(other), 1e-30))
    return worst


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj().to(one.dtype))
    if not one.is_floating_point():
        return float((one != other).double().mean())
    one, other = one.double(), other.double()
    is_finite = other.isfinite()
    if not torch.equal(torch.where(is_finite, 0.0, one), torch.where(is_finite, 0.0, other)):
        same = torch.where(is_finite, 0.0, one).nan_to_num(1.5), torch.where(is_finite, 0.0, other).nan_to_num(1.5)
        if not torch.equal(*same):
            return float("inf")
    if not is_finite.any():
        return 0.0
    far = (one - other)[is_finite].abs().max() / other[is_finite].abs().max().clamp(min=1e-30)
    return float(far.nan_to_num(nan=float("inf"), posinf=float("inf")))


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    if one.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _in_type(call: Call, dtype: torch.dtype, of: torch.dtype) -> Call:
    """The call with its operands of one float type in another, and where it names that type itself."""

    def other(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.to(dtype) if leaf.dtype is of else leaf
        return dtype if leaf is of else leaf

    args, kwargs = tree_map(other, (call.args, call.kwargs))
    return Call(call.func, tuple(args), kwargs)


def _try(func: Any, call: Call) -> list[Any] | None:
    try:
        return answers(func, call)
    except Exception:  # noqa: BLE001  # it has no such kernel
        return None
