"""Raises ONNX's own test models of old opsets to a newer one, and compares their answers.

    python benchmarks/opset_steps.py
    python benchmarks/opset_steps.py --data onnx-1.6.0/onnx/backend/test/data --until 25

Without --data the models that the installed onnx package ships (simple, pytorch-operator, pytorch-converted, light); a
folder is that part of another version's wheel, whose operator tests are at the opset of its day. Both models run on
ONNX Runtime, or on onnx's reference evaluator where that loads one of them no longer, and the answers that ONNX ships
with the test are compared too. A model is alike where every number is, up to 1e-5 of its output's largest: other
kernels add in another order.
"""

import argparse
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from suites import why_random

from mezzo.onnx.edit.opset import default_opset, reach
from mezzo.onnx.protos.graphs import all_nodes
from mezzo.onnx.run.session import Engine, native_session

TOLERANCE = 1e-5


class Case(NamedTuple):
    """A test model with what ONNX feeds it and expects of it; None where it ships neither."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any] | None
    expected: dict[str, Any] | None


def find_cases(data: Path) -> Iterator[Case]:
    for path in sorted(data.glob("*/*/model.onnx")):
        try:
            model = onnx.load(path)
        except Exception:  # noqa: BLE001  a damaged test model is none
            continue
        sets = sorted(path.parent.glob("test_data_set_*"))
        feeds = expected = None
        if sets:
            weights = {tensor.name for tensor in model.graph.initializer}
            feeds = _read(sets[0], "input", [p.name for p in model.graph.input if p.name not in weights])
            expected = _read(sets[0], "output", [port.name for port in model.graph.output])
        yield Case(f"{path.parts[-3]}/{path.parts[-2]}", model, feeds, expected)
    for path in sorted(data.glob("light/*.onnx")):
        yield Case(f"light/{path.stem}", onnx.load(path), None, None)


def _read(folder: Path, stem: str, names: Sequence[str]) -> dict[str, Any] | None:
    arrays = {}
    for index, name in enumerate(names):
        path = folder / f"{stem}_{index}.pb"
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(path.read_bytes())
            arrays[name] = numpy_helper.to_array(tensor)
        except Exception:  # noqa: BLE001  a sequence, or a file that is not there
            return None
    return arrays


def draw(model: onnx.ModelProto) -> dict[str, Any]:
    generator = np.random.default_rng(7)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for port in model.graph.input:
        if port.name not in weights:
            sizes = [dim.dim_value or 2 for dim in port.type.tensor_type.shape.dim]
            feeds[port.name] = generator.normal(size=sizes).astype(np.float32)
    return feeds


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The engine that answers, and its answers."""
    for engine in (Engine.ONNXRUNTIME, Engine.REFERENCE):
        try:
            return engine.value, dict(native_session(model, engine).run(feeds))
        except Exception:  # noqa: BLE001  whatever a runtime says, it does not answer
            continue
    return None


def distance(answers: dict[str, Any], others: dict[str, Any]) -> float:
    """The largest difference of two sets of answers, as a part of the output's largest number."""
    return max((_distance(one, others[name]) for name, one in answers.items()), default=0.0)


def _distance(one: Any, other: Any) -> float:
    if isinstance(one, list) or isinstance(other, list):
        pairs = zip(one, other, strict=True) if len(one) == len(other) else [(0.0, math.inf)]
        return max((_distance(*pair) for pair in pairs), default=0.0)
    if one is None or other is None:
        return 0.0 if one is other else math.inf
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if a.dtype.kind in "OSU" or not a.size:
        return 0.0 if np.array_equal(a, b) else math.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    scale = max(float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0)), 1e-30)
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0)) / scale


def judge(case: Case, until: int) -> tuple[str, str]:
    """What became of a model, in a word, and why."""
    since = default_opset(case.model)
    if since is None or since >= until:
        return "already there", ""
    reached, upgraded = reach(case.model, until)
    if reached < until:
        first = upgraded.obstacles[0]
        return "blocked", f"{first.op} at {first.version}: {first.because}"
    if why_random(case.model) is not None:
        return "raised, random", ""
    try:
        onnx.checker.check_model(upgraded.model, full_check=True)
    except Exception as error:  # noqa: BLE001
        try:
            onnx.checker.check_model(case.model, full_check=True)
        except Exception:  # noqa: BLE001
            return "raised, invalid before", str(error).splitlines()[0]
        return "invalid", str(error).splitlines()[0]
    feeds = draw(case.model) if case.feeds is None else case.feeds
    before, after = run(case.model, feeds), run(upgraded.model, feeds)
    if after is None:
        return ("raised, runs in neither", "") if before is None else ("no longer runs", "")
    wanted = case.expected if before is None else before[1]
    if wanted is None:
        return "raised, nothing to compare", ""
    apart = distance(after[1], wanted)
    if apart > TOLERANCE and case.expected is not None and distance(after[1], case.expected) <= 1e-3:
        return "right, the runtime was not", f"{before and before[0]}: off by {apart:.2g}"
    return ("alike", "") if apart <= TOLERANCE else ("differs", f"{before and before[0]}, {after[0]}: {apart:.2g}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", help="folders of test data")
    parser.add_argument("--until", type=int, default=25, help="the opset to raise to")
    parser.add_argument("-v", "--verbose", action="store_true", help="name every model that is not alike")
    planning = parser.parse_args()
    warnings.simplefilter("ignore")
    folders = planning.data or [Path(onnx.__file__).parent / "backend" / "test" / "data"]
    outcomes: Counter[str] = Counter()
    operators: set[tuple[str, int | None]] = set()
    exceptions = []
    for folder in folders:
        for case in find_cases(folder):
            outcome, why = judge(case, planning.until)
            outcomes[outcome] += 1
            if outcome == "alike":
                operators |= {(node.op_type, default_opset(case.model)) for node in all_nodes(case.model.graph)}
            elif outcome != "already there":
                exceptions.append((outcome, f"{folder.parts[0]} {case.name}", default_opset(case.model), why))
    for outcome, count in outcomes.most_common():
        print(f"{count:6} {outcome}")
    print(f"operators in models that answer alike: {len({op for op, _ in operators})}")
    for outcome, name, since, why in sorted(exceptions) if planning.verbose else ():
        print(f"{outcome}: {name} (opset {since}) {why}")
    return 1 if outcomes["differs"] or outcomes["invalid"] or outcomes["no longer runs"] else 0


if __name__ == "__main__":
    sys.exit(main())
