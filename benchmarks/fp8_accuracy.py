"""FP8 beside INT8 on trained networks, both emulated: what no runtime here runs, judged alike.

    python benchmarks/int8_training.py --cache out/int8     # needs torch and scikit-learn, once
    python benchmarks/fp8_accuracy.py --cache out/int8

Scales from all of the calibration data but the quarter that judges a conversion; errors on the held-out data, relative
to what varies between samples, and points of top-1 gained or lost. Every file runs in its FP32 twin, operator by
operator.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx

import mezzo
from mezzo.contracts.plans import Plan
from mezzo.onnx.run.emulation import emulated_session

_ROWS = (
    ("int8", "tensorrt", "minmax"),
    ("int8", "tensorrt", "mse"),
    ("fp8", "tensorrt", "minmax"),
    ("fp8", "tensorrt", "mse"),
    ("fp8,bf16", "tensorrt", "minmax"),
    ("fp8", "onnx", "minmax"),
    ("fp8-e5m2", "onnx", "minmax"),
)


def answers(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    """The first output, in the true rounding of the model's types."""
    results = emulated_session(model).run(feeds)
    return np.asarray(next(iter(results.values())), np.float64)


def quantized_products(plan: Plan) -> str:
    """How many convolutions and products run in the format with scales, of all."""
    every = [node for node in plan.nodes if node.op in ("Conv", "Gemm", "MatMul")]
    formats = Counter(node.precision.compute for node in every)
    return f"{formats[plan.line.quantized_format]} of {len(every)}" if plan.line.quantized_format else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="where int8_training.py wrote")
    parser.add_argument("--networks", nargs="+", default=["cnn", "residual", "depthwise", "vit"])
    given = parser.parse_args()
    print("| network | to | target | scales | products | error | top-1 |\n|---|---|---|---|---|---|---|")
    for name in given.networks:
        path = given.cache / f"{name}.onnx"
        if not path.exists():
            sys.exit(f"{path} is missing; run benchmarks/int8_training.py first")
        model, feeds = onnx.load(path), dict(np.load(given.cache / f"{name}.held_out.npz"))
        labels = feeds.pop("labels")
        exact = answers(model, feeds)
        spread = float(np.linalg.norm(exact - exact.mean(axis=0)))
        right = float((exact.argmax(axis=-1) == labels).mean())
        for to, target, calibrator in _ROWS:
            result = mezzo.convert(
                model, to=to, target=target, data=given.cache / f"{name}.calibration.npz", calibrator=calibrator
            )
            found = answers(result.model, feeds)
            error = float(np.linalg.norm(found - exact)) / spread
            points = 100 * (float((found.argmax(axis=-1) == labels).mean()) - right)
            products = quantized_products(result.plan)
            print(f"| {name} | {to} | {target} | {calibrator} | {products} | {error:.4f} | {points:+.2f} |", flush=True)


if __name__ == "__main__":
    main()
