"""Random small networks in INT8: what a runtime answers, beside what mezzo's emulation and FP32 say.

    pip install onnx onnxruntime openvino rich
    python benchmarks/int8_answers.py --runtime openvino --seeds 0 200
    python benchmarks/int8_answers.py --runtime openvino --kind branches --seeds 0 60
    python benchmarks/int8_answers.py --runtime onnxruntime --mode full --seeds 0 200 --json out/int8-answers.json

Convolutions, products, activations, residual sums, pools, concatenations and numbers per channel or column are put
behind each other by chance, in FP32 [n, 8, 6, 6]; other kinds are trunks of parallel branches with pools, and
transformer blocks. Each network is converted for the runtime, and run there on data that no scale saw. It is wrong
where the error is above three times the emulated one and a hundredth: a kernel that lost a scale is far off, rounding
ties are not. Networks that the runtime cannot load, or answers wrongly in FP32, are told so. Each is judged in a
process of its own, as runtimes can end theirs. Exit code 1 where one is wrong, refused or crashes.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import int8_runtimes as runtimes
import numpy as np
import onnx
from apart import run_apart
from conformance import describe_environment
from int8_networks import CHANNELS, KINDS, SIDE, Network
from rich.console import Console

import mezzo

_SAMPLES, _BATCHES = 8, 6
_TIMES, _BESIDE = 3.0, 0.01
_FP32_NOISE = 1e-3
# What is not quantized is to run as the file says: left alone, OpenVINO runs it in BF16 where the CPU has that.
_EXACTLY = {"EXECUTION_MODE_HINT": "ACCURACY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One network: what was found, and the largest error of its outputs, emulated and of the runtime."""

    seed: int
    found: str  # right, wrong, refused, or what is wrong without mezzo
    emulated: float = 0.0
    error: float = 0.0
    integer_nodes: tuple[str, ...] = ()
    said: str = ""


def judge(seed: int, kind: str, runtime: str, mode: str, folder: Path, report: Callable[[Case], None]) -> Case:
    """Draw a network, convert it, and run both files. What is reported holds if the runtime ends the process here."""
    model, draw = Network(seed, kind).draw(), np.random.default_rng(seed + 9999)
    shape = (_SAMPLES, CHANNELS, SIDE, SIDE)
    data = [{"x": draw.standard_normal(shape).astype(np.float32)} for _ in range(_BATCHES + 1)]
    unseen, plain, quantized = data.pop(), folder / "plain.onnx", folder / "quantized.onnx"
    onnx.save(model, plain)
    exact = _answers("onnxruntime", plain, unseen)
    if not all(np.isfinite(answer).all() for answer in exact):
        return Case(seed=seed, found="not finite in FP32")
    made = mezzo.convert(
        plain, quantized, to="int8", target=f"{runtime}-cpu", data=data, quantize_mode=mode, overwrite=True
    )
    assert made.measured is not None and made.measured.comparison is not None, "there was data"
    emulated = max(output.relative_l2.estimate for output in made.measured.comparison.outputs)
    integer = tuple(
        node.name for node in made.plan.nodes if node.kind == "op" and str(node.precision.compute) == "int8"
    )
    report(Case(seed=seed, found="crashed in FP32"))
    try:
        if _largest(_answers(runtime, plain, unseen), exact) > _FP32_NOISE:
            return Case(seed=seed, found="answered wrong in FP32")
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        return Case(seed=seed, found="refused in FP32", said=str(error)[-300:])
    report(Case(seed=seed, found="crashed", integer_nodes=integer))
    try:
        reached = _largest(_answers(runtime, quantized, unseen), exact)
    except Exception as refusal:  # noqa: BLE001  any of the runtime's own
        return Case(seed=seed, found="refused", integer_nodes=integer, said=str(refusal)[-300:])
    is_right = reached <= _TIMES * emulated + _BESIDE
    found = "right" if is_right else "wrong"
    return Case(seed=seed, found=found, emulated=emulated, error=reached, integer_nodes=integer)


def _answers(runtime: str, path: Path, feeds: runtimes.Feeds) -> list[np.ndarray]:
    return [np.asarray(answer) for answer in runtimes.load(runtime, path, _SAMPLES, _EXACTLY).answers(feeds)]


def _largest(answers: list[np.ndarray], exact: list[np.ndarray]) -> float:
    """The largest relative L2 of several outputs; infinite where one is not finite."""
    errors = [runtimes.errors(got, want)[0] for got, want in zip(answers, exact, strict=True)]
    return max(error if np.isfinite(error) else float("inf") for error in errors)


def _apart(seed: int, given: argparse.Namespace, folder: Path) -> Case:
    """Judge in a process of its own, which the runtime may end."""
    work = partial(judge, seed, given.kind, given.runtime, given.mode, folder)
    return run_apart(work, Case(seed=seed, found="not judged"))


def _cases(given: argparse.Namespace) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(*given.seeds):
            yield _apart(seed, given, Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", choices=runtimes.RUNTIMES, default="openvino")
    parser.add_argument("--kind", choices=tuple(KINDS), default="mixed")
    parser.add_argument("--mode", choices=("smart", "full"), default="smart")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 200), metavar=("FROM", "TO"))
    parser.add_argument("--json", type=Path, help="write every case here")
    given = parser.parse_args()
    console, environment, cases = Console(width=160), describe_environment("mezzo"), []
    console.print(f"CPU features: {' '.join(environment['cpu_features'])}")
    for case in _cases(given):
        cases.append(case)
        if case.found != "right":
            nodes = " ".join(case.integer_nodes)
            console.print(
                f"{case.seed}: {case.found}, emulated {case.emulated:.4f}, {case.error:.4f} {nodes} {case.said}"
            )
    counts = Counter(case.found for case in cases)
    console.print(
        f"{given.runtime}, {given.mode}, {given.kind}: "
        + ", ".join(f"{count} {found}" for found, count in counts.items())
    )
    if given.json is not None:
        document = {"environment": environment, "kind": given.kind, "mode": given.mode, "runtime": given.runtime}
        given.json.write_text(json.dumps(document | {"cases": [asdict(case) for case in cases]}, indent=1), "utf-8")
    return 1 if any(counts[found] for found in ("wrong", "refused", "crashed", "not judged")) else 0


if __name__ == "__main__":
    sys.exit(main())
