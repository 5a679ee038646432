"""Sums in FP16 as ONNX Runtime Web's WebGPU kernels make them: the emulation answers what the device answered."""

import math
from typing import NamedTuple

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from web_device import FOLDER, needs_device

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.timings import Loading
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import Ruling
from mezzo.onnx.profile.stopwatch import OnnxStopwatch
from mezzo.onnx.profile.webgpu import VARIABLE
from mezzo.plugins.discovery import target as find_target

INF, NAN = math.inf, math.nan
WEB = find_target("onnxruntime-web")
SUMS = Accumulation.of(WEB, (DType.FLOAT16,))


class Case(NamedTuple):
    """An operator in FP16 on inputs around `size`, and the device's first answers (onnxruntime-web 1.30.0, llvmpipe).
    `w`: shape and kind of a weight. `eps`: how far the emulation may be off, in eps of FP16: where the device rounds
    each product too, and where it rounds exponentials otherwise.
    """

    text: str
    shape: tuple[int, ...]
    size: float
    answers: tuple[float, ...]
    w: tuple[int, ...] = ()
    is_cancelling: bool = False
    eps: float = 0.0

    @property
    def model(self) -> onnx.ModelProto:
        return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {self.text}')

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        feeds = {"x": _numbers(self.shape) * self.size}
        if self.w:
            length = max(self.w)
            weight = _numbers(self.w) / length if not self.is_cancelling else np.ones(self.w)
            if self.is_cancelling:
                weight[length // 2 :] = -1.0
            feeds["w"] = weight
        return {name: array.astype(np.float16) for name, array in feeds.items()}


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers from 0.5 to 1.5 without a pattern that matters."""
    return 0.5 + (np.arange(math.prod(shape)) * 7919 % 1009 / 1009).reshape(shape)


ROWS = "(float16[N,K] x) => (float16[N,J] y)"
IMAGES = "(float16[N,C,H,W] x) => (float16[N,C,A,B] y)"
PRODUCT = "(float16[M,K] x, float16[K,N] w) => (float16[M,N] y)"
FILTER = "(float16[N,C,H,W] x, float16[O,I,k,l] w) => (float16[N,O,A,B] y)"
CASES = {
    "mean of an image of twenties": Case(
        f"{IMAGES} {{ y = GlobalAveragePool (x) }}",
        (1, 2, 64, 64), 20.0, (INF, INF)),
    "mean behind a hard sigmoid": Case(
        f"{IMAGES} {{ m = GlobalAveragePool (x) n = Neg (m) y = HardSigmoid (n) }}",
        (1, 2, 64, 64), 20.0, (0.0, 0.0)),
    "mean of an image": Case(f"{IMAGES} {{ y = GlobalAveragePool (x) }}", (1, 2, 64, 64), 1.0, (0.99951171875, 1.0)),
    "mean of a small image": Case(
        f"{IMAGES} {{ y = GlobalAveragePool (x) }}",
        (1, 2, 7, 7), 1.0, (1.00390625, 1.001953125)),
    "window of twenties": Case(
        f"{IMAGES} {{ y = AveragePool <kernel_shape = [64, 64]> (x) }}",
        (1, 2, 64, 64), 20.0, (INF, INF)),
    "mean over 512 x 512": Case(
        "(float16[N,C,H,W] x) => (float16[N,C] y) { y = ReduceMean <axes = [-2, -1], keepdims = 0> (x) }",
        (1, 2, 512, 512), 0.3, (NAN, NAN)),
    "mean along an axis that is not known to be the last": Case(
        f"{ROWS} {{ y = ReduceMean <axes = [1]> (x) }}", (2, 4096), 20.0, (INF, INF)),
    "mean": Case(f"{ROWS} {{ y = ReduceMean <axes = [-1]> (x) }}", (2, 4096), 1.0, (0.99951171875, 0.9990234375)),
    "sum": Case(
        f"{ROWS} {{ a = Constant <value = int64[1] {{-1}}> () y = ReduceSum (x, a) }}",
        (2, 1000), 1.0, (1000.0, 999.0)),
    "absolute sum": Case(f"{ROWS} {{ y = ReduceL1 <axes = [-1]> (x) }}", (2, 1000), 1.0, (1000.0, 999.0)),
    "norm": Case(f"{ROWS} {{ y = ReduceL2 <axes = [-1]> (x) }}", (2, 1000), 1.0, (32.9375, 32.875)),
    "norm past the range": Case(f"{ROWS} {{ y = ReduceL2 <axes = [-1]> (x) }}", (2, 1024), 10.0, (INF, INF)),
    "squares": Case(f"{ROWS} {{ y = ReduceSumSquare <axes = [-1]> (x) }}", (2, 1000), 1.0, (1084.0, 1081.0)),
    "logarithm of a sum": Case(f"{ROWS} {{ y = ReduceLogSum <axes = [-1]> (x) }}", (2, 4096), 20.0, (INF, INF)),
    "logarithm of exponentials": Case(
        f"{ROWS} {{ y = ReduceLogSumExp <axes = [-1]> (x) }}",
        (2, 1000), 5.0, (INF, INF)),
    "product whose first half is past the range": Case(
        f"{PRODUCT} {{ y = MatMul (x, w) }}", (2, 1024), 300.0, (INF, INF), (1024, 2), True),
    "product as a mean": Case(
        f"{PRODUCT} {{ y = MatMul (x, w) }}",
        (2, 1024), 100.0, (103.9375, 100.4375), (1024, 2), eps=2.0),
    "gemm": Case(
        f"{PRODUCT} {{ y = Gemm <alpha = 0.5> (x, w) }}",
        (2, 1024), 100.0, (51.96875, 50.21875), (1024, 2), eps=2.0),
    "convolution": Case(
        f"{FILTER} {{ y = Conv (x, w) }}",
        (1, 512, 2, 2), 100.0, (101.5625, 100.0), (512, 512, 1, 1), eps=2.0),
    "transposed convolution": Case(
        "(float16[N,C,H,W] x, float16[C,O,k,l] w) => (float16[N,O,A,B] y) { y = ConvTranspose (x, w) }",
        (1, 512, 2, 2), 100.0, (103.5, 100.4375), (512, 2, 1, 1), eps=2.0),
    "transposed convolution in groups": Case(
        "(float16[N,C,H,W] x, float16[C,O,k,l] w) => (float16[N,O,A,B] y) { y = ConvTranspose <group = 4> (x, w) }",
        (1, 4, 2, 2), 1.0, (0.0625, 0.1685791015625), (4, 2, 1, 1), eps=2.0),
    "softmax of equal keys": Case(
        "(float16[N,K] x) => (float16[N,K] y) { y = Softmax (x) }", (1, 66000), 0.0, (0.0, 0.0)),
    "softmax": Case(
        "(float16[N,K] x) => (float16[N,K] y) { y = Softmax (x) }",
        (2, 100), 4.0, (0.0007276535034179688, 0.0216522216796875), eps=4.0),
    "norm of a row": Case(
        "(float16[N,K] x, float16[K] w) => (float16[N,K] y) { y = LayerNormalization (x, w) }",
        (1, 1024), 300.0, (-0.0008435249328613281, 0.001590728759765625), (1024,), eps=2.0),
}  # fmt: skip


def emulate(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(lab_of(open_source(model, False, None)).emulated(SUMS)(feeds)["y"], np.float64).ravel()


def agree(found: np.ndarray, device: np.ndarray, eps: float) -> bool:
    return bool(np.allclose(found, device, rtol=eps * 2.0**-10, atol=0.0, equal_nan=True))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_emulation_answers_what_the_device_answered(case: Case) -> None:
    found = emulate(case.model, case.feeds)[: len(case.answers)]
    assert agree(found, np.array(case.answers), case.eps), found


MODELS = {
    "pool": ("(float[N,2,64,64] x) => (float[N,2,1,1] y) { [r] h = Relu (x) [m] y = GlobalAveragePool (h) }",
             (2, 64, 64), 20.0),
    "log-sum-exp": (
        "(float[N,1000] x) => (float[N,1] y) { [r] h = Relu (x) [m] y = ReduceLogSumExp <axes = [-1]> (h) }", (1000,),
        5.0),
    "product": ("(float[N,1024] x) => (float[N,1] y) { [r] h = Relu (x) [m] y = MatMul (h, w) }", (1024,), 300.0),
    "product as a mean": ("(float[N,1024] x) => (float[N,1] y) { [r] h = Relu (x) [m] y = MatMul (h, w) }", (1024,),
                          100.0),
}  # fmt: skip


def source_of(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    text, shape, size = MODELS[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    weight = np.full((1024, 1), 1.0 / 1024) if name.endswith("mean") else np.ones((1024, 1))
    if name == "product":
        weight[512:] = -0.8
    if "MatMul" in text:
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), "w"))
    numbers = _numbers((6, *shape))
    if name.endswith("mean"):  # alike, so that every addition rounds to the same side
        numbers = 0.9 + numbers / 10
    return model, {"x": (numbers * size).astype(np.float32)}


@pytest.mark.parametrize("name", MODELS)
def test_what_the_target_cannot_sum_stays_in_fp32(name: str) -> None:
    model, feeds = source_of(name)
    chosen = {"to": "fp16", "policy": "aggressive", "data": [feeds]}
    for target, dtype in (("onnxruntime-web", DType.FLOAT32), ("onnxruntime-cuda", DType.FLOAT16)):
        converted = mezzo.convert(model, target=target, **chosen)
        assert converted.plan.by_name["m"].precision.compute is dtype, target
        assert converted.measured.comparison.verdict.ruling is not Ruling.DIFFERENT


@pytest.mark.parametrize("name", MODELS)
def test_comparison_sums_as_the_target_that_a_model_was_converted_for(name: str) -> None:
    model, feeds = source_of(name)
    rulings = []
    for target in ("onnxruntime-web", "onnxruntime-cuda"):
        low = mezzo.convert(model, to="fp16", policy="aggressive", target=target, check=False).model
        comparison = mezzo.compare(model, low, [feeds])
        says_so = "sums within operators are in f16, as the target's kernels have them" in comparison.notes
        assert says_so is (target == "onnxruntime-web")
        rulings.append(comparison.verdict.ruling is Ruling.DIFFERENT)
    assert rulings == [True, False]


@pytest.mark.parametrize(
    ("text", "assume", "policy", "rule"),
    [
        ("m = GlobalAveragePool (x)", "10..30", "balanced", "low-sum"),
        ("m = GlobalAveragePool (x)", "-1..1", "balanced", None),
        ("m = ReduceLogSum <axes = [2, 3]> (x)", "10..30", "balanced", "low-sum"),
        ("h = Tile (x, t) m = GlobalAveragePool (h)", "-1..1", "aggressive", "low-count"),
    ],
)
def test_estimates_bound_sums_of_the_target(text: str, assume: str, policy: str, rule: str | None) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[N,2,64,64] x) => (float[N,2,A,B] y)'
        f" <int64[4] t = {{1, 1, 8, 8}}> {{ {text} y = Relu (m) }}"
    )
    for target in ("onnxruntime-web", "onnxruntime-cuda"):
        plan = mezzo.plan(model, to="fp16", policy=policy, target=target, assume={"x": assume})
        node = next(node for node in plan.nodes if node.op.startswith(("Global", "Reduce")))
        is_found = node.rule in ("low-sum", "low-count")
        assert (node.rule if is_found else None) == (rule if target == "onnxruntime-web" else None)


def test_model_that_cannot_reach_the_opset_of_the_emulation_is_compared_with_fp32_sums() -> None:
    """Upsample 9 has no step to opset 13 here, as its scales are computed."""
    model = onnx.parser.parse_model("""<ir_version: 6, opset_import: ["": 9]>
        g (float16[1,1,8,8] x, float[4] s) => (float16[N,C,A,B] y) { u = Upsample (x, s) y = GlobalAveragePool (u) }""")
    feeds = {"x": np.ones((1, 1, 8, 8), np.float16), "s": np.array([1, 1, 2, 2], np.float32)}
    assert emulate(model, feeds) == [1.0]


@needs_device
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_device_answers_what_it_answered(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(FOLDER))
    watch = OnnxStopwatch(case.model, WEB, case.feeds, Loading(limit_s=120.0))
    runner = watch.start()
    try:
        found = np.float64(runner.answer(case.feeds)["y"]).ravel()[: len(case.answers)]
    finally:
        runner.close()
        watch.close()
    assert agree(found, np.array(case.answers), 0.0), found
