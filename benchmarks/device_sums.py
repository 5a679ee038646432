"""How ONNX Runtime Web's WebGPU kernels sum in FP16: what the device answers beside what mezzo emulates for it.

    make device && python benchmarks/device_sums.py --json out/device_sums.json   # ten minutes

Each operator sums 2^4 to 2^18 terms: uniform ones in 0..1, whose rounding shows format and order of the sum, and
larger ones whose sum, or a part of it, passes 65,504 though the exact result is far below. A row has the device's
error from FP64, the emulation's with the rows of target onnxruntime-web and with FP32 sums, and whether device and
emulation are infinite, NaN or zero at the same places. Exits with 1 if they are not, or if device and emulation differ
by more than half the device's error and two of FP16's roundings.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
from webgpu import answers

from mezzo.contracts.frontend import lab_of
from mezzo.contracts.plans import Accumulation
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import target

Array = npt.NDArray[np.float64]
_HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
_WEB = target("onnxruntime-web")
_SUMS = Accumulation.of(_WEB, (DType.FLOAT16,))
_ROUNDING = 2 * 2.0**-11
_MOST = 1 << 18
# Longer sums in one accumulator take minutes: each term is a step of its own.
_MOST_STEPS = 1 << 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that sums `terms` of its inputs. `weights`: their shape, for a product. `most` terms are measured."""

    name: str
    text: str
    exact: Callable[[Array, Array], Array]
    large: float
    shape: Callable[[int], tuple[int, ...]] = lambda n: (3, n)
    weights: Callable[[int], tuple[int, ...]] | None = None
    is_signed: bool = False
    most: int = _MOST

    def feeds(self, terms: int, largest: float) -> dict[str, npt.NDArray[np.float16]]:
        rng = np.random.default_rng(terms)
        feeds = {"x": rng.uniform(0.5 * largest if largest > 1 else 0.0, largest, self.shape(terms))}
        if self.weights is not None:
            feeds["w"] = rng.uniform(0.0, 0.125, self.weights(terms))
        if self.is_signed and largest > 1:  # one half cancels the other: no result is large, but partial sums are
            sign = np.where(np.arange(terms) < terms // 2, 1.0, -1.0)
            feeds["w"] = np.broadcast_to(sign.reshape(-1, 1) if feeds["w"].ndim == 2 else sign.reshape(1, -1, 1, 1),
                                         feeds["w"].shape)  # fmt: skip
        return {name: array.astype(np.float16) for name, array in feeds.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    operator: str
    terms: int
    largest: float
    device_error: float
    emulated_error: float
    fp32_error: float
    difference: float
    device_lost: int
    emulated_lost: int
    answers: int
    agrees: bool


def _image(terms: int) -> tuple[int, ...]:
    height = 1 << (int(math.log2(terms)) // 2)
    return 1, 3, height, terms // height


def _softmax(x: Array) -> Array:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def _normalized(x: Array) -> Array:
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5))


_ROWS = "(float16[N,K] x) => (float16[N,J] y)"
_IMAGES = "(float16[N,C,H,W] x) => (float16[N,C,A,B] y)"
_PRODUCT = "(float16[M,K] x, float16[K,N] w) => (float16[M,N] y)"


def _operators(terms: int) -> Iterator[Operator]:
    def reduction(name: str, function: Callable[[Array], Array], large: float) -> Operator:
        text = f"{_ROWS} {{ y = {name} <axes = [-1]> (x) }}"
        if name == "ReduceSum":
            text = f"{_ROWS} {{ a = Constant <value = int64[1] {{-1}}> () y = ReduceSum (x, a) }}"
        return Operator(name=name, text=text, exact=lambda x, _: function(x), large=large)

    yield Operator(name="MatMul", text=f"{_PRODUCT} {{ y = MatMul (x, w) }}", exact=lambda x, w: x @ w, large=1000.0,
                   weights=lambda n: (n, 5), is_signed=True, most=_MOST_STEPS)  # fmt: skip
    yield Operator(name="Gemm", text=f"{_PRODUCT} {{ y = Gemm (x, w) }}", exact=lambda x, w: x @ w, large=1000.0,
                   weights=lambda n: (n, 5), is_signed=True, most=_MOST_STEPS)  # fmt: skip
    yield Operator(name="Conv", text=f"{_IMAGES[:-len(') => (float16[N,C,A,B] y)')]}, float16[O,C,k,l] w) =>"
                   " (float16[N,O,A,B] y) { y = Conv (x, w) }", large=1000.0, is_signed=True, most=_MOST_STEPS,
                   exact=lambda x, w: np.einsum("nchw,ocij->nohw", x, w), shape=lambda n: (1, n, 2, 2),
                   weights=lambda n: (5, n, 1, 1))  # fmt: skip
    yield reduction("ReduceSum", lambda x: x.sum(-1, keepdims=True), 1.0)
    yield reduction("ReduceMean", lambda x: x.mean(-1, keepdims=True), 40.0)
    yield reduction("ReduceL1", lambda x: np.abs(x).sum(-1, keepdims=True), 1.0)
    yield reduction("ReduceL2", lambda x: np.sqrt((x * x).sum(-1, keepdims=True)), 40.0)
    yield reduction("ReduceSumSquare", lambda x: (x * x).sum(-1, keepdims=True), 1.0)
    yield reduction("ReduceLogSum", lambda x: np.log(x.sum(-1, keepdims=True)), 40.0)
    yield reduction("ReduceLogSumExp", lambda x: np.log(np.exp(x).sum(-1, keepdims=True)), 9.0)
    yield Operator(name="GlobalAveragePool", text=f"{_IMAGES} {{ y = GlobalAveragePool (x) }}", large=40.0,
                   exact=lambda x, _: x.mean((2, 3), keepdims=True), shape=_image)  # fmt: skip
    height, width = _image(terms)[2:]
    yield Operator(name="AveragePool", text=f"{_IMAGES} {{ y = AveragePool <kernel_shape = [{height}, {width}]> (x) }}",
                   large=40.0, exact=lambda x, _: x.mean((2, 3), keepdims=True), shape=_image)  # fmt: skip
    yield Operator(name="Softmax", text="(float16[N,K] x) => (float16[N,K] y) { y = Softmax (x) }", large=40.0,
                   exact=lambda x, _: _softmax(x))  # fmt: skip
    yield Operator(name="LayerNormalization", large=400.0, exact=lambda x, _: _normalized(x), weights=lambda n: (n,),
                   text="(float16[N,K] x, float16[K] w) => (float16[N,K] y) { o = Div (w, w)"
                   " y = LayerNormalization (x, o) }")  # fmt: skip
    yield Operator(name="InstanceNormalization", large=400.0, exact=lambda x, _: _normalized(x),
                   shape=lambda n: (1, 3, n), weights=lambda n: (3,),
                   text="(float16[N,C,K] x, float16[C] w) => (float16[N,C,K] y) { o = Div (w, w) z = Sub (w, w)"
                   " y = InstanceNormalization (x, o, z) }")  # fmt: skip
    yield Operator(name="CumSum", large=40.0, most=_MOST_STEPS, exact=lambda x, _: np.cumsum(x, -1),
                   text="(float16[N,K] x) => (float16[N,K] y) { a = Constant <value = int64 {1}> ()"
                   " y = CumSum (x, a) }")  # fmt: skip


def _emulate(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], sums: Accumulation | None) -> Array:
    return np.float64(lab_of(open_source(model, False, None)).emulated(sums)(feeds)["y"])


def _error(found: Array, exact: Array) -> float:
    """Relative error of the finite answers."""
    kept = np.isfinite(found) & np.isfinite(exact)
    return float(np.linalg.norm(found[kept] - exact[kept]) / max(np.linalg.norm(exact[kept]), 1e-300))


def _lost(found: Array, exact: Array) -> npt.NDArray[np.bool_]:
    """Which answers are infinite, NaN, or zero where the exact one is not small."""
    is_large = np.abs(exact) > 0.01 * np.sqrt(np.mean(exact * exact))
    return np.asarray(~np.isfinite(found) | ((found == 0) & is_large))


def _measure(operator: Operator, cases: Sequence[tuple[int, float]]) -> Iterator[Row]:
    """Rows of one operator, which the device loads once, for numbers of terms and largest inputs."""
    model = onnx.parser.parse_model(_HEAD + operator.text)
    feeds = [operator.feeds(*case) for case in cases]
    is_refused = _WEB.refusal("onnx", operator.name, 14, {}, DType.FLOAT16) is not None
    for (terms, largest), fed, answer in zip(cases, feeds, answers(model, feeds), strict=True):
        device = np.float64(answer["y"])
        exact = operator.exact(np.float64(fed["x"]), np.float64(fed.get("w", np.zeros(1))))
        emulated, in_fp32 = _emulate(model, fed, _SUMS), _emulate(model, fed, None)
        device_error, difference = _error(device, exact), _error(emulated, device)
        lost = _lost(device, exact), _lost(emulated, exact)
        is_same = np.array_equal(np.isnan(device), np.isnan(emulated)) and np.array_equal(*lost)
        yield Row(
            operator=operator.name, terms=terms, largest=largest, device_error=device_error,
            emulated_error=_error(emulated, exact), fp32_error=_error(in_fp32, exact), difference=difference,
            device_lost=int(lost[0].sum()), emulated_lost=int(lost[1].sum()), answers=device.size,
            agrees=is_refused or (is_same and difference <= 0.5 * device_error + _ROUNDING),
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--op", action="append", help="operators to measure; all unless given")
    parser.add_argument("--most", type=int, default=18, help="the largest power of two of terms")
    asked = parser.parse_args()
    rows = []
    print("| operator | terms | largest | device's error | emulated | with FP32 sums | difference | lost | agrees |")
    print("|---|---|---|---|---|---|---|---|---|")
    cases = defaultdict[str, list[tuple[int, float]]](list)
    operators: dict[str, Operator] = {}
    for terms in (1 << power for power in range(4, asked.most + 1, 2)):
        for operator in _operators(terms):
            if (not asked.op or operator.name in asked.op) and terms <= operator.most:
                operators[operator.text] = operator
                cases[operator.text] += [(terms, largest) for largest in dict.fromkeys((1.0, operator.large))]
    for text, operator in operators.items():
        for row in _measure(operator, cases[text]):
            rows.append(row)
            print(
                f"| {row.operator} | {row.terms} | {row.largest:g} | {row.device_error:.1e} |"
                f" {row.emulated_error:.1e} | {row.fp32_error:.1e} | {row.difference:.1e} |"
                f" {row.device_lost}, {row.emulated_lost} of {row.answers} | {'yes' if row.agrees else 'NO'} |",
                flush=True,
            )
            if asked.json is not None:
                asked.json.write_text(json.dumps([asdict(each) for each in rows], indent=1))
    return int(not all(row.agrees for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
