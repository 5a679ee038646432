"""Kernels and their types in the graph that a runtime executes: ONNX Runtime's optimized graph,
OpenVINO's runtime model.

Source: ONNX Runtime 1.31.1 and 1.32, OpenVINO 2026.4.1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from mezzo.contracts.timings import ProductKernels

INTEGERS = frozenset({"i8", "u8"})
_FLOAT, _INTEGER, _UNKNOWN = "f32", "i8", ""
# Name prefixes of ONNX Runtime's kernels with integer inputs.
_INTEGER_KERNELS = (
    "ConvInteger",
    "DynamicQuantize",
    "MatMulInteger",
    "MatMulNBits",
    "QAttention",
    "QGemm",
    "QLinear",
)
_BORDERS = frozenset({"DequantizeLinear", "QuantizeLinear"})
# Operators whose output type is their input type.
_MOVING = frozenset(
    {
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "NhwcMaxPool",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Resize",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
    | {"Where"}
)
_STORED = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
# Name prefixes of convolution, matmul, LSTM and attention kernels.
_PRODUCTS = (
    "Attention", "Conv", "Deconvolution", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul",
    "FullyConnected", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "QAttention",
    "QGemm", "QLinearConv", "QLinearMatMul",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphKernel:
    """One kernel: its kind, input types, output type, and the original nodes fused in it by name.

    Types that the runtime does not report are empty. `operands` and `results` are value names,
    empty if the runtime does not keep the model's.
    """

    kind: str
    reads: tuple[str, ...]
    makes: str
    nodes: frozenset[str]
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.reads[0] if self.reads else _UNKNOWN}>{self.makes}"

    @property
    def is_product(self) -> bool:
        """Whether it multiplies and accumulates: a convolution, matmul, LSTM or attention."""
        return self.kind.startswith(_PRODUCTS)

    @property
    def reads_integers(self) -> bool:
        """Whether its first input is INT8 or UINT8."""
        return self.reads[:1] != () and self.reads[0] in INTEGERS


def kernels_of_onnxruntime(graph: onnx.GraphProto) -> list[GraphKernel]:
    """The kernels of ONNX Runtime's optimized graph."""
    makers = {name: node for node in graph.node for name in node.output}
    stored = {tensor.name for tensor in graph.initializer if tensor.data_type in _STORED}
    kernels = []
    for node in graph.node:
        dtype = _INTEGER if reads_integers(node, makers, stored) else _FLOAT
        kernels.append(
            GraphKernel(
                kind=node.op_type, reads=(dtype,), makes=dtype, nodes=frozenset({node.name}),
                operands=tuple(node.input), results=tuple(node.output),
            )
        )  # fmt: skip
    return kernels


def reads_integers(
    node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], stored: set[str]
) -> bool:
    """Whether an operator of an optimized graph has integer inputs. `stored`: 8-bit constants."""
    if node.op_type in _BORDERS or node.op_type.startswith(_INTEGER_KERNELS):
        return True
    if node.op_type not in _MOVING:
        return False
    source = node.input[1 if node.op_type == "Where" else 0]
    maker = makers.get(source)
    if maker is None:
        return source in stored
    gives_integers = maker.op_type == "QuantizeLinear" or maker.op_type.startswith("QLinear")
    return gives_integers or (maker.op_type in _MOVING and reads_integers(maker, makers, stored))


def kernels_of_openvino(runtime_graph: Any) -> Iterator[GraphKernel]:
    """The kernels of a graph from OpenVINO's `get_runtime_model`."""
    for layer in runtime_graph.get_ordered_ops():
        info = _told(layer)
        reads = [
            _told(layer.input_value(position).get_node()).get("outputPrecisions", "")
            for position in range(layer.get_input_size())
        ]
        names = info.get("originalLayersNames", "")
        # A name may hold a slash, or end with one.
        nodes = frozenset((*re.split(r"[,/]", names), *names.split(",")))
        makes = info.get("outputPrecisions", "").partition(",")[0]
        types = tuple(read.partition(",")[0] for read in reads)
        yield GraphKernel(kind=info.get("layerType", ""), reads=types, makes=makes, nodes=nodes)


def _told(layer: Any) -> dict[str, str]:
    return {str(name): value.astype(str) for name, value in layer.get_rt_info().items()}


def find_products(model: onnx.GraphProto, kernels: Sequence[GraphKernel]) -> ProductKernels:
    """The quantized matmuls and convolutions of a model's main graph, and those that run in floats.

    One whose kernel is not found counts as INT8: the runtime has renamed it.
    """
    dequantized = {
        name for node in model.node if node.op_type == "DequantizeLinear" for name in node.output
    }
    planned = [node for node in model.node if _is_quantized_product(node, dequantized)]
    places = _Places(model, kernels)
    kernel_of = {node.name: places.kernel_of(node) for node in planned}
    in_floats = (
        name
        for name, kernel in kernel_of.items()
        if kernel is not None and not kernel.reads_integers
    )
    return ProductKernels(planned=tuple(node.name for node in planned), in_floats=tuple(in_floats))


def _is_quantized_product(node: onnx.NodeProto, dequantized: set[str]) -> bool:
    if node.op_type in ("ConvInteger", "DynamicQuantizeLSTM", "MatMulInteger"):
        return True
    return node.op_type in ("Conv", "Gemm", "MatMul") and {*node.input[:2]} <= dequantized


class _Places:
    """Lookup of a model's nodes in a runtime's graph by name, or by shared values."""

    def __init__(self, model: onnx.GraphProto, kernels: Sequence[GraphKernel]) -> None:
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._makers = {name: kernel for kernel in kernels for name in kernel.results}
        self._named = {
            name: kernel for kernel in kernels if kernel.is_product for name in kernel.nodes if name
        }

    def kernel_of(self, node: onnx.NodeProto) -> GraphKernel | None:
        """The node's kernel by name, or the nearest before the next value both graphs have."""
        for name in (node.name, *node.output):
            if name in self._named:
                return self._named[name]
        pending, visited = [*node.output], set[str]()
        while pending:
            name = pending.pop(0)
            if name in self._makers:
                return self._nearest_product(self._makers[name])
            for reader in self._readers.get(name, ()):
                pending += [result for result in reader.output if result and result not in visited]
                visited.update(reader.output)
        return None

    def _nearest_product(self, start: GraphKernel) -> GraphKernel | None:
        pending, visited = [start], {start}
        while pending:
            nearest = pending.pop(0)
            if nearest.is_product:
                return nearest
            before = [self._makers[name] for name in nearest.operands if name in self._makers]
            pending += [kernel for kernel in before if kernel not in visited]
            visited.update(before)
        return None
