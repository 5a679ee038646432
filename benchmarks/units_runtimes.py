"""Which nodes of a model ONNX Runtime and OpenVINO run as one kernel, read from the graphs that they make of it.

A group is what one kernel computes: nodes by the name of their first result. What a runtime folds, moves or drops is in
no group. OpenVINO's graph names most of the layers of a kernel; those it does not name stand where its edges leave room
for them.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

# Operators that move values or compute shapes: whether one of them went into a kernel says nothing.
MOVING = frozenset(
    {"Cast", "Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Pad", "Range"}
    | {"Reshape", "Shape", "Slice", "Split", "Squeeze", "Unsqueeze", "Dropout"}
)
_FUSED = frozenset(
    {"BiasGelu", "BiasSoftmax", "Conv", "FastGelu", "FusedConv", "FusedGemm", "FusedMatMul", "Gelu", "Gemm"}
    | {"LayerNormalization", "QuickGelu", "SimplifiedLayerNormalization", "SkipLayerNormalization"}
)
_SUM_OPERAND = 3  # of ONNX Runtime's blocked convolution
_PASSING = frozenset({"Reorder", "Reshape", "Convert", "Transpose", "Squeeze", "Unsqueeze"})
_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_LINEAR_KERNELS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul", "Subgraph"})
_NORMS = frozenset({"MVN", "NormalizeL2", "RMS"})
_TAKES_IN_BEFORE = _NORMS | {"MatMul", "Subgraph"}
_TAKES_IN = frozenset({"Convolution", "Deconvolution", "Eltwise", "FullyConnected", "MatMul", "MVN", "RMS", "Subgraph"})


@dataclass(frozen=True, slots=True)
class Group:
    """What one kernel computes: the kernel's name, and the nodes."""

    kernel: str
    nodes: frozenset[str]


def node_key(node: onnx.NodeProto) -> str:
    """What names a node here: its first result."""
    return next((name for name in node.output if name), "")


def groups_of_onnxruntime(model: onnx.ModelProto) -> list[Group]:
    """Kernels of several nodes in ONNX Runtime's optimized graphs, at level EXTENDED, and sums in blocked convolutions
    at level ALL.
    """
    return _groups_of_onnxruntime(model, "CPUExecutionProvider")


def groups_of_onnxruntime_cuda(model: onnx.ModelProto) -> list[Group]:
    """Kernels of several nodes in the graphs that ONNX Runtime makes for CUDA. Raises where there is no such device."""
    return _groups_of_onnxruntime(model, "CUDAExecutionProvider")


def _groups_of_onnxruntime(model: onnx.ModelProto, provider: str) -> list[Group]:
    levels = onnxruntime.GraphOptimizationLevel
    optimized = _optimize(model, levels.ORT_ENABLE_EXTENDED, provider)
    makers = {name: node for node in model.graph.node for name in node.output if name}
    held = {name for node in optimized.graph.node for name in node.output}
    held |= {tensor.name for tensor in optimized.graph.initializer} | {port.name for port in optimized.graph.input}
    groups = []
    for node in optimized.graph.node:
        if node.op_type in _FUSED or node.name.startswith("gemm_output_reshape"):
            nodes = _behind(node, makers, held)
            groups.append(Group("Gemm" if node.op_type == "Reshape" else node.op_type, frozenset(nodes)))
    if provider == "CPUExecutionProvider" and any(node.op_type == "Conv" for node in model.graph.node):
        groups = _with_sums(groups, _optimize(model, levels.ORT_ENABLE_ALL, provider), model)
    return _without_folded(groups, model)


def _without_folded(groups: Iterable[Group], model: onnx.ModelProto) -> list[Group]:
    """Groups of several nodes, without those that work on constants alone: those run before the model does."""
    fixed = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" or (node.input and all(name in fixed for name in node.input if name)):
            fixed.update(node.output)
    kept = (Group(group.kernel, group.nodes - fixed) for group in groups)
    return [group for group in kept if len(group.nodes) > 1]


def _optimize(model: onnx.ModelProto, level: Any, provider: str) -> onnx.ModelProto:
    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "optimized.onnx")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(path)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider])
        if provider not in session.get_providers():
            raise RuntimeError(f"ONNX Runtime made no session with {provider}")
        return onnx.load(path)


def _behind(fused: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], held: set[str]) -> set[str]:
    """The original nodes between a kernel's results and the values that are still there."""
    nodes: set[str] = set()
    pending = [makers[name] for name in fused.output if name in makers]
    while pending:
        node = pending.pop()
        if node_key(node) in nodes:
            continue
        nodes.add(node_key(node))
        pending += [makers[name] for name in node.input if name in makers and name not in held]
    return {name for name in nodes if makers[name].op_type not in MOVING}


def _with_sums(groups: list[Group], blocked: onnx.ModelProto, model: onnx.ModelProto) -> list[Group]:
    """Add the residual sums, and the activations after them, that blocked convolutions take in."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    makers = {name: node for node in model.graph.node for name in node.output if name}
    for conv in blocked.graph.node:
        if conv.domain != "com.microsoft.nchwc" or len(conv.input) <= _SUM_OPERAND:
            continue
        result = conv.name.removesuffix("_nchwc")
        added = next((node for node in readers.get(result, ()) if node.op_type == "Add"), None)
        if result not in makers or added is None:
            continue
        nodes = {result, node_key(added)}
        following = readers.get(node_key(added), [])
        if any(attribute.name == "activation" for attribute in conv.attribute) and len(following) == 1:
            nodes.add(node_key(following[0]))
        joined = [group for group in groups if group.nodes & nodes]
        groups = [group for group in groups if not group.nodes & nodes]
        groups.append(Group("nchwc.Conv", frozenset(nodes.union(*(group.nodes for group in joined)))))
    return groups


def groups_of_openvino(model: onnx.ModelProto) -> list[Group]:
    """Kernels of several nodes in OpenVINO's runtime graph."""
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model.SerializeToString()), "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}
    )
    kernels = _Kernels(model, compiled.get_runtime_model())
    return _without_folded(kernels.groups(), model)


class _Kernels:
    """OpenVINO's runtime graph beside the model."""

    def __init__(self, model: onnx.ModelProto, runtime: Any) -> None:
        self._model = model
        self._makers = {name: node for node in model.graph.node for name in node.output if name}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        by_name = {node.name: node for node in model.graph.node if node.name} | self._makers
        self._types: dict[str, str] = {}
        self._following: dict[str, list[str]] = {}
        self._kernel_of: dict[str, str] = {}  # of an original node, by its key
        for kernel in runtime.get_ordered_ops():
            self._note(kernel, by_name)
        self._is_named = set(self._kernel_of.values())

    def _note(self, kernel: Any, by_name: Mapping[str, onnx.NodeProto]) -> None:
        info, title = kernel.get_rt_info(), kernel.get_friendly_name()
        self._types[title] = info["layerType"].astype(str) if "layerType" in info else ""
        for port in kernel.inputs():
            self._following.setdefault(port.get_source_output().get_node().get_friendly_name(), []).append(title)
        if self._types[title] in ("Const", "Input", "Output", "") or "originalLayersNames" not in info:
            return
        for layer in info["originalLayersNames"].astype(str).split(","):
            node = by_name.get(layer) or by_name.get(layer.removesuffix("/WithoutBiases"))
            if node is not None:
                self._kernel_of.setdefault(node_key(node), title)

    def groups(self) -> Iterator[Group]:
        """What each kernel computes, nodes that the graph does not name put where they must be."""
        for node in self._model.graph.node:
            if node_key(node) not in self._kernel_of:
                place = self._place(node)
                if place is not None:
                    self._kernel_of[node_key(node)] = place
        nodes: dict[str, set[str]] = {}
        for key, kernel in self._kernel_of.items():
            if self._makers[key].op_type not in MOVING:
                nodes.setdefault(kernel, set()).add(key)
        for kernel, members in nodes.items():
            yield Group(self._types[kernel], frozenset(members))

    def _place(self, node: onnx.NodeProto) -> str | None:
        """The kernel of a node without a name: one without a name between its neighbours, else the one before it."""
        before = [self._kernel_of[name] for name in map(self._key_of, node.input) if name in self._kernel_of]
        behind = set(self._kernels_behind(node))
        around = sorted(behind & set(before))
        if node.op_type in _LINEAR:
            linear = [kernel for kernel in sorted(behind) if self._types[kernel] in _LINEAR_KERNELS]
            return (around or linear or [None])[0]
        taken_in = [kernel for kernel in sorted(behind) if self._types[kernel] in _TAKES_IN_BEFORE]
        if around or (taken_in and (node.op_type == "Transpose" or self._types[taken_in[0]] in _NORMS)):
            return around[0] if around else taken_in[0]
        for kernel in before:
            reached, unnamed = self._reach(kernel)
            if unnamed & self._leading_to(behind):
                return sorted(unnamed & self._leading_to(behind))[0]
            if reached & behind and self._types[kernel] in _TAKES_IN:
                return kernel
            if kernel not in self._is_named:
                return kernel
        return None

    def _key_of(self, name: str) -> str:
        return node_key(self._makers[name]) if name in self._makers else ""

    def _kernels_behind(self, node: onnx.NodeProto) -> Iterable[str]:
        """Kernels of the nearest named readers."""
        met: set[str] = set()
        pending = [node]
        while pending:
            for name in pending.pop().output:
                for reader in self._readers.get(name, ()):
                    key = node_key(reader)
                    if key in self._kernel_of:
                        yield self._kernel_of[key]
                    elif key not in met:
                        met.add(key)
                        pending.append(reader)

    def _reach(self, kernel: str) -> tuple[set[str], set[str]]:
        """Named kernels, and others that compute, that read a kernel's result, moves between seen through."""
        named: set[str] = set()
        unnamed: set[str] = set()
        pending, met = [kernel], {kernel}
        while pending:
            for following in self._following.get(pending.pop(), ()):
                if following in met:
                    continue
                met.add(following)
                if following in self._is_named:
                    named.add(following)
                elif self._types[following] not in _PASSING:
                    unnamed.add(following)
                if self._types[following] in _PASSING:
                    pending.append(following)
        return named, unnamed

    def _leading_to(self, kernels: set[str]) -> set[str]:
        """Kernels without a name that some of these read."""
        return {
            title
            for title in self._types
            if title not in self._is_named and self._types[title] in _TAKES_IN and self._reach(title)[0] & kernels
        }
