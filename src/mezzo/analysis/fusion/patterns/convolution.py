"""Fusion patterns of convolutions with epilogues: BatchNormalization or scale and shift,
activation, residual addition, activation.
"""

from mezzo.analysis.fusion import activations
from mezzo.analysis.fusion.chains import (
    Stage,
    adds_residual,
    chain,
    is_along,
    moves_by_constant,
    normalizes_batch,
)
from mezzo.analysis.fusion.unit import Constraint, FusedKernel, Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.ir.nodes import Node

_ORT = "ONNX Runtime 1.31.1"
_OPENVINO = "OpenVINO 2026.4.1"
_TENSORRT = "TensorRT 10.15"
_BLOCK = 8  # smallest channel block of ONNX Runtime's NCHWc kernels
# A Cast between its nodes prevents the fusion. INT8 kernels can write floats, but a Cast to FP32
# after a BF16 kernel is a separate kernel.
_BF16 = Constraint(
    formats=frozenset({DType.BFLOAT16}), writes_free=frozenset({DType.INT8, DType.UINT8})
)
_HALVES = Constraint(formats=HALF_FORMATS)


def _is_conv(view: FusionView, node: Node) -> bool:
    return view.op(node) == "Conv"


def _is_convolution(view: FusionView, node: Node) -> bool:
    return view.op(node) in ("Conv", "ConvTranspose")


def _moves_channels(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node is BatchNormalization, or adds or multiplies by a per-channel constant, which
    is folded into the weights.
    """
    if normalizes_batch(view, node, last):
        return True
    value = last.outputs[0]
    sizes = None if value is None else view.graph.shapes.get(value)
    return (
        sizes is not None
        and moves_by_constant(view, node, last)
        and is_along(view, node, len(sizes) - 1)
    )


def _adds_in_blocks(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node is a residual addition of images with a multiple of the block's channels."""
    sizes = view.shape(node, 0) or view.shape(node, 1)
    channels = sizes[1] if sizes is not None and len(sizes) == 4 else None
    return channels is not None and channels % _BLOCK == 0 and adds_residual(view, node, last)


_FOLD = Stage(test=_moves_channels, most=4)
_RESIDUAL = Stage(test=adds_residual)

_ORT_ACTIVATIONS = frozenset({"Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
_ORT_AFTER_SUM = frozenset({"Relu", "Sigmoid", "Tanh"})
_TENSORRT_ACTIVATIONS = frozenset({"Clip", "Gelu", "LeakyRelu", "Relu", "gelu-erf", "gelu-tanh"})
_OPENVINO_SIMPLE = Stage(activations=activations.OPENVINO, test=_moves_channels, most=8)

PATTERNS = (
    Pattern(
        name="convolution",
        summary=(
            "a convolution, BatchNormalization or scale and shift, activation, residual sum,"
            " activation"
        ),
        kernels=(
            FusedKernel(
                target="onnxruntime-cpu",
                order=20,
                make=chain(
                    (_FOLD, Stage(activations=_ORT_ACTIVATIONS)),
                    (_FOLD, Stage(test=_adds_in_blocks), Stage(activations=_ORT_AFTER_SUM)),
                    seeds=_is_conv,
                ),
                source=(
                    "optimized graphs at levels EXTENDED (FusedConv) and ALL (nchwc.Conv with a"
                    " sum)"
                ),
                since=_ORT,
            ),
            FusedKernel(
                target="onnxruntime-cuda",
                order=20,
                make=chain((_FOLD,), seeds=_is_conv),
                source=(
                    "optimized graphs at level EXTENDED: scales and shifts in the weights; no"
                    " activation, no sum"
                ),
                since=_ORT,
                constraint=_HALVES,
            ),
            FusedKernel(
                target="openvino-cpu",
                order=20,
                make=chain(
                    (_OPENVINO_SIMPLE, _RESIDUAL, _OPENVINO_SIMPLE),
                    seeds=_is_convolution,
                ),
                source="runtime graphs: Convolution with original layers Conv, Add, Relu",
                since=_OPENVINO,
                constraint=_BF16,
            ),
            FusedKernel(
                target="tensorrt",
                order=20,
                make=chain(
                    (_FOLD, Stage(activations=_TENSORRT_ACTIVATIONS)),
                    (_FOLD, _RESIDUAL, Stage(activations=_TENSORRT_ACTIVATIONS)),
                    seeds=_is_conv,
                ),
                source=(
                    "documentation, Layer Fusion Catalog (Convolution and activation, scale,"
                    " element-wise sum)"
                ),
                since=_TENSORRT,
                constraint=_HALVES,
            ),
        ),
    ),
)
