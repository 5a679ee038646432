"""ONNX Runtime as mezzo has it: how it loads a model, and how numbers get in and out of it where they lie."""

import enum
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.runtime_libraries import load_onnxruntime

# Numpy types that ONNX Runtime's Python feed does not know; they go in by their ONNX number.
_BY_NUMBER = frozenset(
    {TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
     TensorProto.FLOAT8E5M2FNUZ}
)  # fmt: skip
_PROTOBUF_LIMIT_BYTES = 2**31 - 2**20


class Optimizing(enum.Enum):
    """What ONNX Runtime may change of a model before it runs it."""

    NOTHING = "nothing"  # every operator computes on its own, as it stands
    BASICS = "basics"  # constants are folded; extended fusions would only hide the rounding between what they join
    ALL = "all"  # but quantized parts: casts would move past what measures them, and some models would not load


@dataclass(frozen=True, slots=True)
class Settings:
    """How ONNX Runtime runs a model. `threads` 0: as many as the machine has cores. `keeps_memory`: what values took
    once stays with the session, which saves asking for it again.
    """

    threads: int
    optimizing: Optimizing
    keeps_memory: bool = True


NATIVE = Settings(threads=1, optimizing=Optimizing.BASICS)
ALL_CORES = Settings(threads=0, optimizing=Optimizing.BASICS)
JUDGING = Settings(threads=1, optimizing=Optimizing.NOTHING)
EMULATING = Settings(threads=0, optimizing=Optimizing.NOTHING)
MEASURING = Settings(threads=0, optimizing=Optimizing.ALL)


def load_runtime(model: onnx.ModelProto, settings: Settings) -> Any:
    """A session of a model. Raises whatever ONNX Runtime raises where it does not load."""
    onnxruntime, options, providers = load_onnxruntime(), _options(settings), ["CPUExecutionProvider"]
    if model.ByteSize() < _PROTOBUF_LIMIT_BYTES:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        copy = onnx.ModelProto()  # saving with external data empties the tensors of what it saves
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=True, location="weights")
        return onnxruntime.InferenceSession(str(path), options, providers=providers)


def load_piece(model: onnx.ModelProto, settings: Settings) -> Any:
    """A session of a part of an optimised model, as it stands, which gives memory back as soon as it can."""
    onnxruntime = load_onnxruntime()
    options = _options(Settings(settings.threads, Optimizing.NOTHING, keeps_memory=False))
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def optimized(model: onnx.ModelProto, settings: Settings) -> onnx.ModelProto:
    """What ONNX Runtime makes of a model before it runs it. Run as it stands it gives the same numbers, bit for bit.

    Raises whatever ONNX Runtime raises where it does not load.
    """
    options = _options(settings)
    options.add_session_config_entry("session.disable_prepacking", "1")  # it is never run
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        options.optimized_model_filepath = str(path)
        load_onnxruntime().InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(path)


def _options(settings: Settings) -> Any:
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
    # A pattern per shape, which branches make many of; each is one more block, as large as all values at once.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = settings.keeps_memory
    if settings.optimizing is Optimizing.ALL:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options


def lend(array: Array, element: int) -> Any:
    """An array as ONNX Runtime reads it, where it lies. `element`: its ONNX number."""
    lending = load_onnxruntime().OrtValue
    if element in _BY_NUMBER:
        return lending.ortvalue_from_numpy_with_onnx_type(array, element)
    return lending.ortvalue_from_numpy(array)


def needs_number(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type in _BY_NUMBER


def silence_runtime() -> None:
    """Let ONNX Runtime write no lines of its own, of memory that it was refused: whoever runs it says what was."""
    load_onnxruntime().set_default_logger_severity(4)
