"""A language model with trained weights, in FP16 and BF16: what each plan costs in bits per byte on held-out text.

    python benchmarks/language_model.py                  # trains in minutes where the cache has no model
    python benchmarks/language_model.py --minutes 10 --retrain

Trains the model as language_model_training.py tells (needs torch and onnxscript), converts it, runs the plans in their
true precision on text that neither training nor conversion saw, and judges: cosine of the logits to FP32's at least
0.9999 (FP16) and 0.999 (BF16), bits per byte worse by at most 0.1 %. Then the frontier between speed and error, and the
accuracy of the demo model, which may drop by half a point. Ends with 1 if a bound is missed.
"""

import argparse
import importlib.util
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import language_model_training as training
import numpy as np
import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.numerics.measures import Measured
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Session, native_session
from mezzo.report.layout.layout import Layout
from mezzo.report.text.measured.frontier import report_frontier

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits"
LEAST_COSINE = {"fp16": 0.9999, "bf16": 0.999}
LARGEST_LOSS = 1e-3  # share of FP32's bits per byte
LARGEST_DROP = 0.005  # of the demo model's accuracy
TUNED_ERRORS = {"fp16": 2.4e-4, "bf16": 1.9e-3}  # three quarters of what everything low costs
ROWS_PER_RUN = 16


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model made of the held-out text: per row of it the bits, and the other sums of one pass over the logits.

    `hits`: per row, on how many positions the largest logit stands where FP32's does.
    """

    bits: np.ndarray
    hits: np.ndarray
    dot: float
    own: float
    reference: float
    difference: float


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. Intervals hold 95 % and are over rows of text."""

    plan: str
    to: str
    low_nodes: int
    float_nodes: int
    casts: int
    cosine: float
    relative_l2: float
    bits_per_byte: float
    worse: float  # share of FP32's bits per byte
    worse_interval: tuple[float, float]
    agreement: float
    agreement_interval: tuple[float, float]

    @property
    def misses(self) -> str:
        faults = []
        if not self.cosine >= LEAST_COSINE[self.to]:
            faults.append(f"cosine below {LEAST_COSINE[self.to]}")
        if not self.worse <= LARGEST_LOSS:
            faults.append(f"bits per byte worse by more than {LARGEST_LOSS:.1%}")
        return ", ".join(faults)


def run_rows(session: Session, tokens: np.ndarray) -> Iterator[np.ndarray]:
    """The logits of some rows at a time, so that the plan's need not all be held."""
    for start in range(0, len(tokens), ROWS_PER_RUN):
        yield session.run({"tokens": tokens[start : start + ROWS_PER_RUN]})["logits"]


def judge(model: onnx.ModelProto, reference: Sequence[np.ndarray], data: Mapping[str, np.ndarray]) -> Answers:
    """Run a plan in its true precision; `reference` are FP32's logits, some rows at a time."""
    bits, hits, sums = [], [], np.zeros(4)
    for number, (low, high) in enumerate(
        zip(run_rows(emulated_session(model), data["tokens"]), reference, strict=True)
    ):
        got, want = np.asarray(low, np.float64), np.asarray(high, np.float64)
        targets = data["targets"][number * ROWS_PER_RUN : (number + 1) * ROWS_PER_RUN]
        top = got.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(got, targets[..., None], -1)[..., 0]
        bits.append((np.log(np.exp(got - top).sum(axis=-1)) + top[..., 0] - chosen).mean(axis=-1) / np.log(2))
        hits.append((got.argmax(axis=-1) == want.argmax(axis=-1)).mean(axis=-1))
        sums += [np.vdot(got, want), np.vdot(got, got), np.vdot(want, want), np.sum((got - want) ** 2)]
    return Answers(np.concatenate(bits), np.concatenate(hits), *map(float, sums))


def interval(values: np.ndarray, measure: Callable[[np.ndarray], float]) -> tuple[float, float]:
    """A 95 % interval of a measure of rows, by drawing rows anew (bootstrap, 2,000 seeded draws)."""
    draws = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.quantile([measure(values[draw]) for draw in draws], [0.025, 0.975])
    return float(low), float(high)


def make_row(plan: str, to: str, made: mezzo.Converted, answers: Answers, exact: Answers) -> Row:
    pairs = np.stack([answers.bits, exact.bits], axis=1)

    def worse(rows: np.ndarray) -> float:
        return float(rows[:, 0].sum() / rows[:, 1].sum() - 1)

    summary = made.summary
    return Row(
        plan, to, summary.low_nodes, summary.low_nodes + summary.high_nodes, summary.casts,
        answers.dot / (answers.own * answers.reference) ** 0.5, (answers.difference / answers.reference) ** 0.5,
        float(answers.bits.mean()), worse(pairs), interval(pairs, worse),
        float(answers.hits.mean()), interval(answers.hits, lambda rows: float(rows.mean())),
    )  # fmt: skip


def print_rows(rows: list[Row], exact: Answers, console: Console) -> None:
    table = Table(title=f"held-out text in the true precision; FP32: {exact.bits.mean():.4f} bits per byte")
    for name in ("plan", "to"):
        table.add_column(name)
    for name in ("low nodes", "casts", "cosine", "error", "bits/byte", "worse by (95 %)", "top-1 as FP32 (95 %)"):
        table.add_column(name, justify="right")
    table.add_column("misses")
    for row in rows:
        low, high = row.worse_interval
        least, most = row.agreement_interval
        table.add_row(
            row.plan, row.to, f"{row.low_nodes}/{row.float_nodes}", str(row.casts), f"{row.cosine:.7f}",
            f"{row.relative_l2:.1e}", f"{row.bits_per_byte:.4f}", f"{row.worse:+.4%} ({low:+.4%} to {high:+.4%})",
            f"{row.agreement:.3%} ({least:.3%} to {most:.3%})", row.misses,
        )  # fmt: skip
    console.print(table)


@dataclass(frozen=True, slots=True)
class Digits:
    """Accuracy of the demo model on its held-out digits, FP32 and low."""

    to: str
    plan: str
    reference: float
    accuracy: float

    @property
    def misses(self) -> str:
        return "" if self.accuracy >= self.reference - LARGEST_DROP else f"drops by more than {LARGEST_DROP:.1%}"


def judge_digits() -> list[Digits]:
    """Convert the demo model and run it in its true precision on its held-out digits."""
    with np.load(DIGITS / "heldout.npz", allow_pickle=False) as file:
        images, labels = file["image"], file["label"]

    def accuracy(session: Session) -> float:
        return float((session.run({"image": images})["logits"].argmax(axis=1) == labels).mean())

    model = onnx.load(DIGITS / "digits.onnx")
    reference = accuracy(native_session(model))
    rows = []
    for to in LEAST_COSINE:
        for policy in ("balanced", "aggressive"):
            made = mezzo.convert(model, to=to, policy=policy)
            rows.append(Digits(to, policy, reference, accuracy(emulated_session(made.model))))
    return rows


def make_plans(model: onnx.ModelProto, tuning: Mapping[str, Any]) -> Iterator[tuple[str, str, mezzo.Converted]]:
    """Convert in every way that is judged. What sees data sees a part of the training text."""
    batches = [{"tokens": tuning["tokens"][start : start + 8]} for start in range(0, len(tuning["tokens"]), 8)]
    for to in LEAST_COSINE:
        for policy in ("balanced", "aggressive"):
            yield policy, to, mezzo.convert(model, to=to, policy=policy)
            yield f"{policy}, on data", to, mezzo.convert(model, to=to, policy=policy, data=batches)
        budget = TUNED_ERRORS[to]
        yield f"tuned to {budget:.1e}", to, mezzo.tune(model, to=to, data=batches, max_error=budget)


def print_frontier(plan: str, to: str, measured: Measured, console: Console) -> None:
    """Tell the plans that a search found, and how it went."""
    search = measured.search
    assert search is not None, "tuning leaves a record"
    console.print(f"\n{to}, {plan}: error {search.error:.2e}, on held-out data {search.held_out_error:.2e}; "
                  f"{search.evaluations} evaluations, {search.partial_evaluations} probes, {search.time_s:.0f} s; "
                  f"{search.stopped_by}; most costly: {search.costliest}", highlight=False)  # fmt: skip
    for line in report_frontier(Layout.PLAIN, measured.frontier, measured.costs):
        console.print(line)


def get_model(options: argparse.Namespace) -> str | None:
    """Train where the cache has no model, or another is wanted. Return what is missing for that, if anything."""
    if options.retrain or not (options.cache / "training.json").exists():
        missing = [name for name in ("torch", "onnxscript") if importlib.util.find_spec(name) is None]
        if missing:
            return ", ".join(missing)
        training.make(options.cache, options.minutes, lambda line: print(line, flush=True))
    return None


def judge_plans(
    model: onnx.ModelProto, cache: Path, count: int, console: Console
) -> tuple[list[Row], Answers, dict[str, Any]]:
    """Make and judge every plan; give the rows, FP32's answers and the frontiers as data."""
    tuning, held_out = (dict(np.load(cache / f"{part}.npz")) for part in ("tuning", "held_out"))
    held_out = {name: values[:count] for name, values in held_out.items()}
    reference = list(run_rows(native_session(model), held_out["tokens"]))
    exact = judge(model, reference, held_out)
    rows, frontiers, judged = [], {}, {}
    for plan, to, made in make_plans(model, tuning):
        key = made.model.SerializeToString(deterministic=True)  # data changes no plan where nothing is in danger
        if key not in judged:
            judged[key] = judge(made.model, reference, held_out)
        rows.append(make_row(plan, to, made, judged[key], exact))
        if made.measured is not None and made.measured.search is not None:
            print_frontier(plan, to, made.measured, console)
            frontiers[to] = [asdict(point) for point in made.measured.frontier]
    return rows, exact, frontiers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/language_model"), help="folder of model and data")
    parser.add_argument("--minutes", type=float, default=7, help="how long to train")
    parser.add_argument("--retrain", action="store_true", help="train although the cache has a model")
    parser.add_argument("--rows", type=int, default=training.HELD_OUT_ROWS, help="rows of held-out text to judge on")
    parser.add_argument("--json", type=Path, default=Path("out/language_model.json"))
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=170)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    missing = get_model(options)
    if missing is not None:
        print(f"training needs {missing}: pip install -e '.[bench]'", file=sys.stderr)
        return 2
    model = onnx.load(options.cache / "model.onnx")
    rows, exact, frontiers = judge_plans(model, options.cache, options.rows, console)
    print_rows(rows, exact, console)
    digits = judge_digits()
    for entry in digits:
        console.print(f"demo model, {entry.to}, {entry.plan}: accuracy {entry.accuracy:.2%}, "
                      f"FP32 {entry.reference:.2%} {entry.misses}")  # fmt: skip
    report = {
        "environment": describe_environment("mezzo"),
        "training": json.loads((options.cache / "training.json").read_text()),
        "bits_per_byte": float(exact.bits.mean()),
        "rows": [asdict(row) | {"misses": row.misses} for row in rows],
        "frontiers": frontiers,
        "digits": [asdict(entry) | {"misses": entry.misses} for entry in digits],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1))
    return 1 if any(row.misses for row in rows) or any(entry.misses for entry in digits) else 0


if __name__ == "__main__":
    sys.exit(main())
