"""What a conversion gives back, and how a source and the options of a plan are opened."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import join_with_or
from mezzo.contracts.frontend import Frontend, Model, Store
from mezzo.contracts.frontend import Progress as Progress
from mezzo.contracts.lab import Lab
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import planning_request_of
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import AddCast, Plan, PlannedNode
from mezzo.contracts.reading import Artifact
from mezzo.formats.format_words import read_formats, spell_formats
from mezzo.planner.options import Options, read_options
from mezzo.report.records.groups import count_precisions

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.conversion.decided import Decided
    from mezzo.numerics.measures import Measured
    from mezzo.report.views.outline import Outline
    from mezzo.report.views.picture import Picture


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(kw_only=True, repr=False)
class Converted:
    """A result. `model` is read back from the file where one was written. `measured` is what data has shown, if any
    was given.
    """

    plan: Plan
    summary: Summary
    path: Path | None = None
    measured: "Measured | None" = None
    _model: Artifact | None = field(default=None, repr=False)
    _decided: "Decided | None" = field(default=None, repr=False, compare=False)
    _load: Callable[[Path], Artifact] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        from mezzo.conversion.display import spell_result

        return spell_result(self, self.path)

    def _repr_html_(self) -> str:
        from mezzo.conversion.display import draw_result

        return draw_result(self, self.path, self.picture)

    @cached_property
    def picture(self) -> "Picture":
        """What runs in which precision in numbers, and what stayed FP32 together; worked out when first asked for."""
        from mezzo.report.views.picture import draw

        assert self._decided is not None, "a conversion knows what it decided"
        return draw(self._decided.problem, self._decided.levels, self.plan)

    def outline(self) -> "Outline":
        """The graph that was planned, with the plan, as a report draws it."""
        from mezzo.report.views.outline import outline, outline_plan

        assert self._decided is not None, "a conversion knows what it decided"
        graph = self._decided.reading.graph
        return outline(graph, [outline_plan(graph, "result", self.plan)])

    @property
    def model(self) -> "onnx.ModelProto":
        if self._model is None:
            assert self.path is not None and self._load is not None, "a result is in memory or in a file"
            self._model = self._load(self.path)
        model: onnx.ModelProto = self._model
        return model


def finish(
    model: Model,
    decided: "Decided",
    result: Artifact,
    dst: str | os.PathLike[str] | None,
    *,
    overwrite: bool = False,
    measured: "Measured | None" = None,
) -> Converted:
    """Write a result, or keep it in memory where there is no `dst`.

    Raises InputError: the place cannot be written, or such models are no files.
    """
    path = None if dst is None else Path(dst)
    if decided.spell_record is not None:
        model.note_record(result, decided.spell_record())
    if path is not None:
        store = store_of(model)
        size = store.write(result, path, overwrite=overwrite)
        return Converted(
            plan=decided.plan,
            summary=_summary(model, decided, size),
            path=path,
            measured=measured,
            _model=None,
            _decided=decided,
            _load=store.load,
        )
    filled = model.materialize(result)
    summary = _summary(model, decided, model.size_of(filled))
    return Converted(plan=decided.plan, summary=summary, path=None, measured=measured, _model=filled, _decided=decided)


def aimed(src: object, request: Request) -> Request:
    """A request with the target that is usual for such models, where it names none.

    Raises InputError: such models are not converted to the formats that it names.
    """
    from mezzo.plugins.discovery import frontend_of

    frontend = frontend_of(src, warns=False)
    if request.to is not None:
        check_formats(frontend, spell_formats(request.to))
    return request if request.target is not None else replace(request, target=frontend.usual_target)


def check_formats(frontend: Frontend, to: str) -> None:
    """Raises InputError: models of a front end are not converted to one of these formats."""
    if not set(read_formats(to)) <= frontend.formats.keys():
        words = frontend.words
        raise InputError(
            f"{option('to')} is {to!r}, and a model in {words.form} is converted to {join_with_or(frontend.formats)} "
            f"alone; choose one of these, or {words.elsewhere}"
        )


def read_plan_options(src: object, given: PlanOptions) -> tuple[Options, bool]:
    """Validate what decides for a model, and say whether external paths are trusted. Errors are those of `convert`."""
    request = aimed(src, planning_request_of(given))
    return read_options(request), request.trust_external_paths


def decided_nodes(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model", *, trust_external_paths: bool = False
) -> tuple[PlannedNode, ...]:
    """What a model's metadata says of its nodes: what each runs in, and why; nothing where it does not say."""
    from mezzo.conversion.recall import read_record

    recalled = read_record(open_source(src, trust_external_paths, None))[0]
    return () if recalled is None else tuple(recalled.planned.values())


def open_source(src: object, trust: bool, progress: Progress | None) -> Model:
    """Open a model, of whatever kind. Errors are those of `convert`."""
    from mezzo.plugins.discovery import frontend_of

    return frontend_of(src).open(src, trust_external_paths=trust, progress=progress)


def store_of(model: Model) -> Store:
    """Where results of a model are written. Raises InputError: such models are no files."""
    if model.store is None:
        raise InputError(f"{model.name} is no file, and neither is what comes of it; leave the destination out")
    return model.store


def lab_of(model: Model) -> Lab:
    """What runs a model. Raises InputError: nothing does."""
    if model.lab is None:
        raise InputError(
            f"{model.name} cannot be run: front end {model.frontend.name!r} has no runtime; leave data out"
        )
    return model.lab


def _summary(model: Model, decided: "Decided", size_after_bytes: int) -> Summary:
    low, high = decided.count_nodes()
    if decided.plan.origin:  # what runs low in a model that was converted before is told by its record alone
        counts = count_precisions(decided.plan)
        low = sum(counts[dtype] for dtype in decided.plan.lows)
        high = sum(counts.values()) - low
    before = model.version or 0
    notes = list(decided.plan.notes)
    if decided.plan.version is not None and decided.plan.version != before:
        word, after = model.frontend.words.version, decided.plan.version
        lows = " and ".join(map(str, decided.plan.lows))
        notes.append(f"the {word} went from {before} to {after}: only there the schema allows {lows}")
    return Summary(
        low_nodes=low,
        high_nodes=high,
        casts=sum(isinstance(e, AddCast) for e in decided.plan.edits),
        size_before_bytes=model.size_bytes,
        size_after_bytes=size_after_bytes,
        opset_before=before,
        opset_after=decided.plan.version or before,
        notes=tuple(notes),
    )
