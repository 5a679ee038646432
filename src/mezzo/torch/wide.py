"""FP32 products of low operands: they have the same terms, exactly, and sums that nothing rounds."""

from typing import Any

import torch

from mezzo.torch.kernels import layout_of

_ATEN: Any = torch.ops.aten
_LIBRARY = torch.library.Library("mezzo", "FRAGMENT")
_LIBRARY.define("wide_product(Tensor one, Tensor other) -> Tensor")
_LIBRARY.define(
    "wide_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
    "bool transposed, int[] output_padding, int groups, bool last) -> Tensor"
)
PRODUCT: Any = torch.ops.mezzo.wide_product.default
CONVOLUTION: Any = torch.ops.mezzo.wide_convolution.default


@torch.library.impl(_LIBRARY, "wide_product", "CompositeExplicitAutograd")
def _product(one: Any, other: Any) -> Any:
    return one.float() @ other.float()


@torch.library.register_fake("mezzo::wide_product", lib=_LIBRARY)
def _fake_product(one: Any, other: Any) -> Any:
    return one.new_empty((*one.shape[:-1], other.shape[-1]), dtype=torch.float32)


@torch.library.impl(_LIBRARY, "wide_convolution", "CompositeExplicitAutograd")
def _convolution(x: Any, weight: Any, bias: Any, *about: Any) -> Any:
    *sizes, last = about
    made = _ATEN.convolution(x.float(), weight.float(), None if bias is None else bias.float(), *sizes)
    return made.contiguous(memory_format=layout_of(x.dim(), last=last))


@torch.library.register_fake("mezzo::wide_convolution", lib=_LIBRARY)
def _fake_convolution(x: Any, weight: Any, bias: Any, *about: Any) -> Any:
    return _convolution(x, weight, bias, *about)
