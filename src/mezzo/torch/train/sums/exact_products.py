"""FP32 products of low operands: they have the same terms, exactly, and sums that nothing rounds.

A convolution's gradients are products of their own: that of its input reads no numbers of the input, that of its weight
none of the weight. They take both for their sizes.

What is said of fake operands is asked of PyTorch's own operators, which look at strides: between the passes Inductor
takes those of what is kept for as they were when it compiled, and a graph that did not look would run at other sizes.
"""

from typing import Any

import torch

from mezzo.torch.onednn.kernels import laid_out

_ATEN: Any = torch.ops.aten
_LIBRARY = torch.library.Library("mezzo", "FRAGMENT")
_LIBRARY.define("wide_product(Tensor one, Tensor other) -> Tensor")
_SIZES = (
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, "
    "bool last"
)
_LIBRARY.define(f"wide_convolution(Tensor x, Tensor weight, Tensor? bias, {_SIZES}) -> Tensor")
_LIBRARY.define(f"wide_convolution_input(Tensor gradient, Tensor x, Tensor weight, {_SIZES}) -> Tensor")
_LIBRARY.define(f"wide_convolution_weight(Tensor gradient, Tensor x, Tensor weight, {_SIZES}) -> Tensor")
PRODUCT: Any = torch.ops.mezzo.wide_product.default
CONVOLUTION: Any = torch.ops.mezzo.wide_convolution.default
CONVOLUTION_INPUT: Any = torch.ops.mezzo.wide_convolution_input.default
CONVOLUTION_WEIGHT: Any = torch.ops.mezzo.wide_convolution_weight.default


@torch.library.impl(_LIBRARY, "wide_product", "CompositeExplicitAutograd")
def _product(one: Any, other: Any) -> Any:
    return one.float() @ other.float()


@torch.library.register_fake("mezzo::wide_product", lib=_LIBRARY)
def _fake_product(one: Any, other: Any) -> Any:
    return one.new_empty((*one.shape[:-1], other.shape[-1]), dtype=torch.float32)


@torch.library.register_fake("mezzo::wide_convolution", lib=_LIBRARY)
@torch.library.impl(_LIBRARY, "wide_convolution", "CompositeExplicitAutograd")
def _convolution(x: Any, weight: Any, bias: Any, *about: Any) -> Any:
    *sizes, last = about
    made = _ATEN.convolution(x.float(), weight.float(), None if bias is None else bias.float(), *sizes)
    return laid_out(made, last=last)


@torch.library.register_fake("mezzo::wide_convolution_input", lib=_LIBRARY)
@torch.library.impl(_LIBRARY, "wide_convolution_input", "CompositeExplicitAutograd")
def _convolution_input(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    *sizes, last = about
    like = torch.empty_like(x, dtype=torch.float32)  # nobody reads its numbers
    mask = [True, False, False]
    made, *_ = _ATEN.convolution_backward(gradient.float(), like, weight.float(), None, *sizes, mask)
    return laid_out(made, last=last)


@torch.library.register_fake("mezzo::wide_convolution_weight", lib=_LIBRARY)
@torch.library.impl(_LIBRARY, "wide_convolution_weight", "CompositeExplicitAutograd")
def _convolution_weight(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    *sizes, last = about
    like = torch.empty_like(weight, dtype=torch.float32)  # nobody reads its numbers
    mask = [False, True, False]
    _, made, _ = _ATEN.convolution_backward(gradient.float(), x.float(), like, None, *sizes, mask)
    return laid_out(made, last=last)
