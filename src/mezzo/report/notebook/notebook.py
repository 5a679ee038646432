"""Display of results in Python: three lines in a shell; a table and a picture in a notebook.

The HTML is self-contained: no script, no file, no network, all names escaped, for light and dark
themes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from mezzo.common.machine import find_machine
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.calibrations import Calibrations
from mezzo.numerics.measures import Comparison, Deviation, Ranges, Sensitivity
from mezzo.numerics.metrics.gradient_errors import GradientErrors
from mezzo.numerics.metrics.layer_errors import LayerError, LayerErrors, OutputError
from mezzo.numerics.ranges.gradient_ranges import GradientRanges
from mezzo.numerics.timings import Timings
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_count, spell_data, spell_error, spell_number
from mezzo.report.layout.printed import as_text, terminal_width
from mezzo.report.notebook.fragments import (
    CELL,
    TABLE,
    bar_of,
    draw_bars,
    fragment,
    frame,
    safe,
    spell_table,
    with_bars,
)
from mezzo.report.records.documents import Document
from mezzo.report.records.groups import count_precisions
from mezzo.report.records.headline import Aim, Headline, Move
from mezzo.report.records.headlines import head_comparison, head_plan
from mezzo.report.text.measured.calibrations import spell_row
from mezzo.report.text.measured.timings import spell_file
from mezzo.report.text.training.gradient_errors import (
    TITLES,
    describe_gradient_errors,
    report_gradient_errors,
    spell_weight,
    tell_all,
    worst_weights,
)
from mezzo.report.text.training.gradient_ranges import (
    RANGE_TITLES,
    describe_gradient_ranges,
    name_of_gradient,
    report_gradient_ranges,
    spell_gradient,
    tell_about,
    tell_ranges,
    tell_scale,
    worst_gradients,
)
from mezzo.report.text.training.layer_errors import (
    ERRORS,
    HOW,
    describe_layer_errors,
    name_of,
    report_layer_errors,
    spell_errors,
    spell_layer,
    tell_where,
    worst_layers,
)

_WORST = 8
_NAMED = 3
# Renderers for records: as a table of a given width, and as JSON.
_TABLED: Mapping[
    type, tuple[Callable[[Layout, Any, int], Sequence[RenderableType]], Callable[[Any], Document]]
] = {
    GradientErrors: (report_gradient_errors, describe_gradient_errors),
    GradientRanges: (report_gradient_ranges, describe_gradient_ranges),
    LayerErrors: (report_layer_errors, describe_layer_errors),
}


def to_text(record: object) -> str:
    """A record in three lines."""
    return "\n  ".join(_lines(record))


def to_html(record: object) -> str:
    """A record as an HTML fragment."""
    return _page(record)


def to_table(record: object) -> str:
    """A record as a table of the terminal's width."""
    width = terminal_width()
    assert type(record) in _TABLED, f"{type(record).__name__} has no table of its own"
    report, _ = _TABLED[type(record)]
    return as_text(report(Layout.PLAIN, record, width), width)


def to_document(record: object) -> Document:
    """A record as JSON data."""
    assert type(record) in _TABLED, f"{type(record).__name__} is no document"
    _, describe = _TABLED[type(record)]
    return describe(record)


@singledispatch
def _lines(record: object) -> Sequence[str]:
    raise AssertionError(f"{type(record).__name__} has no lines of its own")


@singledispatch
def _page(record: object) -> str:
    raise AssertionError(f"{type(record).__name__} has no table of its own")


@_lines.register
def _(plan: Plan) -> Sequence[str]:
    return lines_of("Plan", _headline_of(plan))


@_page.register
def _(plan: Plan) -> str:
    shares = [(str(dtype), count) for dtype, count in count_precisions(plan).items()]
    return page_of(_headline_of(plan), [("nodes", shares)])


def _headline_of(plan: Plan) -> Headline:
    return head_plan("the model", plan, find_machine())


@_lines.register
def _(comparison: Comparison) -> Sequence[str]:
    return lines_of(
        "Comparison", head_comparison("the reference", "the model", comparison, find_machine())
    )


@_page.register
def _(comparison: Comparison) -> str:
    headline = head_comparison("the reference", "the model", comparison, find_machine())
    outputs = sorted(comparison.outputs, key=_badness, reverse=True)[:_WORST]
    layers = sorted(comparison.layers, key=_badness, reverse=True)[: _WORST - len(outputs)]
    rows = [
        (f"output {clean(value.name)}", _error_of(value), value.relative_l2.estimate)
        for value in outputs
    ]
    rows += [(clean(value.name), _error_of(value), value.relative_l2.estimate) for value in layers]
    table = spell_table(
        ("", "relative L2 error", "of the bound"), with_bars(rows, comparison.verdict.budget)
    )
    return frame(page_of(headline) + table)


@_lines.register
def _(ranges: Ranges) -> Sequence[str]:
    largest = max(ranges.values, key=lambda value: value.largest, default=None)
    most = "no value was measured"
    if largest is not None:
        most = (
            f"the largest magnitude is {spell_number(largest.largest)}, of {clean(largest.value)};"
            f" {_pass(ranges)}"
        )
    unknown = (
        f"cannot tell: {clean(ranges.unknown[0])}"
        if ranges.unknown
        else "mezzo.convert takes the same data"
    )
    return (
        f"Ranges of {spell_count(len(ranges.values), 'value')} on {clean(spell_data(ranges.data))}",
        most,
        unknown,
    )


@_page.register
def _(ranges: Ranges) -> str:
    first, *rest = _lines(ranges)
    worst = sorted(ranges.values, key=lambda value: value.largest, reverse=True)[:_WORST]
    rows = [(clean(value.value), spell_number(value.largest), value.largest) for value in worst]
    limit = FORMATS[DType.FLOAT16].max_finite
    head = "".join(f"<div>{safe(line)}</div>" for line in (first, *rest))
    return frame(
        head + spell_table(("value", "largest", "against f16's 65504"), with_bars(rows, limit))
    )


def _pass(ranges: Ranges) -> str:
    limit = FORMATS[DType.FLOAT16].max_finite
    past = [value.value for value in ranges.values if value.largest > limit]
    return f"{join_some(past, _NAMED)} pass f16's range" if past else "none passes f16's range"


@_lines.register
def _(sensitivity: Sensitivity) -> Sequence[str]:
    units, all_low, worst = sensitivity.units, "nothing was run", "no unit was judged"
    if units:
        worst = (
            f"costliest: {clean(units[0].name)}, error {spell_error(units[0].error)} when it alone"
            " runs low"
        )
    if not math.isnan(sensitivity.all_low):
        all_low = f"all low: error {spell_error(sensitivity.all_low)}"
    about = (
        f"Sensitivity of {spell_count(len(units), 'unit')} in"
        f" {spell_count(sensitivity.runs, 'run')}"
    )
    return f"{about} on {clean(spell_data(sensitivity.data))}", worst, all_low


@_page.register
def _(sensitivity: Sensitivity) -> str:
    first, *rest = _lines(sensitivity)
    rows = [
        (clean(unit.name), spell_error(unit.error), unit.error)
        for unit in sensitivity.units[:_WORST]
    ]
    head = "".join(f"<div>{safe(line)}</div>" for line in (first, *rest))
    return frame(
        head
        + spell_table(("unit", "error alone", "of all low"), with_bars(rows, sensitivity.all_low))
    )


@_lines.register
def _(timings: Timings) -> Sequence[str]:
    first, *others = [f"{clean(file.name)} {spell_file(file)}" for file in timings.files]
    about = (
        f"Timings of {spell_count(len(timings.files), 'file')} on {timings.target},"
        f" {clean(timings.runtime)}"
    )
    return about, first, join_some(others, _NAMED) or "nothing stands beside it"


@_page.register
def _(timings: Timings) -> str:
    medians = [0.0 if file.times is None else file.times.median_ns for file in timings.files]
    named = [(clean(file.name), spell_file(file)) for file in timings.files]
    rows = [(*name, median) for name, median in zip(named, medians, strict=True)]
    head = f"<div>{safe(_lines(timings)[0])}</div>"
    return frame(
        head
        + spell_table(
            ("file", "median time, speed", "of the longest"), with_bars(rows, max(medians))
        )
    )


@_lines.register
def _(table: Calibrations) -> Sequence[str]:
    about = (
        f"Calibrations to {table.to} for {table.target}, judged on"
        f" {clean(spell_data(table.judged))}"
    )
    best = (
        "no calibrator's answers are right"
        if table.best is None
        else f"best: {clean(table.best.calibrator)}, {spell_row(table.best)}"
    )
    others = [
        f"{clean(row.calibrator)}: {spell_row(row)}" for row in table.rows if row is not table.best
    ]
    return about, best, join_some(others, _NAMED) or "no other was asked for"


@_page.register
def _(table: Calibrations) -> str:
    errors = [row.verdict.error.estimate for row in table.rows]
    named = [(clean(row.calibrator), spell_row(row)) for row in table.rows]
    rows = [(*name, error) for name, error in zip(named, errors, strict=True)]
    head = f"<div>{safe(_lines(table)[0])}</div>"
    return frame(
        head
        + spell_table(("calibrator", "", "error, of the largest"), with_bars(rows, max(errors)))
    )


@_lines.register
def _(errors: LayerErrors) -> Sequence[str]:
    worst = errors.outputs[0]
    text = f"error {spell_error(worst.error)} from FP64, {spell_error(worst.eager)} is FP32's own"
    layers = "; ".join(tell_where(errors)) or "no layer was looked at"
    return f"LayerErrors: output {clean(worst.name)}, {text}", layers, "print it for a table"


@_page.register
def _(errors: LayerErrors) -> str:
    named: list[tuple[str, str, OutputError | LayerError]] = [
        (f"output {entry.name}", "", entry) for entry in errors.outputs[:_WORST]
    ]
    named += [(name_of(entry, errors), spell_layer(entry), entry) for entry in worst_layers(errors)]
    largest = max(entry.error for _, _, entry in named)
    rows = [
        (*map(safe, (name, runs_in, *spell_errors(entry))), bar_of(entry.error, largest))
        for name, runs_in, entry in named
    ]
    head = "".join(f"<div>{safe(line)}</div>" for line in (HOW, *tell_where(errors), *errors.notes))
    return frame(head + spell_table(("", "runs in", *ERRORS, "of the largest"), rows))


@_lines.register
def _(errors: GradientErrors) -> Sequence[str]:
    worst = errors.worst
    first = (
        f"GradientErrors: {tell_all(errors)}, worst {clean(worst.name)} {spell_error(worst.error)}"
    )
    return first, "; ".join(tell_scale(errors.ranges)), "print it for a table"


@_page.register
def _(errors: GradientErrors) -> str:
    weights = worst_weights(errors)
    largest = max(entry.error for entry in weights)
    rows = [
        (*map(safe, (entry.name, *spell_weight(entry, errors))), bar_of(entry.error, largest))
        for entry in weights
    ]
    head = "".join(
        f"<div>{safe(line)}</div>"
        for line in (tell_all(errors), *tell_ranges(errors.ranges), *errors.notes)
    )
    return frame(head + spell_table(("weight", *TITLES, "of the largest"), rows))


@_lines.register
def _(ranges: GradientRanges) -> Sequence[str]:
    first, *rest = tell_ranges(ranges)
    return f"GradientRanges: {tell_about(ranges)}", first, *rest[:1], "print it for a table"


@_page.register
def _(ranges: GradientRanges) -> str:
    rows = [
        (name_of_gradient(entry), *spell_gradient(entry, ranges))
        for entry in worst_gradients(ranges)
    ]
    return fragment(
        (tell_about(ranges), *tell_ranges(ranges)), ("gradient of", *RANGE_TITLES), rows
    )


def lines_of(what: str, headline: Headline) -> Sequence[str]:
    """A headline in three lines: verdict; risk and gains; next step."""
    gains = "; ".join(headline.gains)
    first = f"{what}: {headline.title}; {headline.verdict}"
    return first, f"risk: {headline.risk}; {gains}", f"next: {_call(headline.aim)}"


def page_of(headline: Headline, bars: Iterable[tuple[str, Sequence[tuple[str, int]]]] = ()) -> str:
    """A headline as an HTML table, with bars for the precisions."""
    rows = [(label, safe(sentence)) for label, sentence in headline.rows()]
    rows.append(("next", f"<code>{safe(_call(headline.aim))}</code>"))
    cells = "".join(
        f"<tr><th {CELL}>{safe(label)}</th><td {CELL}>{cell}</td></tr>" for label, cell in rows
    )
    table = f'<table style="{TABLE}"><tbody>{cells}</tbody></table>'
    return frame(f"<div><b>{safe(headline.title)}</b></div>{table}{draw_bars(list(bars))}")


def _call(aim: Aim) -> str:
    """The next step as a Python call."""
    words = "".join(f", {name}={value!r}" for name, value in aim.words.items())
    match aim.move:
        case Move.WRITE:
            return "mezzo.convert(source, result, plan=plan)"
        case Move.JUDGE:
            return 'mezzo.compare(source, result, "random")  # or data of your own'
        case Move.JUDGE_ON_OWN_DATA:
            return "mezzo.compare(source, result, data)"
        case Move.RETARGET if not aim.words:
            return "mezzo.convert(source, result, target=...)  # 'mezzo targets' tells which gain"
        case Move.RETARGET:
            return f"mezzo.convert(source, result{words})"
        case Move.TUNE | Move.LOOSEN:
            return f"mezzo.tune(source, result, data=data{words or ', max_error=1e-3'})"
        case Move.MEASURE:
            return "mezzo.ranges(source, data)"
        case Move.EXPLAIN:
            return f"mezzo.explain(plan, {aim.words.get('node', 'NODE')!r})"


def _badness(deviation: Deviation) -> float:
    error = deviation.relative_l2.estimate
    return math.inf if deviation.fault or math.isnan(error) else error


def _error_of(deviation: Deviation) -> str:
    return (
        clean(deviation.fault) if deviation.fault else spell_error(deviation.relative_l2.estimate)
    )
