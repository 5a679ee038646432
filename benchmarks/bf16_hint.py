"""BF16 as mezzo plans it beside the BF16 hint of OpenVINO: error, kernels and speed, of whole models, side by side.

    pip install onnx onnxruntime openvino
    python benchmarks/bf16_hint_models.py --cache out/bf16-hint       # with a Python that has torch and transformers
    python benchmarks/bf16_hint.py --cache out/bf16-hint
    python benchmarks/bf16_hint.py --cache out/architectures --every

`--every` takes every model of a folder, with the inputs stored beside it, and sums up errors and kernels.

Each model four times in one process: in FP32 (hint f32), with the runtime's own BF16 hint, and typed by mezzo in mode
ACCURACY, planned without what is known of the target's kernels ("before") and with it ("after"). Errors are relative
L2 of the first output against FP32, as OpenVINO's kernels give them on this machine; those of the typed files also in
true BF16, rounded after every operator, where no kernel computes in FP32 what the file types BF16. "FP32 at no cost"
counts the operators that the plan keeps for that reason. Kernels are layers of the runtime graph, apart from constants,
inputs and outputs. Before each timed call stand 20 ms of rest and an untimed call; models take turns.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.plugins import discovery

MODELS = ("resnet-50", "bert", "mobilenet-v2", "vit", "gpt2", "whisper-encoder")
_TARGET = "openvino-cpu"
_BF16_FEATURES = frozenset({"amx_bf16", "avx512_bf16"})
_REST_S = 0.02
_FREE = "free-in-kernel"
_CLOSE = 0.02  # errors within this share of each other are the same
_ANY = 1e-5  # what errs by less is not rounded to BF16 anywhere that counts
_APART = frozenset({"Const", "Constant", "Input", "Output", "Result"})

Feeds = Mapping[str, np.ndarray]


@dataclass(slots=True)
class Row:
    """One model. Errors and times are by variant: "fp32", "hint", "before", "after"."""

    model: str
    errors: dict[str, float]
    emulated: dict[str, float]
    kernels: dict[str, int]
    bf16_kernels: dict[str, int]
    free: int
    times_ms: dict[str, float]


class Variant:
    """A compiled model."""

    def __init__(self, model: onnx.ModelProto, settings: Mapping[str, str], feeds: Feeds) -> None:
        import openvino

        core = openvino.Core()
        self._compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", dict(settings))
        self._request = self._compiled.create_infer_request()
        self._feeds = dict(feeds)

    def answer(self) -> np.ndarray:
        """The first output, as it comes in FP32."""
        self._request.infer(self._feeds)
        return np.array(self._request.get_output_tensor(0).data, np.float64)

    def time_ms(self) -> float:
        """One call, after a rest and a call that is not timed."""
        time.sleep(_REST_S)
        self._request.infer(self._feeds)
        begin = time.perf_counter()
        self._request.infer(self._feeds)
        return (time.perf_counter() - begin) * 1e3

    def kernels(self) -> tuple[int, int]:
        """Layers of the runtime graph, and those of them that run in BF16."""
        about = [layer.get_rt_info() for layer in self._compiled.get_runtime_model().get_ordered_ops()]
        layers = [info for info in about if str(info["layerType"].astype(str)) not in _APART]
        return len(layers), sum(str(info["runtimePrecision"].astype(str)) == "bf16" for info in layers)


def relative_error(got: np.ndarray, reference: np.ndarray) -> float:
    return float(np.linalg.norm(got - reference) / np.linalg.norm(reference))


def read_feeds(path: Path, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The inputs stored beside a model."""
    wanted = {port.name for port in model.graph.input}
    with np.load(path.with_suffix(".npz")) as stored:
        inputs = {name.removeprefix("in:"): name for name in stored.files if not name.startswith("out:")}
        return {name: stored[key] for name, key in inputs.items() if name in wanted}


def measure(path: Path, rounds: int, *, emulates: bool) -> Row:
    """Run one model in its four forms."""
    model = onnx.load(path)
    feeds = read_feeds(path, model)
    # The same target without its fusions: what plans were before they knew kernels.
    without = replace(discovery.target(_TARGET), name=f"{_TARGET} without units", fusions=())
    before, after = (mezzo.convert(model, to="bf16", target=target) for target in (without, _TARGET))
    accuracy = {"EXECUTION_MODE_HINT": "ACCURACY"}
    forms: dict[str, tuple[onnx.ModelProto, Mapping[str, str]]] = {
        "fp32": (model, {"INFERENCE_PRECISION_HINT": "f32"}),
        "hint": (model, {"INFERENCE_PRECISION_HINT": "bf16"}),
        "before": (before.model, accuracy),
        "after": (after.model, accuracy),
    }
    variants = {name: Variant(*form, feeds) for name, form in forms.items()}
    answers = {name: variant.answer() for name, variant in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, variant in variants.items():
            times[name].append(variant.time_ms())
    emulated = {}
    for name, typed in {"before": before.model, "after": after.model}.items() if emulates else ():
        outputs = mezzo.emulate(typed, feeds)
        first = np.asarray(outputs[typed.graph.output[0].name], np.float64)
        emulated[name] = relative_error(first, answers["fp32"])
    counts = {name: variant.kernels() for name, variant in variants.items()}
    return Row(
        model=path.stem,
        errors={name: relative_error(answers[name], answers["fp32"]) for name in ("hint", "before", "after")},
        emulated=emulated,
        kernels={name: every for name, (every, _) in counts.items()},
        bf16_kernels={name: low for name, (_, low) in counts.items()},
        free=sum(node.rule == _FREE for node in after.plan.nodes),
        times_ms={name: statistics.median(taken) for name, taken in times.items() if taken},
    )


def show(console: Console, rows: Sequence[Row], features: Sequence[str]) -> None:
    """Print errors and kernels, and speeds where this CPU can tell them."""
    console.print(f"CPU features: {' '.join(features)}")
    columns = ("model", "error: hint", "before", "after", "in true BF16: before", "after", "FP32 at no cost")
    table = Table(title="error against FP32, and operators that stay in FP32 at no cost")
    for column in columns:
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        errors = [f"{row.errors[name]:.4f}" for name in ("hint", "before", "after")]
        emulated = [f"{row.emulated[name]:.4f}" if row.emulated else "-" for name in ("before", "after")]
        table.add_row(row.model, *errors, *emulated, str(row.free))
    console.print(table)
    can_time = bool(_BF16_FEATURES.intersection(features))
    table = Table(title="kernels (of them in BF16), and speed as a multiple of the hint's")
    for column in ("model", "hint", "before", "after", "speed before", "speed after"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        kernels = [f"{row.kernels[name]} ({row.bf16_kernels[name]})" for name in ("hint", "before", "after")]
        speeds = [f"{_speed(row, name):.2f}" if can_time else "not judged" for name in ("before", "after")]
        table.add_row(row.model, *kernels, *speeds)
    console.print(table)
    if can_time:
        mean = math.exp(statistics.fmean(math.log(_speed(row, "after")) for row in rows))
        console.print(f"geometric mean of speeds after: {mean:.3f}")
    else:
        console.print(
            "This CPU has neither AMX nor AVX512-BF16. OpenVINO heeds BF16 all the same, in files and as a hint, and "
            "computes it by other instructions: errors and kernels are told, speeds are not judged here."
        )


def sum_up(console: Console, rows: Sequence[Row]) -> None:
    """Print how errors and kernels of many models differ from before, and from the hint's."""
    totals = {name: sum(row.kernels[name] for row in rows) for name in ("hint", "before", "after")}
    spelled = ", ".join(f"{name} {total}" for name, total in totals.items())
    console.print(f"{len(rows)} models; kernels in all: {spelled}")
    for word, sign in (("smaller", -1), ("larger", 1)):
        errors = sum(
            sign * (row.errors["after"] - row.errors["before"]) > _CLOSE * row.errors["before"] for row in rows
        )
        kernels = [row.model for row in rows if sign * (row.kernels["after"] - row.kernels["before"]) > 0]
        named = f" ({', '.join(kernels)})" if sign > 0 and kernels else ""
        console.print(f"{word} than before: errors of {errors}, kernels of {len(kernels)}{named}", markup=False)
    for name in ("before", "after"):
        within = sum(row.errors[name] <= (1 + _CLOSE) * row.errors["hint"] for row in rows)
        console.print(f"error no larger than the hint's {name}: {within}")
    ratios = [math.log(row.errors["after"] / row.errors["before"]) for row in rows if min(row.errors.values()) > _ANY]
    console.print(
        f"geometric mean of errors after over before, {len(ratios)} models: {math.exp(statistics.fmean(ratios)):.2f}"
    )


def _speed(row: Row, name: str) -> float:
    return row.times_ms["hint"] / row.times_ms[name]


def _try(path: Path) -> Row | None:
    """A model's row without times; None where OpenVINO refuses it or its answer is no number."""
    try:
        row = measure(path, 0, emulates=False)
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        print(f"{path.name}: {str(error)[:100]}", file=sys.stderr)
        return None
    if not all(math.isfinite(error) for error in row.errors.values()):
        print(f"{path.name}: an answer is no number", file=sys.stderr)
        return None
    print(json.dumps(asdict(row)), file=sys.stderr, flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/bf16-hint"))
    parser.add_argument("--only", nargs="*", choices=MODELS, default=[])
    parser.add_argument("--rounds", type=int, default=30, help="timed calls of each form")
    parser.add_argument("--no-emulation", action="store_true", help="leave out the errors in true BF16")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--every", action="store_true", help="every model of the folder, summed up; no emulation")
    given = parser.parse_args(arguments)
    environment: dict[str, Any] = describe_environment("mezzo")
    features = environment["cpu_features"]
    rounds = given.rounds if _BF16_FEATURES.intersection(features) else 0
    rows = []
    if given.every:
        for path in sorted(given.cache.glob("*.onnx")):
            row = _try(path)
            rows += [] if row is None else [row]
        sum_up(Console(width=120), rows)
        return 0
    for name in given.only or MODELS:
        path = given.cache / f"{name}.onnx"
        if not path.exists():
            print(f"{path} is not there: run benchmarks/bf16_hint_models.py", file=sys.stderr)
            return 2
        rows.append(measure(path, rounds, emulates=not given.no_emulation))
        print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    show(Console(width=120), rows, features)
    if given.json is not None:
        document = {"environment": environment, "results": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
