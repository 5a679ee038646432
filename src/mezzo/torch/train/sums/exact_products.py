"""FP32 matmuls and convolutions of low-precision operands: exact products, summed in FP32.

Each gradient of a convolution is an operator of its own. The input gradient does not depend on the
input's values, nor the weight gradient on the weight's; they take both for their sizes.

Fake kernels call PyTorch's operators, which inspect strides. Inductor assumes that saved tensors
keep their strides from compilation, and a graph that never inspects them would be reused for other
sizes.
"""

from typing import Any

import torch

from mezzo.torch.onednn.kernels import laid_out
from mezzo.torch.operators import define

_ATEN: Any = torch.ops.aten
_SIZES = (
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[]"
    " output_padding, SymInt groups, bool last"
)


def _product(one: Any, other: Any) -> Any:
    return one.float() @ other.float()


def _fake_product(one: Any, other: Any) -> Any:
    return one.new_empty((*one.shape[:-1], other.shape[-1]), dtype=torch.float32)


def _convolution(x: Any, weight: Any, bias: Any, *about: Any) -> Any:
    *sizes, last = about
    result = _ATEN.convolution(
        x.float(), weight.float(), None if bias is None else bias.float(), *sizes
    )
    return laid_out(result, last=last)


def _convolution_input(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    *sizes, last = about
    like = torch.empty_like(x, dtype=torch.float32)  # its values are not read
    mask = [True, False, False]
    result, *_ = _ATEN.convolution_backward(
        gradient.float(), like, weight.float(), None, *sizes, mask
    )
    return laid_out(result, last=last)


def _convolution_weight(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    *sizes, last = about
    like = torch.empty_like(weight, dtype=torch.float32)  # its values are not read
    mask = [False, True, False]
    _, result, _ = _ATEN.convolution_backward(gradient.float(), x.float(), like, None, *sizes, mask)
    return laid_out(result, last=last)


PRODUCT: Any = define("wide_product(Tensor one, Tensor other) -> Tensor", _product, _fake_product)
CONVOLUTION: Any = define(
    f"wide_convolution(Tensor x, Tensor weight, Tensor? bias, {_SIZES}) -> Tensor",
    _convolution,
    _convolution,
)
CONVOLUTION_INPUT: Any = define(
    f"wide_convolution_input(Tensor gradient, Tensor x, Tensor weight, {_SIZES}) -> Tensor",
    _convolution_input,
    _convolution_input,
)
CONVOLUTION_WEIGHT: Any = define(
    f"wide_convolution_weight(Tensor gradient, Tensor x, Tensor weight, {_SIZES}) -> Tensor",
    _convolution_weight,
    _convolution_weight,
)
