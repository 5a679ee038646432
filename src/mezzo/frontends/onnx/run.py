"""Runs ONNX models: as they are, or in the true rounding of their low types.

ONNX Runtime is the engine; onnx's reference evaluator steps in where ONNX Runtime cannot load or run a model. Feeds are
numpy arrays, lists of them for sequences, None for empty optionals, in the model's declared types or in FP32.
"""

import enum
import math
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from mezzo.errors import ContractError, MezzoError
from mezzo.frontends.onnx.twin import twin

# What a feed or a result is: an array, a list of arrays for a sequence, None for an empty optional.
Datum = Any

# Numpy types that ONNX Runtime's Python feed does not know; they go in by their ONNX number.
_BY_NUMBER = frozenset(
    {TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2,
     TensorProto.FLOAT8E5M2FNUZ}
)  # fmt: skip
_PROTOBUF_LIMIT_BYTES = 2**31 - 2**20


class Engine(enum.Enum):
    """What computes."""

    ONNXRUNTIME = "onnxruntime"
    REFERENCE = "onnx.reference"


class Session:
    """A model ready to run. `engine` is what computes it, `fallback` why ONNX Runtime does not, if it does not."""

    def __init__(self, model: onnx.ModelProto, declared: Sequence[onnx.ValueInfoProto], engine: Engine | None) -> None:
        """Load `model`; feeds are cast to the types of `declared` first. Without `engine`: the first that loads.

        Raises: ContractError if the wanted engine cannot load the model, or none can.
        """
        constants = {tensor.name for tensor in model.graph.initializer}
        self._declared = {port.name: port.type for port in declared}
        self._required = [port.name for port in model.graph.input if port.name not in constants]
        self._types = {port.name: port.type for port in (*model.graph.input, *model.graph.output)}
        self.output_names = [port.name for port in model.graph.output]
        self.engine = engine or Engine.ONNXRUNTIME
        self.fallback: str | None = None
        self._model = model
        self._runner: Any = None
        self._may_fall_back = engine is None
        self._load()

    def run(self, feeds: Mapping[str, Datum]) -> dict[str, Datum]:
        """Compute the outputs by name. BF16 and FP8 results come as ml_dtypes arrays.

        Raises: ContractError if a feed is missing or the model fails at run time.
        """
        missing = [name for name in self._required if name not in feeds]
        if missing:
            wanted = ", ".join(self._required)
            raise ContractError(f"no feed for the model's input {missing[0]!r}; feed all of {wanted}")
        cast = {
            name: _cast_to(_cast_to(feeds[name], declared), self._types[name])
            for name, declared in self._declared.items()
            if name in feeds
        }
        try:
            return self._compute(cast)
        except Exception as error:
            if not self._may_fall_back or self.engine is Engine.REFERENCE:
                raise ContractError(f"the model does not run in {self.engine.value}: {_first_line(error)}") from error
            self._fall_back(error)
        try:
            return self._compute(cast)
        except Exception as error:
            raise ContractError(f"the model runs neither in onnxruntime ({self.fallback}) nor in onnx.reference "
                                f"({_first_line(error)})") from error  # fmt: skip

    def _load(self) -> None:
        try:
            self._runner = self._make_runner()
        except Exception as error:
            if not self._may_fall_back or self.engine is Engine.REFERENCE:
                raise ContractError(f"the model does not load in {self.engine.value}: {_first_line(error)}") from error
            self._fall_back(error)

    def _fall_back(self, cause: Exception) -> None:
        self.fallback = _first_line(cause)
        self.engine = Engine.REFERENCE
        self._load()

    def _make_runner(self) -> Any:
        if self.engine is Engine.REFERENCE:
            from onnx.reference import ReferenceEvaluator

            return ReferenceEvaluator(self._model)
        return _load_onnxruntime(self._model)

    def _compute(self, feeds: dict[str, Datum]) -> dict[str, Datum]:
        with np.errstate(all="ignore"):
            if self.engine is Engine.REFERENCE:
                results = self._runner.run(None, feeds)
            elif any(_needs_number(kind) for kind in self._types.values()):
                results = self._compute_by_number(feeds)
            else:
                results = self._runner.run(None, feeds)
        return {name: _plain(result) for name, result in zip(self.output_names, results, strict=True)}

    def _compute_by_number(self, feeds: dict[str, Datum]) -> list[Datum]:
        """Run with inputs or outputs in types that ONNX Runtime's numpy bridge lacks."""
        import onnxruntime

        values = {}
        for name, feed in feeds.items():
            kind = self._types[name]
            if _needs_number(kind):
                element = kind.tensor_type.elem_type
                packed = np.ascontiguousarray(feed)
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(packed, element)
            else:
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(feed)
        results = self._runner.run_with_ort_values(None, values)
        return [self._to_array(name, result) for name, result in zip(self.output_names, results, strict=True)]

    def _to_array(self, name: str, result: Any) -> Datum:
        kind = self._types[name]
        if not _needs_number(kind):
            return result.numpy()
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        if dtype.itemsize == 1:
            return result.numpy().view(dtype)
        # BF16 has no way out but its memory, which the value owns: copy while it lives.
        import ctypes

        size_bytes = math.prod(result.shape()) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(result.data_ptr(), size_bytes), dtype).reshape(result.shape())


def native_session(model: onnx.ModelProto, engine: Engine | None = None) -> Session:
    """Load a model as it is typed. Results have the model's declared types."""
    return Session(model, model.graph.input, engine)


def emulated_session(model: onnx.ModelProto, engine: Engine | None = None) -> Session:
    """Load a model's FP32 twin: FP16 and BF16 results are FP32 arrays that hold the values true rounding gives."""
    if engine is not Engine.REFERENCE:
        check_rounding_survives()
    return Session(twin(model), model.graph.input, engine)


@cache
def check_rounding_survives() -> None:
    """Verify, once per process, that ONNX Runtime keeps the casts a twin rounds with.

    Raises: MezzoError if it elides them or rounds other than to nearest even.
    """
    ties = [1 + steps * gap for gap in (2.0**-11, 2.0**-8) for steps in (1, 3)]
    probes = np.array([65519.0, 65520.0, *ties, 1e-9, -3e-8, np.nan], np.float32)
    for element in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        low = [onnx.helper.make_tensor_value_info(name, element, ["N"]) for name in ("x", "y")]
        nodes = [
            onnx.helper.make_node("Add", ["x", "x"], ["double"]),  # overflows FP16 where x is 65504
            onnx.helper.make_node("Sub", ["double", "x"], ["y"]),
        ]
        graph = onnx.helper.make_graph(nodes, "probe", low[:1], low[1:])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        result = Session(twin(model), model.graph.input, Engine.ONNXRUNTIME).run({"x": probes})["y"]
        with np.errstate(all="ignore"):
            x = probes.astype(dtype).astype(np.float32)
            doubled = (x + x).astype(dtype).astype(np.float32)
            expected = (doubled - x).astype(dtype).astype(np.float32)
        if not np.array_equal(result, expected, equal_nan=True):
            import onnxruntime

            raise MezzoError(
                f"onnxruntime {onnxruntime.__version__} removes or changes casts to {dtype.name}: probes gave "
                f"{result.tolist()}, wanted {expected.tolist()}; true precision is not available with this version"
            )


def _load_onnxruntime(model: onnx.ModelProto) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Enough to fold constants; the extended fusions would only hide the rounding between the operators they join.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    providers = ["CPUExecutionProvider"]
    if model.ByteSize() < _PROTOBUF_LIMIT_BYTES:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder) / "model.onnx"
        copy = onnx.ModelProto()  # saving with external data empties the tensors of what it saves
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=True, location="weights")
        return onnxruntime.InferenceSession(str(path), options, providers=providers)


def _needs_number(kind: onnx.TypeProto) -> bool:
    return kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type in _BY_NUMBER


def _cast_to(feed: Datum, kind: onnx.TypeProto) -> Datum:
    """Give a feed the declared element type; sequences element by element. Numbers are rounded to nearest even."""
    match kind.WhichOneof("value"):
        case "sequence_type":
            return [_cast_to(element, kind.sequence_type.elem_type) for element in feed]
        case "optional_type":
            return None if feed is None else _cast_to(feed, kind.optional_type.elem_type)
        case "tensor_type" if kind.tensor_type.elem_type not in (TensorProto.UNDEFINED, TensorProto.STRING):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
            with np.errstate(all="ignore"):
                return np.asarray(feed).astype(dtype, copy=False)
        case _:
            return feed


def _plain(result: Datum) -> Datum:
    """A result as an array, a list of arrays or None."""
    if isinstance(result, list):
        return [_plain(element) for element in result]
    return result if result is None or not np.isscalar(result) else np.asarray(result)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
