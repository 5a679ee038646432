"""Whether a runtime runs a form on integers, and right: read from the graph that it makes of it, and from its answers.

Each attempt raises RuntimeError with the reason where it does not.
"""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from mezzo.onnx.profile.runtime_graphs import (
    INTEGERS,
    GraphKernel,
    kernels_of_onnxruntime,
    kernels_of_openvino,
)
from mezzo.onnx.run.runtime_libraries import load_onnxruntime, load_openvino
from probe.attempts import Feeds
from probe.quantized_forms import ASKED, FOLLOWER, QUANTIZE, READER, Array, run_plainly

# Steps of a 255th of what a result spans: each Quantize on the way may round to the number beside.
_MOST_STEPS = 2.5
_LONGEST_LIST = 4

_SHAPING = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})  # around products, whatever they hand on
_COMPILED = {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_NUM_THREADS": 1}


def ask_onnxruntime(model: bytes, feeds: Feeds | None) -> None:
    """Refuse what ONNX Runtime's CPU provider leaves in floats, or answers wrong."""
    onnxruntime = load_onnxruntime()
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "kept.onnx")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(kept)
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        answers: list[Array] = session.run(None, dict(feeds or {}))
        graph = onnx.load(kept).graph
    asked = onnx.load_from_string(model)
    operator = next(node.op_type for node in asked.graph.node if node.name == ASKED)
    floats = [op for op in _floats(graph) if op == operator or op not in _SHAPING]
    if floats:
        raise RuntimeError(f"{_spell(floats)} in f32")
    wanted = sum(node.op_type == "QuantizeLinear" and node.input[0].startswith("x") for node in asked.graph.node)
    borders = sum(node.op_type == "QuantizeLinear" for node in graph.node)
    if borders > wanted:
        raise RuntimeError("Quantize is a pass of its own")
    refuse_wrong(answers, run_plainly(asked, feeds or {}))


def _floats(graph: onnx.GraphProto) -> list[str]:
    """The operators of an optimized graph that compute in floats."""
    return [kernel.kind for kernel in kernels_of_onnxruntime(graph) if not kernel.reads_integers]


def ask_openvino(model: bytes, feeds: Feeds | None) -> None:
    """Refuse what OpenVINO's CPU plug-in leaves in floats, or answers wrong."""
    core = load_openvino().Core()
    compiled = core.compile_model(core.read_model(model), "CPU", _COMPILED)
    used = {name for port in compiled.inputs for name in port.get_names()}
    results = compiled.create_infer_request().infer({name: one for name, one in (feeds or {}).items() if name in used})
    answers = [results[port] for port in compiled.outputs]
    asked = onnx.load_from_string(model)
    refuse_float_layers(list(kernels_of_openvino(compiled.get_runtime_model())), asked)
    refuse_wrong(answers, run_plainly(asked, feeds or {}))


def refuse_float_layers(layers: Sequence[GraphKernel], model: onnx.ModelProto) -> None:
    """Raise RuntimeError where the asked operator or its reader read floats, or what stands behind it takes a kernel of
    its own.
    """
    operator = next(node for node in model.graph.node if node.name == ASKED)
    quantized = [node.name for node in model.graph.node if node.name.startswith(f"{QUANTIZE}.")]
    behind = {name.removesuffix(".q") for name in quantized if not name.startswith(f"{QUANTIZE}.{READER}")}
    chain = {node.name for node in model.graph.node if node.name.split(".")[0] in (ASKED, FOLLOWER)}
    chain |= set(operator.output) | {f"{name}{end}" for name in behind for end in (".q",)}
    layers = [layer for layer in layers if layer.kind not in ("Const", "Input", "Output")]
    inside = [layer for layer in layers if _belongs(layer, chain) and not _prepares(layer, operator.op_type)]
    if not inside:
        raise RuntimeError("no kernel of its own")
    reads_integers = operator.op_type == "MatMulInteger" or any(
        node.op_type == "DequantizeLinear" and node.output[0] in operator.input for node in model.graph.node
    )
    first = inside[0]
    if reads_integers and not set(first.reads[:1]) <= INTEGERS:
        raise RuntimeError(f"{first} reads floats")
    # A kernel that only multiplies a product by its scale is the product's still.
    apart = [layer for layer in inside[1:] if not _belongs(layer, {ASKED, *operator.output})]
    if apart:
        raise RuntimeError(f"{_spell(map(str, apart))} behind it is a pass of its own")
    if behind and inside[-1].makes not in INTEGERS:
        raise RuntimeError(f"{inside[-1]} hands on floats")
    readers = [
        layer
        for layer in layers
        if any(name.startswith(READER) or name.startswith(f"{QUANTIZE}.{READER}") for name in layer.nodes)
    ]
    readers = [layer for layer in readers if layer.kind in ("Convolution", "FullyConnected", "MatMul")]
    float_readers = [layer for layer in readers if layer.reads[0] not in INTEGERS]
    if float_readers:
        raise RuntimeError(f"its reader, {float_readers[0]}, reads floats")


def _belongs(layer: GraphKernel, names: set[str]) -> bool:
    return any(name in names or name.removesuffix("_original") in names for name in layer.nodes)


def _prepares(layer: GraphKernel, op: str) -> bool:
    """Whether a kernel only turns weights around, or changes a layout."""
    return layer.kind == "Reorder" or (
        layer.kind in ("Transpose", "Reshape") and op not in (layer.kind, "Flatten", "Squeeze", "Unsqueeze")
    )


def refuse_wrong(answers: Sequence[Array], expected: Sequence[Array]) -> None:
    """Raise RuntimeError where answers are off by more than rounding once or twice explains."""
    for answer, right in zip(answers, expected, strict=True):
        span = max(float(right.max()), 0.0) - min(float(right.min()), 0.0)
        off = np.abs(np.asarray(answer, np.float64) - right)
        steps = float(np.nan_to_num(off, nan=np.inf).max()) / (span / 255 or 1.0)
        if steps > _MOST_STEPS:
            raise RuntimeError(f"answers wrong, by {steps:.0f} steps of 1/255 of what it spans")


def _spell(names: "Iterator[str] | Sequence[str] | map[str]") -> str:
    found = list(names)
    more = f" and {len(found) - _LONGEST_LIST} more" if len(found) > _LONGEST_LIST else ""
    return f"{', '.join(found[:_LONGEST_LIST])}{more}"
