"""Conversion results, how they are written, and how sources and plan options are opened."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.late_binding import function_above
from mezzo.common.message_style import option
from mezzo.common.name_matching import join_with_or
from mezzo.contracts.frontend import Frontend, Model, Progress, Store
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import planning_request_of
from mezzo.contracts.options.request import Request
from mezzo.contracts.plans import AddCast, Explanation, Plan, PlannedNode
from mezzo.contracts.reading import Artifact
from mezzo.formats.format_words import AUTO, read_formats, spell_formats
from mezzo.planner.options import Options, read_options
from mezzo.report.records.groups import count_precisions
from mezzo.report.records.summary import Summary

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.conversion.decided import Decided
    from mezzo.numerics.data.datasets import Data
    from mezzo.numerics.measures import Comparison, Measured
    from mezzo.report.views.outline import Outline
    from mezzo.report.views.picture import Picture

_NO_GRAPH = "a model of a folder keeps no graph; convert it alone for its picture"


@dataclass(kw_only=True, repr=False)
class Converted:
    """The result of a conversion or a search.

    `model` is the converted model, read back from `path` if a file was written. `measured` is the
    evaluation on data, if data was given. `source` is the name of the source model.
    """

    plan: Plan
    summary: Summary
    path: Path | None = None
    measured: "Measured | None" = None
    source: str = "the model"
    _model: Artifact | None = field(default=None, repr=False)
    _decided: "Decided | None" = field(default=None, repr=False, compare=False)
    _opened: Model | None = field(default=None, repr=False, compare=False)
    _result: Artifact | None = field(default=None, repr=False, compare=False)
    _load: Callable[[Path], Artifact] | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        from mezzo.conversion.display import spell_result

        return spell_result(self)

    def _repr_html_(self) -> str:
        from mezzo.conversion.display import draw_result

        return draw_result(self, None if self._decided is None else self.picture)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the converted model to a file, and return its path.

        `overwrite` lets it replace the source model. Raises InputError: the path cannot be written,
        such models have no file format, or the source's file has changed since the conversion.
        """
        saved = self.saved(path, overwrite=overwrite).path
        assert saved is not None, "it was just written"
        return saved

    def saved(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> "Converted":
        """The result, written to a file. Errors are those of `save`."""
        store = store_of(self._opened_model)
        size = store.write(self._result, path, overwrite=overwrite)
        summary = replace(self.summary, size_after_bytes=size)
        return replace(self, path=Path(path), summary=summary, _model=None, _load=store.load)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained HTML page about the result, and return its path.

        Raises InputError: the path cannot be written, or is a file that is no such page.
        """
        from mezzo.conversion.display import write_page

        write_page(self, self.outline(), path)
        return Path(path)

    def explain(self, word: str) -> Explanation:
        """Explain the precision of nodes, as `mezzo explain` does: see `Plan.explain`."""
        return self.plan.explain(word)

    def compare(
        self, data: "Data", *, max_error: float | None = None, labels: Sequence[str] = ()
    ) -> "Comparison":
        """Compare the outputs of the result with those of the source model, as `mezzo.compare`
        does, which documents the arguments and has more of them.

        Raises InputError: the result replaced its source, or as of `mezzo.compare`.
        """
        source = self._opened_model.given
        if source.path is not None and self.path is not None and source.path.samefile(self.path):
            raise InputError(
                f"{str(self.path)!r} replaced its source model, so nothing is left to compare it"
                " with; convert to another file"
            )
        reference = source.path or source.materialize(source.original)
        comparison: Comparison = function_above("api.compare", "compare")(
            reference, self.path or self.model, data, max_error=max_error, labels=labels
        )
        return comparison

    @cached_property
    def picture(self) -> "Picture":
        """Operators by precision, and groups that stayed FP32; computed on first access."""
        from mezzo.report.views.picture import draw

        assert self._decided is not None, _NO_GRAPH
        return draw(self._decided.problem, self._decided.levels, self.plan)

    def without_graph(self) -> "Converted":
        """A copy without the opened model and the decided graph, which take most of the memory."""
        plan = self.plan.detached()
        return replace(self, plan=plan, _decided=None, _opened=None, _result=None)

    def outline(self) -> "Outline":
        """The planned graph with the plan, in the form that an HTML report draws."""
        from mezzo.report.views.outline import outline, outline_plan

        assert self._decided is not None, _NO_GRAPH
        graph = self._decided.reading.graph
        return outline(graph, [outline_plan(graph, "result", self.plan)])

    @property
    def model(self) -> "onnx.ModelProto":
        if self._model is None:
            assert self.path is not None and self._load is not None, (
                "a result is in memory or in a file"
            )
            self._model = self._load(self.path)
        model: onnx.ModelProto = self._model
        return model

    @property
    def _opened_model(self) -> Model:
        """The model that was converted, after fusion; `given` is the source."""
        assert self._opened is not None, "a result comes from an opened model"
        return self._opened


def finish(
    model: Model,
    decided: "Decided",
    result: Artifact,
    dst: str | os.PathLike[str] | None,
    *,
    overwrite: bool = False,
    measured: "Measured | None" = None,
) -> Converted:
    """Write a result to `dst`, or keep it in memory if `dst` is None.

    Raises InputError: the path cannot be written, or the front end has no file format.
    """
    path = None if dst is None else Path(dst)
    if decided.spell_record is not None:
        model.note_record(result, decided.spell_record())
    filled = None
    if path is not None:
        size = store_of(model).write(result, path, overwrite=overwrite)
    else:
        filled = model.materialize(result)
        size = model.size_of(filled)
    return Converted(
        plan=decided.plan,
        summary=_summary(model, decided, size),
        path=path,
        measured=measured,
        source=model.name if model.given.path is None else os.fspath(model.given.path),
        _model=filled,
        _decided=decided,
        _opened=model,
        _result=result,
        _load=None if path is None else store_of(model).load,
    )


def revive(plan: Plan, summary: Summary, path: Path) -> Converted:
    """The result that another process or an earlier run wrote to a file."""
    return Converted(
        plan=plan,
        summary=summary,
        path=path,
        _load=lambda written: store_of(open_source(written, False, None)).load(written),
    )


def aimed(src: object, request: Request) -> Request:
    """The request, with the front end's usual target if it names none.

    Raises InputError: the front end does not convert to a requested format.
    """
    from mezzo.plugins.discovery import frontend_of

    frontend = frontend_of(src, warns=False)
    if request.to not in (None, AUTO):
        check_formats(frontend, spell_formats(request.to))
    return request if request.target is not None else replace(request, target=frontend.usual_target)


def check_formats(frontend: Frontend, to: str) -> None:
    """Raises InputError: the front end does not convert to one of these formats."""
    if not set(read_formats(to)) <= {*frontend.formats}:
        words = frontend.words
        raise InputError(
            f"{option('to')} is {to!r}, and a model in {words.form} is converted to"
            f" {join_with_or(frontend.formats)} alone; choose one of these, or {words.elsewhere}"
        )


def read_plan_options(src: object, given: PlanOptions) -> tuple[Options, bool]:
    """Validated options of a plan, and whether external paths are trusted.

    Errors are those of `convert`.
    """
    request = aimed(src, planning_request_of(given))
    return read_options(request), request.trust_external_paths


def decided_nodes(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    trust_external_paths: bool = False,
) -> tuple[PlannedNode, ...]:
    """Each node's precision and reason, from a model's metadata; empty without metadata."""
    from mezzo.conversion.recall import read_record

    recalled = read_record(open_source(src, trust_external_paths, None))[0]
    return () if recalled is None else tuple(recalled.planned.values())


def open_source(src: object, trust: bool, progress: Progress | None) -> Model:
    """Open a model in any supported form. Errors are those of `convert`."""
    from mezzo.plugins.discovery import frontend_of

    return frontend_of(src).open(src, trust_external_paths=trust, progress=progress)


def store_of(model: Model) -> Store:
    """The writer of a model's results. Raises InputError: such models have no file format."""
    if model.store is None:
        raise InputError(
            f"{model.name} is no file, and neither is what comes of it; leave the destination out"
        )
    return model.store


def _summary(model: Model, decided: "Decided", size_after_bytes: int) -> Summary:
    low, high = decided.count_nodes()
    # An earlier conversion's low nodes are known from its record alone.
    if decided.plan.origin and model.record is not None:
        counts = count_precisions(decided.plan)
        low = sum(counts[dtype] for dtype in decided.plan.lows)
        high = sum(counts.values()) - low
    before = model.given.version or 0
    notes = list(decided.plan.notes)
    if decided.plan.version is not None and decided.plan.version != before:
        version_word, after = model.frontend.words.version, decided.plan.version
        plan = decided.plan
        is_stored = bool(plan.in_blocks or plan.stored_floats)
        formats = " and ".join(plan.formats if is_stored else map(str, plan.lows))
        notes.append(
            f"the {version_word} went from {before} to {after}: only there the schema allows"
            f" {formats}"
        )
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
