"""INT8 execution checks: the runtime's optimized graph has an INT8 kernel, and outputs are right.

Each attempt raises RuntimeError with the reason if a check fails.
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

# Error bound in quantization steps (1/255 of the output's range): each QuantizeLinear may round
# differently.
_MOST_STEPS = 2.5
_LONGEST_LIST = 4

_SHAPING = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})  # around matmuls, in any type
_COMPILED = {"EXECUTION_MODE_HINT": "ACCURACY", "INFERENCE_NUM_THREADS": 1}


def ask_onnxruntime(model: bytes, feeds: Feeds | None) -> None:
    """Raise RuntimeError if ONNX Runtime's CPU provider runs the model in floats, or wrong."""
    onnxruntime = load_onnxruntime()
    with tempfile.TemporaryDirectory() as folder:
        optimized_path = Path(folder, "kept.onnx")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(optimized_path)
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        outputs: list[Array] = session.run(None, dict(feeds or {}))
        graph = onnx.load(optimized_path).graph
    proto = onnx.load_from_string(model)
    operator = next(node.op_type for node in proto.graph.node if node.name == ASKED)
    floats = [op for op in _floats(graph) if op == operator or op not in _SHAPING]
    if floats:
        raise RuntimeError(f"{_spell(floats)} in f32")
    expected_quantizers = sum(
        node.op_type == "QuantizeLinear" and node.input[0].startswith("x") for node in proto.graph.node
    )
    quantizers = sum(node.op_type == "QuantizeLinear" for node in graph.node)
    if quantizers > expected_quantizers:
        raise RuntimeError("Quantize is a pass of its own")
    refuse_wrong(outputs, run_plainly(proto, feeds or {}))


def _floats(graph: onnx.GraphProto) -> list[str]:
    """The operators in an optimized graph that compute in floats."""
    return [kernel.kind for kernel in kernels_of_onnxruntime(graph) if not kernel.reads_integers]


def ask_openvino(model: bytes, feeds: Feeds | None) -> None:
    """Raise RuntimeError if OpenVINO's CPU plug-in runs the model in floats, or wrong."""
    core = load_openvino().Core()
    compiled = core.compile_model(core.read_model(model), "CPU", _COMPILED)
    used = {name for port in compiled.inputs for name in port.get_names()}
    results = compiled.create_infer_request().infer(
        {name: feed for name, feed in (feeds or {}).items() if name in used}
    )
    outputs = [results[port] for port in compiled.outputs]
    proto = onnx.load_from_string(model)
    refuse_float_layers(list(kernels_of_openvino(compiled.get_runtime_model())), proto)
    refuse_wrong(outputs, run_plainly(proto, feeds or {}))


def refuse_float_layers(layers: Sequence[GraphKernel], model: onnx.ModelProto) -> None:
    """Raise RuntimeError on float inputs of the operator or its consumer, or unfused followers."""
    operator = next(node for node in model.graph.node if node.name == ASKED)
    quantized = [node.name for node in model.graph.node if node.name.startswith(f"{QUANTIZE}.")]
    quantized_values = {name.removesuffix(".q") for name in quantized if not name.startswith(f"{QUANTIZE}.{READER}")}
    chain = {node.name for node in model.graph.node if node.name.split(".")[0] in (ASKED, FOLLOWER)}
    chain |= set(operator.output) | {f"{name}{end}" for name in quantized_values for end in (".q",)}
    layers = [layer for layer in layers if layer.kind not in ("Const", "Input", "Output")]
    chain_layers = [layer for layer in layers if _belongs(layer, chain) and not _prepares(layer, operator.op_type)]
    if not chain_layers:
        raise RuntimeError("no kernel of its own")
    reads_integers = operator.op_type == "MatMulInteger" or any(
        node.op_type == "DequantizeLinear" and node.output[0] in operator.input for node in model.graph.node
    )
    first_layer = chain_layers[0]
    if reads_integers and not set(first_layer.reads[:1]) <= INTEGERS:
        raise RuntimeError(f"{first_layer} reads floats")
    # A kernel that only multiplies a matmul's output by its scale counts as part of the matmul.
    unfused = [layer for layer in chain_layers[1:] if not _belongs(layer, {ASKED, *operator.output})]
    if unfused:
        raise RuntimeError(f"{_spell(map(str, unfused))} behind it is a pass of its own")
    if quantized_values and chain_layers[-1].makes not in INTEGERS:
        raise RuntimeError(f"{chain_layers[-1]} hands on floats")
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
    """Whether a kernel only transposes weights or changes a layout."""
    return layer.kind == "Reorder" or (
        layer.kind in ("Transpose", "Reshape") and op not in (layer.kind, "Flatten", "Squeeze", "Unsqueeze")
    )


def refuse_wrong(answers: Sequence[Array], expected: Sequence[Array]) -> None:
    """Raise RuntimeError if outputs differ by more than _MOST_STEPS quantization steps."""
    for output, reference in zip(answers, expected, strict=True):
        span = max(float(reference.max()), 0.0) - min(float(reference.min()), 0.0)
        deviation = np.abs(np.asarray(output, np.float64) - reference)
        steps = float(np.nan_to_num(deviation, nan=np.inf).max()) / (span / 255 or 1.0)
        if steps > _MOST_STEPS:
            raise RuntimeError(f"answers wrong, by {steps:.0f} steps of 1/255 of what it spans")


def _spell(names: "Iterator[str] | Sequence[str] | map[str]") -> str:
    listed = list(names)
    remainder = f" and {len(listed) - _LONGEST_LIST} more" if len(listed) > _LONGEST_LIST else ""
    return f"{', '.join(listed[:_LONGEST_LIST])}{remainder}"
