"""What mezzo says on data that shows nothing, and how well it predicts the error of models of many alike blocks.

    python benchmarks/verdicts.py                  # both parts, a table each
    python benchmarks/verdicts.py --json out.json

Part one asks `compare`, `convert` with data and `tune` about a model that is fine, or is off by a half in one output,
on hostile data: a number that is none, no sample, answers that never change or are noise. A claim is false where one
says that the answers are the same, or the budget kept, though nothing shows it. Runs with older versions of mezzo too.

Part two probes a BERT-like model of 36 blocks and a width of 32, runs every unit alone, and compares: how many units
are measured by themselves, how far shares are off, and how far predicted errors of the frontier are.

Ends with 1 if a claim is false.
"""

import argparse
import json
import math
import statistics
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.common.errors import MezzoError
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data
from mezzo.numerics.measures import Measured
from mezzo.planner.options import read_options
from mezzo.tuning.evaluator import Evaluator, few_samples, units_of
from mezzo.tuning.goals import score_one

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from block_models import block_feeds, block_model

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'
DENSE = """g (float[N,8] x) => (float[N,5] y) {{ h = MatMul(x, w)  r = Tanh(h)  s = Mul(r, f)  y = Identity(s){} }}"""
NOISE = DENSE.format("  m = ReduceMean(x, k)  d = Sub(x, m)  z = ReduceMean(d, k)").replace(
    "(float[N,5] y)", "(float[N,5] y, float[1,8] z) <int64[1] k = {0}>"
)
DEAD = DENSE.format("  dead = Cast<to=16>(x)")
STUCK = DENSE.format("  a = Abs(x)  b = Neg(a)  z = Relu(b)").replace("(float[N,5] y)", "(float[N,5] y, float[N,8] z)")
Feeds = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """What was said about one case, and whether it may be said."""

    case: str
    asked: str
    said: str
    is_false: bool


def build(body: str, factor: float = 1.0) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f"{HEAD} {body}")
    weight = (np.random.default_rng(3).normal(size=(8, 5)) / 8**0.5).astype(np.float32)
    for name, values in {"w": weight, "f": np.float32(factor)}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    return model


def hostile_cases() -> dict[str, tuple[str, Feeds]]:
    """Models that are fine, with data that shows nothing, or an output that does not."""
    plain = DENSE.format("")
    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    cases: dict[str, tuple[str, Feeds]] = {}
    for name, number in {"NaN": np.nan, "+inf": np.inf, "-inf": -np.inf}.items():
        for where in (0, 40, 63):
            values = x.copy()
            values[where, 3] = number
            cases[f"{name} in sample {where}"] = plain, {"x": values}
    wide = x.astype(np.float64)
    wide[5, 5] = 1e39
    cases |= {
        "a number past FP32": (plain, {"x": wide}),
        "no sample": (plain, {"x": x[:0]}),
        "constant inputs": (plain, {"x": np.ones_like(x)}),
        "zero inputs": (plain, {"x": np.zeros_like(x)}),
        "an output that is zero": (STUCK, {"x": x}),
        "an output that is noise": (NOISE, {"x": x}),
    }
    for name, tail in {
        "an output that is not finite": "  z = Log(x)",
        "an output of one class": "  a = Mul(x, nil)  z = ArgMax<axis=1>(a)",
        "a saturated output": "  a = Abs(x)  b = Add(a, big)  z = Sigmoid(b)",
        "truth values that never change": "  a = Abs(x)  z = Less(a, nil)",
        "an output that is a bias": "  a = Mul(x, nil)  z = Add(a, bias)",
    }.items():
        kind = "int64[N,1]" if "class" in name else "bool[N,8]" if "truth" in name else "float[N,8]"
        ports = f"(float[N,5] y, {kind} z) <float nil = {{0}}, float big = {{99}}, float[8] bias = {{1,2,3,4,5,6,7,8}}>"
        cases[name] = DENSE.format(tail).replace("(float[N,5] y)", ports), {"x": x}
    return cases


def ask_all() -> list[Claim]:
    """Every question about every case."""
    claims = []
    for case, (body, feeds) in hostile_cases().items():
        source = build(body)
        made = mezzo.convert(source).model
        claims.append(_ask(case, "compare", lambda m=made, s=source, f=feeds: _ruling(mezzo.compare(s, m, f))))
        claims.append(_ask(case, "convert", lambda s=source, f=feeds: _of(mezzo.convert(s, data=f).measured)))
        claims.append(_ask(case, "tune", lambda s=source, f=feeds: _tune(s, f)))
    x = {"x": np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)}
    for case, body in {"beside noise": NOISE, "beside a dead cast": DEAD, "beside zeros": STUCK}.items():
        for factor in (0.5, 0.9, 1.01, 0.0, -1.0):
            wrong = build(body, factor)
            claims.append(
                _ask(f"logits times {factor:g} {case}", "compare",
                     lambda b=body, w=wrong: _ruling(mezzo.compare(build(b), w, x)), wanted="different")
            )  # fmt: skip
    return claims


def _ask(case: str, asked: str, question: Any, wanted: str = "cannot tell") -> Claim:
    try:
        said = question()
    except MezzoError as error:
        return Claim(case, asked, f"refused: {str(error)[:60]}", False)
    return Claim(case, asked, said, said in ("same", "inside the budget") or (wanted == "different" and said != wanted))


def _ruling(comparison: Any) -> str:
    verdict = comparison.verdict
    ruling = getattr(verdict, "ruling", None)
    return ruling.value if ruling is not None else "same" if verdict.is_same else "different"


def _of(measured: Measured | None) -> str:
    return "nothing" if measured is None else _ruling(measured.comparison)


def _tune(source: onnx.ModelProto, feeds: Feeds) -> str:
    measured = mezzo.tune(source, data=feeds, max_error=1e-2).measured
    search = None if measured is None else measured.search
    if search is None:
        return "nothing"
    if getattr(search, "unknown", ()):
        return "cannot tell"
    return "inside the budget" if search.is_within_budget else "over the budget"


@dataclass(frozen=True, slots=True)
class Probed:
    """How well a model of alike blocks was probed. Ratios are of the error that is told to that of the unit alone."""

    units: int
    measured: int
    runs: int
    within_a_factor_of_2: float
    worst_ratio: float
    in_interval: float | None
    said_to_be_alone: int
    predicted_to_measured: list[float]


def probe_blocks(blocks: int) -> Probed:
    """Probe a model of many alike blocks, and run every unit alone."""
    model, feeds = block_model(blocks), block_feeds(64)
    found = mezzo.sensitivity(model, feeds)
    evaluator = Evaluator(open_source(model, False, None), read_options(Request(policy="aggressive")))
    batch = few_samples(evaluator, next(iter(open_model_data(evaluator.model, feeds))))
    alone = {
        unit.name: score_one(evaluator, {}, dict.fromkeys(unit.nodes, unit.dtype), batch).error
        for unit in units_of(evaluator.judged, *evaluator.lows)
    }
    # Units that cost less than a thousandth of the whole decide nothing.
    shared = [u for u in found.units if not u.is_measured and alone[u.name] > 1e-3 * found.all_low]
    ratios = [unit.error / alone[unit.name] for unit in shared]
    bounds = [(getattr(u, "low", None), alone[u.name], getattr(u, "high", None)) for u in shared]
    inside = [low <= error <= high for low, error, high in bounds if low is not None and high is not None]
    pairs: list[float] = []
    for budget in (1e-3, 2e-3):
        tuned = mezzo.tune(model, data=feeds, max_error=budget).measured
        assert tuned is not None
        pairs += [p.predicted_error / p.error for p in tuned.frontier if p.error and math.isfinite(p.error)]
    told = sum(not unit.is_measured for unit in found.units) if not inside else 0
    return Probed(
        len(found.units), sum(unit.is_measured for unit in found.units), found.runs,
        statistics.fmean(0.5 <= ratio <= 2 for ratio in ratios), max(max(r, 1 / r) for r in ratios),
        statistics.fmean(inside) if inside else None, told, pairs,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--blocks", type=int, default=36)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    claims, probed = ask_all(), probe_blocks(options.blocks)
    console = Console()
    table = Table("case", "asked", "said", "false", title="claims on data that shows nothing, or beside it")
    for claim in claims:
        table.add_row(claim.case, claim.asked, claim.said, "[red]false" if claim.is_false else "")
    console.print(table)
    false = sum(claim.is_false for claim in claims)
    console.print(f"{false} of {len(claims)} claims are false")
    for name, value in asdict(probed).items():
        console.print(f"{name}: {value}")
    if options.json is not None:
        document = {
            **describe_environment("mezzo"),
            "claims": [asdict(claim) for claim in claims],
            "probed": asdict(probed),
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(false > 0)


if __name__ == "__main__":
    sys.exit(main())
