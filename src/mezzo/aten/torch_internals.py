"""PyTorch's private names for reading and editing graphs: the only place that imports them.

PyTorch has no public equivalent of these. `mezzo.torch.torch_internals` has those of its compiler,
so that reading a program does not load Inductor. `tests/test_architecture.py` keeps private names
out of all other modules.

Versions: `mezzo.torch` accepts 2.11 to 2.13, and the tests run with 2.13.0. With 2.14.1, all names
of both modules were imported, and nothing else was tested.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from mezzo.aten.torch_versions import unsupported_torch

try:
    # Runs operators on fake tensors by their Python kernels, which support symbolic sizes.
    from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher

    # The fake mode of given values, or of the trace that is running.
    from torch._guards import detect_fake_mode as detect_fake_mode

    # The type of operators that call subgraphs: cond, scan, while_loop.
    from torch._ops import HigherOrderOperator as HigherOrderOperator

    # The type of all other operators in functional graphs.
    from torch._ops import OpOverload as OpOverload

    # Tensors without elements, from which dtypes, shapes and strides of a graph's values are read.
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode

    # Makes the meta tensor inside a fake tensor directly, without the dispatcher.
    from torch._subclasses.fake_tensor import (
        in_kernel_invocation_manager as in_kernel_invocation_manager,
    )

    # Reads the elements of weights while a compiler is tracing.
    from torch._subclasses.fake_tensor import unset_fake_temporarily as unset_fake_temporarily

    # What nn.MultiheadAttention and nn.TransformerEncoderLayer call in inference.
    fused_attention: Callable[..., Any] = torch._native_multi_head_attention
    fused_encoder_layer: Callable[..., Any] = torch._transformer_encoder_layer_fwd

    # Registers the operators that quantize and dequantize in exported quantization (PT2E).
    from torch.ao.quantization.fx import _decomposed as _decomposed

    # Disables the Python dispatcher, which a tracing compiler enables for every operator.
    without_python_dispatcher: Callable[[], AbstractContextManager[None]] = (
        torch._C._DisablePythonDispatcher
    )
except (ImportError, AttributeError) as error:
    raise unsupported_torch(error) from error

QUANTIZED_DECOMPOSED: Any = torch.ops.quantized_decomposed

# The logger that reports every call that fails on fake tensors, with its traceback.
FAKE_TENSOR_LOGGER = "torch._subclasses.fake_tensor"


class SchemaValue(Protocol):
    """An argument or result of an operator. `alias_info` is None if it shares no memory."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> object: ...
    @property
    def alias_info(self) -> object: ...


class Schema(Protocol):
    """An operator's signature. `name` is qualified: "aten::add"; str() gives the declaration."""

    @property
    def name(self) -> str: ...
    @property
    def is_mutable(self) -> bool: ...
    @property
    def arguments(self) -> Sequence[SchemaValue]: ...
    @property
    def returns(self) -> Sequence[SchemaValue]: ...


def schema_of(operator: Any) -> Schema:
    """The schema of an `OpOverload`."""
    schema: Schema = operator._schema
    return schema


def overload_of(operator: Any) -> str:
    """The overload's name, such as "Tensor" of aten.add.Tensor."""
    return str(operator._overloadname)
