"""Fake-tensor execution of single nodes, to find result types for other operand types."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mezzo.aten.program import attribute_of
from mezzo.aten.torch_internals import (
    FAKE_TENSOR_LOGGER,
    FakeTensor,
    FakeTensorMode,
    detect_fake_mode,
    enable_python_dispatcher,
    in_kernel_invocation_manager,
    without_python_dispatcher,
)

CAST: Any = torch.ops.prims.convert_element_type.default
# In-place write of a result into an input, at the end of a graph.
COPY: Any = torch.ops.aten.copy_.default
# PyTorch's logger, which reports every rejected call as an error with traceback.
_REFUSALS = logging.getLogger(FAKE_TENSOR_LOGGER)


def is_cast(node: fx.Node, dtype: torch.dtype) -> bool:
    """Whether a call is a conversion to `dtype`."""
    return node.target is CAST and node.args[1] is dtype


def fake_mode_of(graph: fx.Graph) -> FakeTensorMode:
    """The fake mode of the graph's fake tensors; a new one if it has none."""
    mode: FakeTensorMode | None = detect_fake_mode([node.meta.get("val") for node in graph.nodes])
    return FakeTensorMode(allow_non_fake_inputs=True) if mode is None else mode


def run_fake(
    mode: FakeTensorMode, node: fx.Node, owner: torch.nn.Module, given: Callable[[fx.Node], Any]
) -> Any:
    """Run a node on fake operands, as returned by `given`. PyTorch's errors propagate."""
    target: Any = node.target

    def read(operand: fx.Node) -> Any:
        value: Any = given(operand) if "val" in operand.meta else attribute_of(owner, operand)
        is_real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        return mode.from_tensor(value) if is_real else value

    args, kwargs = fx.map_arg((node.args, node.kwargs), read)
    with mode, enable_python_dispatcher(), _unlogged():
        return target(*args, **kwargs)


@contextmanager
def _unlogged() -> Iterator[None]:
    """Suppress the log entries of rejected calls: an unsupported type is an expected outcome."""
    _REFUSALS.addFilter(_is_no_refusal)
    try:
        yield
    finally:
        _REFUSALS.removeFilter(_is_no_refusal)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("failed while attempting to run meta")


def as_dtype(mode: FakeTensorMode, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The fake result of converting a tensor: dense for any input strides. Contiguous tensors in
    any dimension order take a fast path without the dispatcher.
    """
    if isinstance(value, FakeTensor) and _fills_memory(
        shape := value.shape, strides := value.stride()
    ):
        with in_kernel_invocation_manager(mode), without_python_dispatcher():
            meta = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
        return FakeTensor(mode, meta, value.device)
    with mode, enable_python_dispatcher():
        return value.to(dtype, copy=True)


def laid_out_as(mode: FakeTensorMode, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A fake tensor with the shape and strides of `value` and another dtype."""
    with mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=dtype, device=value.device)


def is_laid_out_alike(one: object, other: object) -> bool:
    """Whether two fake tensors, or two sequences of them, are known to have equal strides."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        pairs = zip(one.stride(), other.stride(), strict=True)
        return all(statically_known_true(first == second) for first, second in pairs)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return all(map(is_laid_out_alike, one, other))
    return True


def _fills_memory(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor of static sizes is dense: no gaps and no overlapping elements."""
    if not all(isinstance(number, int) for number in (*shape, *strides)):
        return False
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def dtypes_of(made: object) -> tuple[torch.dtype | None, ...]:
    """The dtypes of a node's results; None for each result that is not a tensor."""
    several: Iterable[object] = made if isinstance(made, tuple | list) else (made,)
    return tuple(value.dtype if isinstance(value, torch.Tensor) else None for value in several)
