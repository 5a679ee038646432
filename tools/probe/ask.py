"""Asks a runtime what it runs in a low type and sets its answers against a target's table."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from mezzo.formats.dtypes import DType
from mezzo.onnx.protos.attributes import NodeAttributes
from mezzo.tables.target import Refusal, Target
from probe.attempts import Feeds
from probe.cases import Question
from probe.children import Child
from probe.runtimes import Runtime

Model: TypeAlias = onnx.ModelProto
# Converts a model so that its one node of an operator runs in a dtype; None where the schema does not allow that.
Lower = Callable[[Model, str, DType], Model | None]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the table and the runtime say of one operator in one dtype. None means that it runs."""

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
    """All answers, and the operators that do not run in FP32 either, each with the runtime's reason."""

    answers: tuple[Answer, ...]
    unasked: tuple[tuple[str, str], ...]

    @property
    def disagreements(self) -> tuple[Answer, ...]:
        return tuple(answer for answer in self.answers if not answer.agrees)

    def count(self, dtype: DType) -> Counter[bool]:
        """How many answers of a dtype were yes, and how many no."""
        return Counter(answer.reason is None for answer in self.answers if answer.dtype is dtype)


def ask(
    target: Target,
    runtime: Runtime,
    questions: Sequence[Question],
    dtypes: Sequence[DType],
    lower: Lower,
    progress: Progress | None = None,
) -> Findings:
    """Ask a runtime every question in every dtype, in a child process, and look up what the target's table says."""
    answers: list[Answer] = []
    silent: dict[str, str] = {}
    with Child(runtime.attempt) as child:
        for number, question in enumerate(questions):
            if progress is not None:
                progress(f"asking {runtime.package}", number, len(questions))
            found = _ask_one(target, question, dtypes, lower, child)
            if isinstance(found, str):
                silent.setdefault(question.name, found)
            elif found is not None:
                answers += found
    asked = {f"{answer.dialect} {answer.op}" for answer in answers}
    unasked = ((name, reason) for name, reason in sorted(silent.items()) if name not in asked)
    return Findings(tuple(answers), tuple(unasked))


def _ask_one(
    target: Target, question: Question, dtypes: Sequence[DType], lower: Lower, child: Child
) -> list[Answer] | str | None:
    """Ask about one operator with the first model that runs in FP32 and may run low.

    Gives the runtime's reason where none runs in FP32, None where none may run low.
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
