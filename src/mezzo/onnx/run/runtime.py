"""ONNX Runtime sessions: settings, loading, optimized graphs, and zero-copy inputs."""

import enum
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.runtime_libraries import load_onnxruntime

# Types that ONNX Runtime's numpy conversion does not support; they need the ONNX element type.
_BY_NUMBER = frozenset(
    {
        TensorProto.BFLOAT16,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E4M3FNUZ,
        TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
    }
)
_PROTOBUF_LIMIT_BYTES = 2**31 - 2**20


class Optimizing(enum.Enum):
    """Graph optimizations that ONNX Runtime may apply."""

    NOTHING = "nothing"  # every operator runs separately, unchanged
    # Constant folding; extended fusions would hide the rounding between fused operators.
    BASICS = "basics"
    # Except Q/DQ fusion, which moves casts past observers, and fails to load some models.
    ALL = "all"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Session settings. `threads` 0: one per core. `keeps_memory`: the session keeps freed memory
    in its arena for later allocations.
    """

    threads: int
    optimizing: Optimizing
    keeps_memory: bool = True


NATIVE = SessionSettings(threads=1, optimizing=Optimizing.BASICS)
ALL_CORES = SessionSettings(threads=0, optimizing=Optimizing.BASICS)
JUDGING = SessionSettings(threads=1, optimizing=Optimizing.NOTHING)
EMULATING = SessionSettings(threads=0, optimizing=Optimizing.NOTHING)
MEASURING = SessionSettings(threads=0, optimizing=Optimizing.ALL)


def load_runtime(model: onnx.ModelProto, settings: SessionSettings) -> Any:
    """A session of a model, on the CPU. Raises whatever ONNX Runtime raises."""
    onnxruntime, options, providers = (
        load_onnxruntime(),
        _options(settings),
        ["CPUExecutionProvider"],
    )
    if model.ByteSize() < _PROTOBUF_LIMIT_BYTES:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        copy = onnx.ModelProto()  # saving with external data empties the tensors of what it saves
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=True, location="weights")
        return onnxruntime.InferenceSession(str(path), options, providers=providers)


def load_piece(model: onnx.ModelProto, settings: SessionSettings) -> Any:
    """A session of a part of an optimized model, without further optimization or memory arena."""
    onnxruntime = load_onnxruntime()
    options = _options(SessionSettings(settings.threads, Optimizing.NOTHING, keeps_memory=False))
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def optimized(model: onnx.ModelProto, settings: SessionSettings) -> onnx.ModelProto:
    """ONNX Runtime's optimized model. Run as it is, its results are bit-identical.

    Raises whatever ONNX Runtime raises.
    """
    options = _options(settings)
    options.add_session_config_entry("session.disable_prepacking", "1")  # it is never run
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        options.optimized_model_filepath = str(path)
        load_onnxruntime().InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return onnx.load(path)


def _options(settings: SessionSettings) -> Any:
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = {
        Optimizing.NOTHING: levels.ORT_DISABLE_ALL,
        Optimizing.BASICS: levels.ORT_ENABLE_BASIC,
        Optimizing.ALL: levels.ORT_ENABLE_ALL,
    }[settings.optimizing]
    # Memory patterns allocate, per input shape, one block as large as all values together.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = settings.keeps_memory
    if settings.optimizing is Optimizing.ALL:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def lend(array: Array, element: int) -> Any:
    """An array as OrtValue, without a copy. `element` is its type as in TensorProto."""
    lending = load_onnxruntime().OrtValue
    if element in _BY_NUMBER:
        return lending.ortvalue_from_numpy_with_onnx_type(array, element)
    return lending.ortvalue_from_numpy(array)


def needs_number(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type in _BY_NUMBER


def silence_runtime() -> None:
    """Suppress ONNX Runtime's log of failed memory allocations, which callers report themselves."""
    load_onnxruntime().set_default_logger_severity(4)
