"""Judges one conversion: its promises, and its answers in the true precision.

An answer is right if every floating output differs from the reference by at most 2 % (FP16) or 6 % (BF16) of the
output's scale, if NaN and infinities stand where the reference has them, and if all other outputs are equal. The scale
of an output is the largest finite magnitude of its reference, at least 1e-6: an output of zeros must stay below 2e-8.
"""

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from converters import Convert, Settings
from float_nodes import count_nodes
from suites import Case

from mezzo.common.errors import MezzoError
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import Engine, native_session

TOLERANCES = {"fp16": 0.02, "bf16": 0.06}
SMALLEST_SCALE = 1e-6
# FP32 engines sum in different orders; an original that is further off is wrong in that engine.
FLOAT32_TOLERANCE = 1e-3


class OutOfTime(BaseException):
    """The time limit of a model has passed. No Exception, so that nothing on the way swallows it."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the FP32 original does. `engine` is the one that judges, None if no engine runs the original.

    `note` says what is odd about the original, if anything is.
    """

    engine: Engine | None
    loads: bool
    expected: dict[str, Any]
    note: str | None = None


@dataclass(slots=True)
class Judgement:
    """What one conversion of one model came to. None: not asked. `why` holds a line for each failed promise."""

    case: str
    settings: str
    is_converted: bool = False
    is_clean: bool | None = None
    keeps_interface: bool | None = None
    loads: bool | None = None
    is_right: bool | None = None
    is_idempotent: bool | None = None
    error: float | None = None
    float_nodes: int = 0
    low_nodes: int = 0
    casts: int = 0
    time_s: float = 0.0
    why: list[str] = field(default_factory=list)
    not_judged: str | None = None

    @property
    def is_sound(self) -> bool:
        """Whether no promise was broken, idempotence apart."""
        asked = (self.is_converted, self.is_clean, self.keeps_interface, self.loads, self.is_right)
        return all(kept is not False for kept in asked)


@contextlib.contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    """Raise OutOfTime in the main thread after `limit_s`; no limit where the platform has no interval timer."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def find_baseline(case: Case) -> Baseline:
    """Find the engine that gives the original's reference answers in FP32, ONNX Runtime first."""
    loads = False
    answers: dict[Engine, dict[str, Any]] = {}
    notes: list[str] = []
    for engine in Engine:
        try:
            session = native_session(case.model, engine)
            loads = loads or engine is Engine.ONNXRUNTIME
            answers[engine] = session.run(case.feeds)
        except MezzoError as error:
            notes.append(str(error))
            continue
        if case.expected is None or case.random_because is not None:
            return Baseline(engine, loads, answers[engine])
        _, problems = compare_all(case.expected, answers[engine], FLOAT32_TOLERANCE)
        if not problems:
            return Baseline(engine, loads, case.expected)
        notes.append(f"{engine.value}: {problems[0]}")
    note = "the original does not give ONNX's answers in FP32: " + "; ".join(notes)
    # An engine that runs the original its own way still shows what rounding changes.
    for engine, expected in answers.items():
        return Baseline(engine, loads, expected, note)
    return Baseline(None, loads, {}, note)


def judge(case: Case, baseline: Baseline, convert: Convert, settings: Settings) -> Judgement:
    """Convert one model and check every promise."""
    result = Judgement(case.name, str(settings))
    before = case.model.SerializeToString(deterministic=True)
    begin = time.perf_counter()
    try:
        converted = convert(case.model, settings)
    except Exception as error:  # noqa: BLE001  whatever a converter raises is its failure
        result.why.append(f"does not convert: {type(error).__name__}: {_first_line(error)}")
        return result
    finally:
        result.time_s = time.perf_counter() - begin
    result.is_converted = True
    if case.model.SerializeToString(deterministic=True) != before:
        result.why.append("the source model was changed")
    _judge_form(result, case.model, converted)
    _judge_loading(result, baseline, converted, settings)
    _judge_answers(result, case, baseline, converted, settings)
    _judge_repetition(result, converted, convert, settings)
    try:
        was, now = count_nodes(case.model, settings.to), count_nodes(converted, settings.to)
        # What the original already ran low is nobody's merit.
        result.float_nodes, result.low_nodes = now.float_nodes - was.low_nodes, now.low_nodes - was.low_nodes
        result.casts = now.casts - was.casts
    except Exception as error:  # noqa: BLE001  a dirty model may be unreadable
        result.why.append(f"its nodes cannot be counted: {_first_line(error)}")
    return result


def _judge_form(result: Judgement, model: onnx.ModelProto, converted: onnx.ModelProto) -> None:
    problems = []
    try:
        onnx.checker.check_model(converted, full_check=True)
    except Exception as error:  # noqa: BLE001  the checker raises several unrelated types
        problems.append(f"the checker refuses it: {_first_line(error)}")
    disorder = find_disorder(converted.graph, set())
    if disorder:
        problems.append(f"{len(disorder)} operands are read before they are made, first: {disorder[0]}")
    names = [node.name for node in converted.graph.node if node.name]
    originals = [node.name for node in model.graph.node if node.name]
    if len(set(names)) < len(names) and len(set(originals)) == len(originals):
        problems.append("two nodes share a name")
    result.is_clean = not problems
    result.why += problems
    result.keeps_interface = _interface(model) == _interface(converted)
    if not result.keeps_interface:
        result.why.append("its inputs or outputs have another name, type or shape")


def find_disorder(graph: onnx.GraphProto, outer: set[str]) -> list[str]:
    """Name the nodes that read a value before it is made, bodies included."""
    known = outer | {port.name for port in graph.input} | {tensor.name for tensor in graph.initializer}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    problems = []
    for node in graph.node:
        problems += [
            f"{node.op_type} reads {name!r} before it is made" for name in node.input if name and name not in known
        ]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                problems += find_disorder(attribute.g, known)
        known.update(node.output)
    return problems


def _interface(model: onnx.ModelProto) -> list[tuple[str, bytes]]:
    """Names, types and shapes of the inputs and outputs. An input with an initializer has a default: it is no contract,
    and its type may follow the initializer's, so only its name counts.
    """
    defaults = {tensor.name for tensor in model.graph.initializer}
    ports = (*model.graph.input, *model.graph.output)
    return [
        (port.name, b"" if port.name in defaults else port.type.SerializeToString(deterministic=True)) for port in ports
    ]


def _judge_loading(result: Judgement, baseline: Baseline, converted: onnx.ModelProto, settings: Settings) -> None:
    # ONNX Runtime's CPU has no BF16 kernels, so only FP16 is asked to load.
    if settings.to != "fp16" or not baseline.loads:
        return
    try:
        native_session(converted, Engine.ONNXRUNTIME)
        result.loads = True
    except MezzoError as error:
        result.loads = False
        result.why.append(str(error))


def _judge_answers(
    result: Judgement, case: Case, baseline: Baseline, converted: onnx.ModelProto, settings: Settings
) -> None:
    result.not_judged = case.random_because or baseline.note
    if baseline.engine is None:
        return
    try:
        # Without a wish, the twin may fall back to the reference evaluator: its opset can be newer than the original's.
        session = emulated_session(converted, Engine.REFERENCE if baseline.engine is Engine.REFERENCE else None)
        got = session.run(case.feeds)
    except Exception as error:  # noqa: BLE001  a dirty model fails anywhere
        result.is_right = False
        result.why.append(f"it does not run in true precision: {_first_line(error)}")
        return
    if case.random_because is not None:
        problems = [
            f"output {name!r} has another shape"
            for name, want in baseline.expected.items()
            if not isinstance(want, list) and want is not None and np.shape(want) != np.shape(got[name])
        ]
    else:
        result.error, problems = compare_all(baseline.expected, got, TOLERANCES[settings.to])
    result.is_right = not problems
    result.why += problems


def _judge_repetition(result: Judgement, converted: onnx.ModelProto, convert: Convert, settings: Settings) -> None:
    try:
        again = convert(converted, settings)
    except Exception as error:  # noqa: BLE001  whatever a converter raises is its failure
        result.is_idempotent = False
        result.why.append(f"its result does not convert again: {type(error).__name__}: {_first_line(error)}")
        return
    first, second = (model.graph.SerializeToString(deterministic=True) for model in (converted, again))
    functions = [
        [function.SerializeToString(deterministic=True) for function in m.functions] for m in (converted, again)
    ]
    result.is_idempotent = first == second and functions[0] == functions[1]
    if not result.is_idempotent:
        counts = [len(model.graph.node) for model in (converted, again)]
        result.why.append(f"a second conversion changes it: {counts[0]} nodes, then {counts[1]}")


def compare_all(expected: dict[str, Any], got: dict[str, Any], tolerance: float) -> tuple[float, list[str]]:
    """Compare outputs by name; return the worst error, as a share of the scale, and a line for each wrong output."""
    worst, problems = 0.0, []
    for name, want in expected.items():
        error, problem = compare(want, got.get(name), tolerance)
        worst = max(worst, error)
        if problem is not None:
            problems.append(f"output {name!r} {problem}")
    return worst, problems


def compare(want: Any, got: Any, tolerance: float) -> tuple[float, str | None]:
    """Compare one output; return its error and what is wrong with it, if anything."""
    if want is None or got is None:
        return 0.0, None if want is None and got is None else "is empty where the reference is not, or the reverse"
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return 0.0, "is a sequence of another length"
        pairs = [compare(one, other, tolerance) for one, other in zip(want, got, strict=True)]
        return max((error for error, _ in pairs), default=0.0), next((text for _, text in pairs if text), None)
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape:
        return 0.0, f"has shape {list(got.shape)}, the reference {list(want.shape)}"
    # ml_dtypes' formats have kind V or f; strings have O, S, U.
    if want.dtype.kind in "biuOSUc" or want.dtype.name.startswith(("int", "uint")):
        unequal = int(np.sum(want.astype(str) != got.astype(str) if want.dtype.kind in "OSU" else want != got))
        return 0.0, f"differs in {unequal} of {want.size} discrete elements" if unequal else None
    want, got = want.astype(np.float64), got.astype(np.float64)
    if np.any(np.isnan(want) != np.isnan(got)) or np.any(
        np.where(np.isinf(want) | np.isinf(got), want != got, False) & ~np.isnan(want)
    ):
        return float("inf"), "has NaN or infinity elsewhere than the reference"
    finite = np.isfinite(want)
    if not np.any(finite):
        return 0.0, None
    scale = max(float(np.abs(want[finite]).max()), SMALLEST_SCALE)
    error = float(np.abs(want[finite] - got[finite]).max()) / scale
    return error, None if error <= tolerance else f"is off by {error:.2%} of its scale {scale:.3g}"


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__
