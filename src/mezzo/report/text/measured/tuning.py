"""Report of a precision search: the result, the reason why it stopped, the frontier and advice."""

import math
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.numerics.measures import BYTES_STORED
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import (
    round_up,
    spell_count,
    spell_data,
    spell_error,
    spell_load,
    spell_time,
)
from mezzo.report.layout.parts import blank, heading, indented, make_table, report_unknown, section
from mezzo.report.records.summary import Summary
from mezzo.report.records.trust import bounds_errors
from mezzo.report.text.conversion import report_counts, report_high_nodes, settings_line
from mezzo.report.text.measured.comparison import (
    report_notes,
    report_outputs,
    report_verdict,
)
from mezzo.report.text.measured.frontier import report_frontier, scale_of
from mezzo.report.text.weights import report_storage

if TYPE_CHECKING:
    from mezzo.numerics.measures import (
        FrontierPoint,
        Measured,
        MetricResult,
        SearchRecord,
        Timing,
        UnitError,
    )

# Largest relative cost of a plan that is suggested as cheaper than the chosen one.
_CLEARLY_CHEAPER = 0.95


def report_tuning(
    layout: Layout, source: str, result: str, plan: Plan, summary: Summary, measured: "Measured"
) -> list[RenderableType]:
    """The result of a search, without next steps."""
    parts: list[RenderableType] = [
        heading(f"{clean(source)} -> {clean(result)}"),
        settings_line(plan),
    ]
    if measured.data is not None:
        parts.append(Text(clean(f"tuned on {spell_data(measured.data)}"), style="dim"))
    if measured.search is not None:
        parts += [blank(), *report_outcome(measured), blank(), _report_search(layout, measured)]
    parts += [blank(), report_counts(layout, plan, summary)]
    of_weights = _is_of_weights(measured)
    units = measured.sensitivity.units if of_weights and measured.sensitivity else ()
    parts += report_storage(layout, plan, {unit.name: unit.error for unit in units})
    if measured.timing is not None:
        parts += [blank(), *_report_timing(layout, measured.timing)]
    if measured.frontier:
        prediction = None if measured.search is None else measured.search.prediction
        frontier = report_frontier(layout, measured.frontier, measured.costs, prediction)
        what = "cost" if not of_weights else "bytes"
        parts += section(f"the frontier between {what} and error", *frontier)
    if measured.comparison is not None:
        parts += section("the check", *report_verdict(measured.comparison))
        parts += [blank(), *report_outputs(layout, measured.comparison)]
    parts += report_high_nodes(layout, plan)
    parts += report_notes((*summary.notes, *measured.all_notes))
    advice = [] if measured.search is None else _advise(measured.search, measured)
    if advice:
        parts += section("what would help", *map(indented, advice))
    return parts


def _is_of_weights(measured: "Measured") -> bool:
    """Whether the search chose the storage of weights."""
    return measured.costs is not None and measured.costs.unit == BYTES_STORED


def _metric_of(measured: "Measured") -> "MetricResult | None":
    """The user's metric, if the budget is on its drop."""
    comparison = measured.comparison
    return None if comparison is None or bounds_errors(comparison) else comparison.metric


def report_outcome(measured: "Measured") -> list[RenderableType]:
    """Whether the result is within the budget, and the reason why the search stopped."""
    search = measured.search
    assert search is not None, "asked for a search"
    word, style = (
        ("inside the budget", "bold green")
        if search.is_within_budget
        else ("over the budget", "bold red")
    )
    if search.unknown and not is_wrong(measured):
        word, style = "cannot tell", "bold yellow"
    held_out_error, metric = search.held_out_error, _metric_of(measured)
    if search.max_bytes is not None:
        word = "inside the budget"
        summary = (
            f": the least error in {format_size(search.max_bytes)}, {spell_error(search.error)}"
        )
        data_note = (
            ", all data was used to tune"
            if held_out_error is None
            else f", {spell_error(held_out_error)} on data it never saw"
        )
    elif metric is None:
        summary = (
            f": error {spell_error(search.error)} where {spell_error(search.budget)} is allowed"
        )
        data_note = (
            ", all data was used to tune"
            if held_out_error is None
            else f", {spell_error(held_out_error)} on data it never saw"
        )
    else:
        allowed = f"{metric.drop:.3g} where {spell_error(search.budget)} is allowed"
        summary = f": {clean(metric.name)} drops by {allowed}"
        data_note = (
            ", on the data it was tuned on" if held_out_error is None else ", on data it never saw"
        )
    lines = [
        Text.assemble((word, style), summary, data_note),
        indented(f"stopped by: {clean(search.stopped_by)}"),
    ]
    return [*lines, *report_unknown(search.unknown)]


def is_wrong(measured: "Measured") -> bool:
    """Whether an output is known to exceed its budget."""
    comparison = measured.comparison
    return comparison is not None and any(
        output.ruling is not None and output.ruling.value == "different"
        for output in comparison.outputs
    )


def _report_search(layout: Layout, measured: "Measured") -> RenderableType:
    """The search in numbers."""
    search = measured.search
    assert search is not None, "asked for a search"
    table = make_table(layout, "search", "", fixed=("search",))
    partial = f", {search.partial_evaluations} on a part" if search.partial_evaluations else ""
    table.add_row(
        "evaluations", f"{search.evaluations} on all data{partial}, {search.checks} of the result"
    )
    table.add_row("time", spell_time(search.time_s))
    if search.margin != 1 and search.max_bytes is None:
        aim = spell_error(search.budget / search.margin) if search.margin > 0 else "nothing"
        table.add_row(
            "margin", f"aimed at {aim}, the budget / {search.margin:.3g}, for data it never saw"
        )
    chosen, scale = _chosen_point(measured), scale_of(measured.frontier, measured.costs)
    if chosen is not None and scale is not None:
        table.add_row("cost", scale.spell(chosen.cost))
    if search.costliest is not None:
        table.add_row(
            "costliest",
            f"{clean(search.costliest)}{_spell_unit(_find_unit(measured, search.costliest))}",
        )
    return table


def _report_timing(layout: Layout, timing: "Timing") -> list[RenderableType]:
    """Times of the result, the model in FP32 and the result of convert alone."""
    right = ("median", "least", "speed", "95 % interval")
    table = make_table(layout, "timed", *right, right=right, fixed=("timed",))
    for model in timing.models:
        times = [_spell_ms(time_ns) for time_ns in (model.median_ns, model.least_ns)]
        speed = model.speed
        ends = (
            ("", "")
            if speed is None
            else (f"{speed.estimate:.2f}x", f"{speed.low:.2f} .. {speed.high:.2f}")
        )
        table.add_row(model.name, *times, *ends)
    care = (
        f"in {spell_count(timing.turns, 'turn')} each on {timing.runtime}{spell_load(timing.load)},"
        " as mezzo bench times files"
    )
    return [table, blank(), indented(clean(care), style="dim")]


def _spell_ms(time_ns: float | None) -> str:
    return "does not run" if time_ns is None else f"{time_ns / 1e6:.4g} ms"


def _chosen_point(measured: "Measured") -> "FrontierPoint | None":
    return next((point for point in measured.frontier if point.is_chosen), None)


def _find_unit(measured: "Measured", name: str) -> "UnitError | None":
    units = () if measured.sensitivity is None else measured.sensitivity.units
    return next((unit for unit in units if unit.name == name), None)


def _spell_unit(unit: "UnitError | None") -> str:
    if unit is None:
        return ""
    nodes = f"{spell_count(len(unit.nodes), 'node')}, " if len(unit.nodes) > 1 else ""
    if unit.is_measured:
        return f" ({nodes}error {spell_error(unit.error)} when it alone runs low)"
    return (
        f" ({nodes}error {spell_error(unit.error)}, its share of what {unit.together} cost"
        " together)"
    )


def _advise(search: "SearchRecord", measured: "Measured") -> list[str]:
    """Advice for a better result; empty if there is none."""
    advice: list[str] = []
    metric = _metric_of(measured)
    if search.unknown:
        advice.append("samples that are finite and differ, on which the outputs change, would tell")
    elif not search.is_within_budget:
        reached = max(search.error, search.held_out_error or 0.0) if metric is None else metric.drop
        if math.isfinite(reached) and reached > search.budget:
            advice.append(f"a budget of {round_up(reached)} would be kept by this plan")
        if search.costliest is not None:
            unit = _find_unit(measured, search.costliest)
            readers = f" {join_some(unit.nodes, 1)}" if unit and _is_of_weights(measured) else ""
            advice.append(
                f"most of the error comes from {clean(search.costliest)}: --exclude{readers} keeps"
                " it in FP32"
            )
    elif metric is None:
        cheaper = _cheaper_point(measured, search)
        if cheaper is not None:
            advice.append(
                f"a budget of {round_up(cheaper[0])} would lower the cost to {cheaper[1]}"
            )
    if search.held_out_error is None:
        advice.append("more data would leave a part that tuning never sees, to check the result on")
    return advice


def _cheaper_point(measured: "Measured", search: "SearchRecord") -> tuple[float, str] | None:
    """The budget for the frontier's next cheaper plan, margin included, and that plan's cost."""
    scale, chosen = scale_of(measured.frontier, measured.costs), _chosen_point(measured)
    if scale is None or chosen is None:
        return None
    candidates = [
        (point.best_error * search.margin, point.cost)
        for point in measured.frontier
        if point.cost < _CLEARLY_CHEAPER * chosen.cost
        and search.budget < point.best_error * search.margin < math.inf
    ]
    if not candidates:
        return None
    needed, cost = max(candidates, key=lambda pair: pair[1])
    return needed, scale.spell(cost)
