"""What a conversion gives back, and how a source and the options of a plan are opened."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from mezzo.core.plans import AddCast, Plan, PlannedNode
from mezzo.core.request import IO, PolicyLike, Request, TargetLike
from mezzo.deciding.options import Options, read_options

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.converting.decided import Decided
    from mezzo.frontends.onnx.model import OnnxModel
    from mezzo.numerics.measures import Measured
    from mezzo.views.outline import Outline
    from mezzo.views.picture import Picture

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a conversion did. Nodes count operators with a floating compute group; sizes include external data."""

    low_nodes: int
    high_nodes: int
    casts: int
    size_before_bytes: int
    size_after_bytes: int
    opset_before: int
    opset_after: int
    notes: tuple[str, ...]


@dataclass
class Converted:
    """A result. `model` is read back from the file where one was written. `measured` is what data has shown, if any
    was given.
    """

    plan: Plan
    summary: Summary
    path: Path | None = None
    measured: "Measured | None" = None
    _model: "onnx.ModelProto | None" = field(default=None, repr=False)
    _decided: "Decided | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def picture(self) -> "Picture":
        """What runs in which precision in numbers, and what stayed FP32 together; worked out when first asked for."""
        from mezzo.views.picture import draw

        assert self._decided is not None, "a conversion knows what it decided"
        return draw(self._decided.problem, self._decided.levels, self.plan)

    def outline(self) -> "Outline":
        """The graph that was planned, with the plan, as a report draws it."""
        from mezzo.views.outline import outline, outline_plan

        assert self._decided is not None, "a conversion knows what it decided"
        graph = self._decided.reading.graph
        return outline(graph, [outline_plan(graph, "result", self.plan)])

    @property
    def model(self) -> "onnx.ModelProto":
        if self._model is None:
            from mezzo.frontends.onnx.model import load_result

            assert self.path is not None, "a result is in memory or in a file"
            self._model = load_result(self.path)
        return self._model


def finish(
    model: "OnnxModel",
    decided: "Decided",
    result: "onnx.ModelProto",
    dst: str | os.PathLike[str] | None,
    *,
    overwrite: bool = False,
    measured: "Measured | None" = None,
) -> Converted:
    """Write a result, or keep it in memory where there is no `dst`."""
    path = None if dst is None else Path(dst)
    if decided.spell_record is not None:
        model.note_record(result, decided.spell_record())
    if path is not None:
        size = model.write(result, path, overwrite=overwrite)
        return Converted(decided.plan, _summary(model, decided, size), path, measured, None, decided)
    filled = model.materialize(result)
    return Converted(decided.plan, _summary(model, decided, filled.ByteSize()), None, measured, filled, decided)


class PlanOptions(TypedDict, total=False):
    """The options of `convert` that decide; their defaults are the same."""

    to: str | Sequence[str]
    policy: PolicyLike
    strategy: str
    target: TargetLike
    include: Sequence[str]
    exclude: Sequence[str]
    keep_region: Sequence[str]
    fix_region: Mapping[str, str]
    io: IO
    out_of_range: str
    opset: str
    assume: Mapping[str, str]
    trust_external_paths: bool


def read_plan_options(given: PlanOptions) -> tuple[Options, bool]:
    """Validate what decides, and say whether external paths are trusted. Errors are those of `convert`."""
    options = given.copy()
    trust = options.pop("trust_external_paths", False)
    return read_options(Request(**options)), trust  # type: ignore[misc]  # what is left are a request's fields


def decided_nodes(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False
) -> tuple[PlannedNode, ...]:
    """What a model's metadata says of its nodes: what each runs in, and why; nothing where it does not say."""
    from mezzo.converting.recalling import read_record

    recalled = read_record(open_source(src, trust_external_paths, None))[0]
    return () if recalled is None else tuple(recalled.planned.values())


def open_source(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", trust: bool, progress: Progress | None
) -> "OnnxModel":
    """Open a model, of whatever kind. Errors are those of `convert`."""
    from mezzo.frontends.onnx.model import open_model

    return open_model(src, trust_external_paths=trust, progress=progress)


def _summary(model: "OnnxModel", decided: "Decided", size_after_bytes: int) -> Summary:
    low, high = decided.count_nodes()
    before = model.opset or 0
    notes = list(decided.plan.notes)
    if decided.plan.opset is not None and decided.plan.opset != before:
        notes.append(
            f"the opset went from {before} to {decided.plan.opset}: only there the schema allows {decided.plan.low}"
        )
    return Summary(
        low, high, sum(isinstance(e, AddCast) for e in decided.plan.edits), model.source.size_bytes,
        size_after_bytes, before, decided.plan.opset or before, tuple(notes),
    )  # fmt: skip
