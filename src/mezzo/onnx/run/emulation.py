"""Sessions that emulate low precision with exact rounding, and checks that the runtime keeps it."""

from collections.abc import Collection
from functools import cache

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto

from mezzo.common.errors import MezzoError
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import DType
from mezzo.onnx.emulate.fp32_simulation import twin
from mezzo.onnx.files.weights import Weights
from mezzo.onnx.protos.lowcast import round_array, round_nodes
from mezzo.onnx.run.feeds import Array
from mezzo.onnx.run.runtime import JUDGING, SessionSettings
from mezzo.onnx.run.runtime_libraries import load_onnxruntime
from mezzo.onnx.run.session import Engine, Session
from mezzo.onnx.schema.types import TO_ONNX


def emulated_session(
    model: onnx.ModelProto,
    engine: Engine | None = None,
    accumulation: Accumulation | None = None,
    settings: SessionSettings = JUDGING,
    weights: Weights | None = None,
) -> Session:
    """Load a model's FP32 simulation: FP16 and BF16 outputs are exactly rounded FP32 arrays.

    `accumulation` applies to matmuls and convolutions with a low-precision operand.

    Raises: ContractError if no engine loads it, or tiled sums need an opset out of reach.
    """
    if engine is not Engine.REFERENCE:
        check_rounding_survives()
    return Session(twin(model, accumulation), model.graph.input, engine, settings, weights)


def check_rounding(formats: Collection[DType]) -> None:
    """Verify, once, that ONNX Runtime keeps casts to these formats. Raises: MezzoError."""
    if {DType.FLOAT8E4M3FN, DType.FLOAT8E5M2} & {*formats}:
        check_fp8_survives()
    check_rounding_survives()


@cache
def check_fp8_survives() -> None:
    """Verify, once per process, that ONNX Runtime casts to FP8 to nearest even, overflow included.

    Inputs are all numbers of each format, their midpoints, and the midpoints' FP32 neighbors.

    Raises: MezzoError if it does not.
    """
    for dtype in (DType.FLOAT8E4M3FN, DType.FLOAT8E5M2):
        element = TO_ONNX[dtype]
        all_values = (
            np.arange(256, dtype=np.uint8)
            .view(onnx.helper.tensor_dtype_to_np_dtype(element))
            .astype(np.float32)
        )
        numbers = np.unique(all_values[np.isfinite(all_values)])
        middles = np.concatenate(
            [
                numbers[:-1] + np.diff(numbers) / 2,
                np.array([480, 496, 61440, 65536, 1e9], np.float32),
            ]
        )
        neighbors = [
            np.nextafter(middles, np.float32(direction), dtype=np.float32)
            for direction in (-np.inf, np.inf)
        ]
        probes = np.concatenate([all_values, middles, *neighbors])
        names = iter(f"v{count}" for count in range(99))
        ports = [
            onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"])
            for name in ("x", "y")
        ]
        graph = onnx.helper.make_graph(
            round_nodes("x", "y", element, names.__next__), "probe", ports[:1], ports[1:]
        )
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9
        )
        result = Session(model, model.graph.input, Engine.ONNXRUNTIME, JUDGING).run({"x": probes})[
            "y"
        ]
        _compare_probes(str(dtype), result, round_array(probes, dtype))


@cache
def check_rounding_survives() -> None:
    """Verify, once per process, that ONNX Runtime keeps the Cast pairs that emulate rounding.

    Raises: MezzoError if it removes them, or does not round to nearest even.
    """
    ties = [1 + steps * gap for gap in (2.0**-11, 2.0**-8) for steps in (1, 3)]
    probes = np.array([65519.0, 65520.0, *ties, 1e-9, -3e-8, np.nan], np.float32)
    for element, eps in ((TensorProto.FLOAT16, 2.0**-10), (TensorProto.BFLOAT16, 2.0**-7)):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        low = [onnx.helper.make_tensor_value_info(name, element, ["N"]) for name in ("x", "y")]
        nodes = [
            onnx.helper.make_node("Add", ["x", "x"], ["double"]),  # overflows FP16 for x = 65504
            onnx.helper.make_node("Sub", ["double", "x"], ["y"]),
        ]
        graph = onnx.helper.make_graph(nodes, "probe", low[:1], low[1:])
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8
        )
        result = Session(twin(model), model.graph.input, Engine.ONNXRUNTIME, JUDGING).run(
            {"x": probes}
        )["y"]
        with np.errstate(all="ignore"):
            x = probes.astype(dtype).astype(np.float32)
            doubled = (x + x).astype(dtype).astype(np.float32)
            expected = (doubled - x).astype(dtype).astype(np.float32)
        _compare_probes(dtype.name, result, expected)
        _compare_probes(dtype.name, *_probe_wide_casts(element, eps))


def _probe_wide_casts(element: int, eps: float) -> tuple[Array, Array]:
    """Casts of FP64 and INT64 numbers next to a tie: actual and exact results."""
    low = onnx.helper.tensor_dtype_to_np_dtype(element).name
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 13]>
        probe (double[N] x, int64[M] k) => ({low}[N] a, {low}[M] b) {{
            a = Cast<to={element}>(x)  b = Cast<to={element}>(k) }}""")
    feeds = {
        "x": np.array([1 + eps / 2 + 2.0**-40, 1 + 1.5 * eps - 2.0**-40]),
        "k": np.array([2**62 + 2**54 + 1]),
    }
    results = Session(twin(model), model.graph.input, Engine.ONNXRUNTIME, JUDGING).run(feeds)
    large = np.inf if element == TensorProto.FLOAT16 else 2.0**62 + 2.0**55
    return np.concatenate(list(results.values())), np.array([1 + eps, 1 + eps, large], np.float32)


def _compare_probes(name: str, result: Array, expected: Array) -> None:
    if not np.array_equal(result, expected, equal_nan=True):
        raise MezzoError(
            f"onnxruntime {load_onnxruntime().__version__} removes or changes casts to {name}:"
            f" probes gave {result.tolist()}, wanted {expected.tolist()}; true precision is not"
            " available with this version"
        )
