"""What an operator makes of operands in other types: asked of PyTorch itself, on fake tensors."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mezzo.aten.program import attribute_of

CAST: Any = torch.ops.prims.convert_element_type.default
# Writes a result into an input, behind all else.
COPY: Any = torch.ops.aten.copy_.default
# Where PyTorch logs an error, with its traceback, for each call that it refuses.
_REFUSALS = logging.getLogger("torch._subclasses.fake_tensor")


def is_cast(node: fx.Node, dtype: torch.dtype) -> bool:
    """Whether a call converts to a type."""
    return node.target is CAST and node.args[1] is dtype


def without_python_dispatcher() -> AbstractContextManager[None]:
    """Let operators run as they do when nothing is compiled; while a compiler traces, each goes through Python."""
    made: AbstractContextManager[None] = torch._C._DisablePythonDispatcher()
    return made


def fake_mode_of(graph: fx.Graph) -> FakeTensorMode:
    """The mode that the graph's fake tensors were made under; a new one where it has none."""
    found: FakeTensorMode | None = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
    return FakeTensorMode(allow_non_fake_inputs=True) if found is None else found


def run_fake(mode: FakeTensorMode, node: fx.Node, owner: torch.nn.Module, given: Callable[[fx.Node], Any]) -> Any:
    """Run a node on what `given` says that its operands make. What PyTorch raises is raised."""
    target: Any = node.target

    def read(operand: fx.Node) -> Any:
        held: Any = given(operand) if "val" in operand.meta else attribute_of(owner, operand)
        is_real = isinstance(held, torch.Tensor) and not isinstance(held, FakeTensor)
        return mode.from_tensor(held) if is_real else held

    args, kwargs = fx.map_arg((node.args, node.kwargs), read)
    with mode, enable_python_dispatcher(), _unlogged():
        return target(*args, **kwargs)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep refusals out of the log: that an operator does not take a type, as view_as_complex BF16, is an answer."""
    _REFUSALS.addFilter(_is_no_refusal)
    try:
        yield
    finally:
        _REFUSALS.removeFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("failed while attempting to run meta")


def as_dtype(mode: FakeTensorMode, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What a conversion makes of a fake tensor: dense, whatever is expanded or cut out. Of one that fills its memory,
    in whatever order, it is made without a call through PyTorch's dispatcher.
    """
    if isinstance(value, FakeTensor) and _fills_memory(shape := value.shape, strides := value.stride()):
        with in_kernel_invocation_manager(mode), without_python_dispatcher():
            held = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        return FakeTensor(mode, held, value.device)
    with mode, enable_python_dispatcher():
        return value.to(dtype, copy=True)


def laid_out_as(mode: FakeTensorMode, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A fake tensor of another type, with the strides of the first."""
    with mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=dtype, device=value.device)


def is_laid_out_alike(one: object, other: object) -> bool:
    """Whether two fake tensors, or several in turn, are known to have the same strides."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        pairs = zip(one.stride(), other.stride(), strict=True)
        return all(statically_known_true(first == second) for first, second in pairs)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return all(map(is_laid_out_alike, one, other))
    return True


def _fills_memory(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor of known sizes has each number once, and nothing between them."""
    if not all(isinstance(one, int) for one in (*shape, *strides)):
        return False
    reached = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != reached:
            return False
        reached *= size
    return True


def dtypes_of(made: object) -> tuple[torch.dtype | None, ...]:
    """The types of all that a node makes, None for what is no tensor."""
    several: Iterable[object] = made if isinstance(made, tuple | list) else (made,)
    return tuple(one.dtype if isinstance(one, torch.Tensor) else None for one in several)
