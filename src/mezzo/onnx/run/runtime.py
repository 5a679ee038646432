"""ONNX Runtime sessions: settings, loading, optimized graphs, and zero-copy inputs."""

import enum
import math
import tempfile
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
    options = _options(settings)
    if model.ByteSize() < _PROTOBUF_LIMIT_BYTES:
        return _load(model.SerializeToString(), options)
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        write_model(model, path)
        return _load(str(path), options)


def write_model(model: onnx.ModelProto, path: Path) -> None:
    """Write a model with inline weights to a file, with external data if it exceeds 2 GiB."""
    if model.ByteSize() < _PROTOBUF_LIMIT_BYTES:
        path.write_bytes(model.SerializeToString())
    else:
        copy = deepcopy(model)  # saving with external data empties the tensors of what it saves
        onnx.save(copy, path, save_as_external_data=True, location="weights")


def load_piece(model: onnx.ModelProto, settings: SessionSettings) -> Any:
    """A session of a part of an optimized model, without further optimization or memory arena."""
    options = _options(SessionSettings(settings.threads, Optimizing.NOTHING, keeps_memory=False))
    return _load(model.SerializeToString(), options)


def optimized(model: onnx.ModelProto, settings: SessionSettings) -> onnx.ModelProto:
    """ONNX Runtime's optimized model. Run as it is, its results are bit-identical.

    Raises whatever ONNX Runtime raises.
    """
    options = _options(settings)
    options.add_session_config_entry("session.disable_prepacking", "1")  # it is never run
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        options.optimized_model_filepath = str(path)
        _load(model.SerializeToString(), options)
        return onnx.load(path)


def _load(model: bytes | str, options: Any) -> Any:
    """A session on the CPU of a serialized model, or of a file."""
    onnxruntime = load_onnxruntime()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _options(settings: SessionSettings) -> Any:
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    # Idle threads wait instead of spinning: mezzo computes between runs. Speed is measured
    # elsewhere, in sessions with the runtime's own settings (onnx/profile/onnxruntime.py).
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
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
    """An array as OrtValue, without a copy if it is contiguous. `element` is its type as in
    TensorProto.
    """
    lending = load_onnxruntime().OrtValue
    if element in _BY_NUMBER:
        contiguous = np.require(array, requirements="C")
        return lending.ortvalue_from_numpy_with_onnx_type(contiguous, element)
    return lending.ortvalue_from_numpy(array)


def array_of(value: Any) -> Any:
    """An OrtValue as an array, or a list of arrays for a sequence."""
    if not value.is_tensor() or value.element_type() not in _BY_NUMBER:
        return value.numpy()
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.element_type())
    if dtype.itemsize == 1:
        return value.numpy().view(dtype)
    # BF16 is only accessible as memory, which the value owns: copy it while the value is alive.
    import ctypes

    numbers = ctypes.string_at(value.data_ptr(), math.prod(value.shape()) * dtype.itemsize)
    return np.frombuffer(numbers, dtype).reshape(value.shape())


def needs_number(element: int) -> bool:
    """Whether arrays of an element type, as in TensorProto, are passed by `lend` and `array_of`."""
    return element in _BY_NUMBER


def silence_runtime() -> None:
    """Suppress ONNX Runtime's log of failed memory allocations, which callers report themselves."""
    load_onnxruntime().set_default_logger_severity(4)
