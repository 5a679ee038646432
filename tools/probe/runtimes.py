"""The runtimes that a probe can test. Each loads and runs one model, or raises with the reason."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from mezzo.onnx.run.runtime_libraries import load_onnxruntime, load_openvino
from mezzo.tables.target import Target
from probe.attempts import Attempt, Feeds
from probe.integers import ask_onnxruntime, ask_openvino


@dataclass(frozen=True, slots=True)
class Attempts:
    """How a probe tries one runtime. `run` runs a model, in a child process; `run_integers` also
    fails if it does not run in INT8, None if that cannot be observed.
    """

    run: Attempt
    run_integers: Attempt | None = None


def _ask_onnxruntime(model: bytes, feeds: Feeds | None) -> None:
    from mezzo.onnx.run.session import Engine, native_session

    session = native_session(onnx.load_from_string(model), Engine.ONNXRUNTIME)
    if feeds is not None:
        session.run(feeds)


def _ask_onnxruntime_cuda(model: bytes, feeds: Feeds | None) -> None:
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    # Unoptimized and without CPU fallback, as a node without CUDA kernel would silently run on the
    # CPU.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if hasattr(onnxruntime, "preload_dlls"):  # CUDA libraries installed as Python packages
        onnxruntime.preload_dlls()
    with tempfile.TemporaryDirectory() as folder:
        optimized_path = Path(folder, "kept.onnx")
        options.optimized_model_filepath = str(optimized_path)
        session = onnxruntime.InferenceSession(model, options, providers=["CUDAExecutionProvider"])
        refuse_written_out(onnx.load_from_string(model), onnx.load(optimized_path))
    if feeds is not None:
        types = {port.name: port.type for port in session.get_inputs()}
        is_tensor = {name: kind.startswith("tensor") for name, kind in types.items()}
        session.run(None, {name: np.asarray(x) if is_tensor[name] else x for name, x in feeds.items() if name in types})


def refuse_written_out(model: onnx.ModelProto, kept: onnx.ModelProto) -> None:
    """Raise RuntimeError for an operator without kernel that the runtime expands as a function.

    Larger graphs fail over that: a part has no kernel, or the optimizer for it has already run.
    `kept` is the graph that the runtime wrote.
    """
    ops = {node.op_type for node in kept.graph.node}
    expanded = sorted({node.op_type for node in model.graph.node} - ops - {"Constant"})
    if expanded:
        raise RuntimeError(f"no kernel for {' and '.join(expanded)}: written out in {', '.join(sorted(ops))}")


def _ask_openvino(model: bytes, feeds: Feeds | None) -> None:
    openvino = load_openvino()
    hints = openvino.properties.hint
    core = openvino.Core()
    # Without this hint OpenVINO chooses the precision itself, and ignores the types in the file.
    accurate = {hints.execution_mode: hints.ExecutionMode.ACCURACY}
    compiled = core.compile_model(core.read_model(model), "CPU", accurate)
    if feeds is not None:
        used = {name for port in compiled.inputs for name in port.get_names()}
        compiled.create_infer_request().infer({name: value for name, value in feeds.items() if name in used})


# By target.
RUNTIMES: Mapping[str, Attempts] = {
    "onnxruntime-cpu": Attempts(_ask_onnxruntime, ask_onnxruntime),
    "onnxruntime-cuda": Attempts(_ask_onnxruntime_cuda),
    "openvino-cpu": Attempts(_ask_openvino, ask_openvino),
}


def package_of(target: Target) -> str:
    """The package that users install for a target that has a row here."""
    assert target.runtime is not None, "a runtime that is asked is installed as a package"
    return target.runtime.package
