"""Kernels of the graphs that runtimes make of a model: ONNX Runtime's optimized graph, OpenVINO's runtime graph.

Read from ONNX Runtime 1.31.1 and 1.32, and OpenVINO 2026.4.1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from mezzo.contracts.timings import ProductKernels

INTEGERS = frozenset({"i8", "u8"})
_FLOAT, _INTEGER, _UNKNOWN = "f32", "i8", ""
# Kernels of ONNX Runtime that read integers, by how their names begin.
_INTEGER_KERNELS = ("ConvInteger", "DynamicQuantize", "MatMulInteger", "MatMulNBits", "QAttention", "QGemm", "QLinear")
_BORDERS = frozenset({"DequantizeLinear", "QuantizeLinear"})
# Those that hand on the type that they read.
_MOVING = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "NhwcMaxPool", "Pad", "ReduceMax"}
    | {"ReduceMin", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
    | {"Where"}
)
_STORED = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
# Products, by how the names of their kernels begin.
_PRODUCTS = (
    "Attention", "Conv", "Deconvolution", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "FullyConnected",
    "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphKernel:
    """One kernel: its kind, the types that it reads and makes, and the nodes of the model in it by name, as far as the
    runtime tells; a type that it does not tell is empty. `operands` and `results` are names of values, of a runtime
    that keeps those of the model.
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
        """Whether it multiplies and sums up: a convolution, a matrix product, or attention."""
        return self.kind.startswith(_PRODUCTS)

    @property
    def reads_integers(self) -> bool:
        """Whether its first operand is stored in eight bits."""
        return self.reads[:1] != () and self.reads[0] in INTEGERS


def kernels_of_onnxruntime(graph: onnx.GraphProto) -> list[GraphKernel]:
    """The kernels of an optimized graph of ONNX Runtime."""
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


def reads_integers(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], stored: set[str]) -> bool:
    """Whether an operator of an optimized graph computes on integers. `stored`: constants in eight bits."""
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
    """The kernels of what OpenVINO's `get_runtime_model` gives."""
    for layer in runtime_graph.get_ordered_ops():
        told = _told(layer)
        reads = [
            _told(layer.input_value(at).get_node()).get("outputPrecisions", "") for at in range(layer.get_input_size())
        ]
        names = told.get("originalLayersNames", "")
        nodes = frozenset((*re.split(r"[,/]", names), *names.split(",")))  # a name may hold a slash, or end with one
        makes = told.get("outputPrecisions", "").partition(",")[0]
        types = tuple(read.partition(",")[0] for read in reads)
        yield GraphKernel(kind=told.get("layerType", ""), reads=types, makes=makes, nodes=nodes)


def _told(layer: Any) -> dict[str, str]:
    return {str(name): value.astype(str) for name, value in layer.get_rt_info().items()}


def find_products(model: onnx.GraphProto, kernels: Sequence[GraphKernel]) -> ProductKernels:
    """The products of a model's main graph that read dequantized data or integers, and those that the runtime's kernels
    compute in floats. One whose kernel is not found counts as in integers: the runtime names it otherwise.
    """
    dequantized = {name for node in model.node if node.op_type == "DequantizeLinear" for name in node.output}
    planned = [node for node in model.node if _is_quantized_product(node, dequantized)]
    places = _Places(model, kernels)
    kernel_of = {node.name: places.kernel_of(node) for node in planned}
    in_floats = (name for name, kernel in kernel_of.items() if kernel is not None and not kernel.reads_integers)
    return ProductKernels(planned=tuple(node.name for node in planned), in_floats=tuple(in_floats))


def _is_quantized_product(node: onnx.NodeProto, dequantized: set[str]) -> bool:
    if node.op_type in ("ConvInteger", "DynamicQuantizeLSTM", "MatMulInteger"):
        return True
    return node.op_type in ("Conv", "Gemm", "MatMul") and {*node.input[:2]} <= dequantized


class _Places:
    """Where the nodes of a model are in a runtime's graph: by name, or by the values that are still there."""

    def __init__(self, model: onnx.GraphProto, kernels: Sequence[GraphKernel]) -> None:
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._makers = {name: kernel for kernel in kernels for name in kernel.results}
        self._named = {name: kernel for kernel in kernels if kernel.is_product for name in kernel.nodes if name}

    def kernel_of(self, node: onnx.NodeProto) -> GraphKernel | None:
        """The product's kernel: the one of its name, or the nearest before the first value behind it that is left."""
        for name in (node.name, *node.output):
            if name in self._named:
                return self._named[name]
        pending, seen = [*node.output], set[str]()
        while pending:
            name = pending.pop(0)
            if name in self._makers:
                return self._nearest_product(self._makers[name])
            for reader in self._readers.get(name, ()):
                pending += [result for result in reader.output if result and result not in seen]
                seen.update(reader.output)
        return None

    def _nearest_product(self, kernel: GraphKernel) -> GraphKernel | None:
        pending, seen = [kernel], {kernel}
        while pending:
            nearest = pending.pop(0)
            if nearest.is_product:
                return nearest
            before = [self._makers[name] for name in nearest.operands if name in self._makers]
            pending += [one for one in before if one not in seen]
            seen.update(before)
        return None
