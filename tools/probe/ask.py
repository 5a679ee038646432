"""Verification of a target's table: runs one-node models in low precision in the runtime."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from mezzo.formats.dtypes import DType
from mezzo.onnx.protos.attributes import NodeAttributes
from mezzo.tables.target import Refusal, Target
from probe.attempts import Attempt, Feeds
from probe.cases import Question
from probe.children import Child
from probe.runtimes import package_of

Model: TypeAlias = onnx.ModelProto
# Converts a one-node model so that the operator runs in a dtype; None if the schema does not allow
# it.
Lower = Callable[[Model, str, DType], Model | None]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Support of an operator in a dtype by table (`row`) and runtime (`reason`); None: it runs."""

    dialect: str
    op: str
    version: int
    attributes: tuple[tuple[str, object], ...]
    dtype: DType
    row: Refusal | None
    reason: str | None

    @property
    def agrees(self) -> bool:
        return (self.row is None) == (self.reason is None)


@dataclass(frozen=True, slots=True)
class Findings:
    """All answers, and operators that fail even in FP32 (`unasked`) with the runtime's reason."""

    answers: tuple[Answer, ...]
    unasked: tuple[tuple[str, str], ...]

    @property
    def disagreements(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if not answer.agrees)

    def count(self, dtype: DType) -> Counter[bool]:
        """Numbers of supported (True) and unsupported (False) answers of a dtype."""
        return Counter(answer.reason is None for answer in self.answers if answer.dtype is dtype)


def ask(
    target: Target,
    attempt: Attempt,
    questions: Sequence[Question],
    dtypes: Sequence[DType],
    lower: Lower,
    progress: Progress | None = None,
) -> Findings:
    """Try every question in every dtype in a child process; look it up in the target's table."""
    answers: list[Answer] = []
    failures: dict[str, str] = {}
    with Child(attempt) as child:
        for number, question in enumerate(questions):
            if progress is not None:
                progress(f"asking {package_of(target)}", number, len(questions))
            result = _ask_one(target, question, dtypes, lower, child)
            if isinstance(result, str):
                failures.setdefault(question.name, result)
            elif result is not None:
                answers += result
    answered = {f"{answer.dialect} {answer.op}" for answer in answers}
    unasked = ((name, reason) for name, reason in sorted(failures.items()) if name not in answered)
    return Findings(tuple(answers), tuple(unasked))


def _ask_one(
    target: Target, question: Question, dtypes: Sequence[DType], lower: Lower, child: Child
) -> list[Answer] | str | None:
    """Try one operator with its first model that runs in FP32 and can be converted.

    Returns the runtime's reason if none runs in FP32, None if none can be converted.
    """
    reasons = []
    for model, feeds in question.models:
        reason = child.ask(model.SerializeToString(), feeds)
        if reason is not None:
            reasons.append(reason)
            continue
        lowered = [(dtype, low) for dtype in dtypes if (low := lower(model, question.op, dtype)) is not None]
        if lowered:
            node = next(node for node in model.graph.node if node.op_type == question.op)
            return [_compare(target, question, NodeAttributes(node), *low, feeds, child) for low in lowered]
    return reasons[0] if len(reasons) == len(question.models) else None


def _compare(
    target: Target,
    question: Question,
    attributes: Mapping[str, object],
    dtype: DType,
    model: onnx.ModelProto,
    feeds: Feeds | None,
    child: Child,
) -> Answer:
    row = target.refusal(question.dialect, question.op, question.version, attributes, dtype)
    reason = child.ask(model.SerializeToString(), feeds)
    plain = tuple(sorted(attributes.items()))
    return Answer(
        dialect=question.dialect,
        op=question.op,
        version=question.version,
        attributes=plain,
        dtype=dtype,
        row=row,
        reason=reason,
    )
