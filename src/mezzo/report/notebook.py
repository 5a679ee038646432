"""Results as Python shows them: three lines in a shell; in a notebook a table and a picture, in light and in dark.

What a notebook is given stands alone: no script, no file, no network, and every name is escaped.
"""

import html
import math
from collections.abc import Iterable, Sequence
from functools import singledispatch

from mezzo.core.plans import Plan
from mezzo.dtypes import FORMATS, DType
from mezzo.machine import find_machine
from mezzo.numerics.calibrations import Calibrations
from mezzo.numerics.gradient_errors import GradientErrors
from mezzo.numerics.gradient_ranges import GradientRanges
from mezzo.numerics.layer_errors import LayerError, LayerErrors, OutputError
from mezzo.numerics.measures import Comparison, Deviation, Ranges, Sensitivity
from mezzo.numerics.timings import Timings
from mezzo.report.calibrations import spell_row
from mezzo.report.documents import Document
from mezzo.report.figures import spell_count, spell_data, spell_error, spell_number
from mezzo.report.gradient_errors import (
    TITLES,
    describe_gradient_errors,
    report_gradient_errors,
    spell_weight,
    tell_all,
    worst_weights,
)
from mezzo.report.gradient_ranges import (
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
from mezzo.report.groups import count_precisions
from mezzo.report.headline import Aim, Headline, Move
from mezzo.report.headlines import head_comparison, head_plan
from mezzo.report.layer_errors import (
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
from mezzo.report.layout import Layout
from mezzo.report.names import clean, join_some
from mezzo.report.printed import as_text, terminal_width
from mezzo.report.timings import spell_file
from mezzo.views.picture import Picture

_WORST = 8
_NAMED = 3
# Seen on white and on black alike.
_COLOURS = {"f16": "#2e9e5b", "bf16": "#1f9bb5", "f32": "#c8962e", "f64": "#a05fc0", "int8": "#8a6fd1"}
_OTHER = "#7a86a8"
_WIDE = 420  # of a picture, in its own units
_TABLE = "border-collapse:collapse;color:inherit;font:inherit"  # which a page without a doctype does not
_CELL = 'style="text-align:left;padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.35)"'


def to_text(record: object) -> str:
    """A record in three lines."""
    return "\n  ".join(_lines(record))


def to_html(record: object) -> str:
    """A record as a fragment of a page."""
    return _page(record)


def to_table(record: object) -> str:
    """A record as a table, as wide as the terminal."""
    width = terminal_width()
    if isinstance(record, GradientErrors):
        return as_text(report_gradient_errors(Layout.PLAIN, record, width), width)
    if isinstance(record, GradientRanges):
        return as_text(report_gradient_ranges(Layout.PLAIN, record, width), width)
    assert isinstance(record, LayerErrors), f"{type(record).__name__} has no table of its own"
    return as_text(report_layer_errors(Layout.PLAIN, record, width), width)


def to_document(record: object) -> Document:
    """A record as plain data."""
    if isinstance(record, GradientErrors):
        return describe_gradient_errors(record)
    if isinstance(record, GradientRanges):
        return describe_gradient_ranges(record)
    assert isinstance(record, LayerErrors), f"{type(record).__name__} is no document"
    return describe_layer_errors(record)


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
    return lines_of("Comparison", head_comparison("the reference", "the model", comparison, find_machine()))


@_page.register
def _(comparison: Comparison) -> str:
    headline = head_comparison("the reference", "the model", comparison, find_machine())
    outputs = sorted(comparison.outputs, key=_badness, reverse=True)[:_WORST]
    layers = sorted(comparison.layers, key=_badness, reverse=True)[: _WORST - len(outputs)]
    rows = [(f"output {clean(one.name)}", _error_of(one), one.relative_l2.estimate) for one in outputs]
    rows += [(clean(one.name), _error_of(one), one.relative_l2.estimate) for one in layers]
    table = _table(("", "relative L2 error", "of the bound"), _with_bars(rows, comparison.verdict.budget))
    return _frame(page_of(headline) + table)


@_lines.register
def _(ranges: Ranges) -> Sequence[str]:
    largest = max(ranges.values, key=lambda value: value.largest, default=None)
    most = "no value was measured"
    if largest is not None:
        most = f"the largest magnitude is {spell_number(largest.largest)}, of {clean(largest.value)}; {_pass(ranges)}"
    unknown = f"cannot tell: {clean(ranges.unknown[0])}" if ranges.unknown else "mezzo.convert takes the same data"
    return f"Ranges of {spell_count(len(ranges.values), 'value')} on {clean(spell_data(ranges.data))}", most, unknown


@_page.register
def _(ranges: Ranges) -> str:
    first, *rest = _lines(ranges)
    worst = sorted(ranges.values, key=lambda value: value.largest, reverse=True)[:_WORST]
    rows = [(clean(value.value), spell_number(value.largest), value.largest) for value in worst]
    limit = FORMATS[DType.FLOAT16].max_finite
    head = "".join(f"<div>{_safe(line)}</div>" for line in (first, *rest))
    return _frame(head + _table(("value", "largest", "against f16's 65504"), _with_bars(rows, limit)))


def _pass(ranges: Ranges) -> str:
    limit = FORMATS[DType.FLOAT16].max_finite
    past = [value.value for value in ranges.values if value.largest > limit]
    return f"{join_some(past, _NAMED)} pass f16's range" if past else "none passes f16's range"


@_lines.register
def _(sensitivity: Sensitivity) -> Sequence[str]:
    units, whole, worst = sensitivity.units, "nothing was run", "no unit was judged"
    if units:
        worst = f"costliest: {clean(units[0].name)}, error {spell_error(units[0].error)} when it alone runs low"
    if not math.isnan(sensitivity.all_low):
        whole = f"all low: error {spell_error(sensitivity.all_low)}"
    about = f"Sensitivity of {spell_count(len(units), 'unit')} in {spell_count(sensitivity.runs, 'run')}"
    return f"{about} on {clean(spell_data(sensitivity.data))}", worst, whole


@_page.register
def _(sensitivity: Sensitivity) -> str:
    first, *rest = _lines(sensitivity)
    rows = [(clean(unit.name), spell_error(unit.error), unit.error) for unit in sensitivity.units[:_WORST]]
    head = "".join(f"<div>{_safe(line)}</div>" for line in (first, *rest))
    return _frame(head + _table(("unit", "error alone", "of all low"), _with_bars(rows, sensitivity.all_low)))


@_lines.register
def _(timings: Timings) -> Sequence[str]:
    first, *others = [f"{clean(file.name)} {spell_file(file)}" for file in timings.files]
    about = f"Timings of {spell_count(len(timings.files), 'file')} on {timings.target}, {clean(timings.runtime)}"
    return about, first, join_some(others, _NAMED) or "nothing stands beside it"


@_page.register
def _(timings: Timings) -> str:
    medians = [0.0 if file.times is None else file.times.median_ns for file in timings.files]
    named = [(clean(file.name), spell_file(file)) for file in timings.files]
    rows = [(*name, median) for name, median in zip(named, medians, strict=True)]
    head = f"<div>{_safe(_lines(timings)[0])}</div>"
    return _frame(head + _table(("file", "median time, speed", "of the longest"), _with_bars(rows, max(medians))))


@_lines.register
def _(found: Calibrations) -> Sequence[str]:
    about = f"Calibrations to {found.to} for {found.target}, judged on {clean(spell_data(found.judged))}"
    best = (
        "no calibrator's answers are right"
        if found.best is None
        else f"best: {clean(found.best.calibrator)}, {spell_row(found.best)}"
    )
    others = [f"{clean(row.calibrator)}: {spell_row(row)}" for row in found.rows if row is not found.best]
    return about, best, join_some(others, _NAMED) or "no other was asked for"


@_page.register
def _(found: Calibrations) -> str:
    errors = [row.verdict.error.estimate for row in found.rows]
    named = [(clean(row.calibrator), spell_row(row)) for row in found.rows]
    rows = [(*name, error) for name, error in zip(named, errors, strict=True)]
    head = f"<div>{_safe(_lines(found)[0])}</div>"
    return _frame(head + _table(("calibrator", "", "error, of the largest"), _with_bars(rows, max(errors))))


@_lines.register
def _(found: LayerErrors) -> Sequence[str]:
    worst = found.outputs[0]
    said = f"error {spell_error(worst.error)} from FP64, {spell_error(worst.eager)} is FP32's own"
    layers = "; ".join(tell_where(found)) or "no layer was looked at"
    return f"LayerErrors: output {clean(worst.name)}, {said}", layers, "print it for a table"


@_page.register
def _(found: LayerErrors) -> str:
    named: list[tuple[str, str, OutputError | LayerError]] = [
        (f"output {one.name}", "", one) for one in found.outputs[:_WORST]
    ]
    named += [(name_of(one, found), spell_layer(one), one) for one in worst_layers(found)]
    largest = max(one.error for _, _, one in named)
    rows = [(*map(_safe, (name, told, *spell_errors(one))), _bar_of(one.error, largest)) for name, told, one in named]
    head = "".join(f"<div>{_safe(line)}</div>" for line in (HOW, *tell_where(found), *found.notes))
    return _frame(head + _table(("", "runs in", *ERRORS, "of the largest"), rows))


@_lines.register
def _(found: GradientErrors) -> Sequence[str]:
    worst = found.worst
    first = f"GradientErrors: {tell_all(found)}, worst {clean(worst.name)} {spell_error(worst.error)}"
    return first, "; ".join(tell_scale(found.ranges)), "print it for a table"


@_page.register
def _(found: GradientErrors) -> str:
    weights = worst_weights(found)
    largest = max(one.error for one in weights)
    rows = [(*map(_safe, (one.name, *spell_weight(one, found))), _bar_of(one.error, largest)) for one in weights]
    head = "".join(f"<div>{_safe(line)}</div>" for line in (tell_all(found), *tell_ranges(found.ranges), *found.notes))
    return _frame(head + _table(("weight", *TITLES, "of the largest"), rows))


@_lines.register
def _(ranges: GradientRanges) -> Sequence[str]:
    first, *rest = tell_ranges(ranges)
    return f"GradientRanges: {tell_about(ranges)}", first, *rest[:1], "print it for a table"


@_page.register
def _(ranges: GradientRanges) -> str:
    rows = [(name_of_gradient(one), *spell_gradient(one, ranges)) for one in worst_gradients(ranges)]
    return fragment((tell_about(ranges), *tell_ranges(ranges)), ("gradient of", *RANGE_TITLES), rows)


def lines_of(what: str, headline: Headline) -> Sequence[str]:
    """A headline in three lines: what and whether it may be trusted; what worries and what is gained; what is next."""
    gains = "; ".join(headline.gains)
    first = f"{what}: {headline.title}; {headline.verdict}"
    return first, f"risk: {headline.risk}; {gains}", f"next: {_call(headline.aim)}"


def page_of(headline: Headline, bars: Iterable[tuple[str, Sequence[tuple[str, int]]]] = ()) -> str:
    """A headline as a table, with bars for what runs in which precision."""
    rows = [(label, _safe(sentence)) for label, sentence in headline.rows()]
    rows.append(("next", f"<code>{_safe(_call(headline.aim))}</code>"))
    cells = "".join(f"<tr><th {_CELL}>{_safe(label)}</th><td {_CELL}>{cell}</td></tr>" for label, cell in rows)
    table = f'<table style="{_TABLE}"><tbody>{cells}</tbody></table>'
    return _frame(f"<div><b>{_safe(headline.title)}</b></div>{table}{_bars(list(bars))}")


def fragment(lines: Iterable[str], titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Lines above a table, all of which are escaped here."""
    head = "".join(f"<div>{_safe(line)}</div>" for line in lines)
    return _frame(head + _table(titles, [[_safe(cell) for cell in row] for row in rows]))


def bars_of(picture: Picture) -> list[tuple[str, Sequence[tuple[str, int]]]]:
    """What a picture says of nodes, weights, activations and multiply-adds, for `page_of`."""
    return [
        ("nodes", [(str(share.dtype), share.nodes) for share in picture.shares]),
        ("weights", [(str(share.dtype), share.weights_bytes) for share in picture.shares]),
        ("activations", [(str(share.dtype), share.activations_bytes) for share in picture.shares]),
        ("multiply-adds", [(str(share.dtype), share.multiply_adds) for share in picture.shares]),
    ]


def _call(aim: Aim) -> str:
    """What to do next as Python."""
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


def _badness(found: Deviation) -> float:
    error = found.relative_l2.estimate
    return math.inf if found.fault or math.isnan(error) else error


def _error_of(found: Deviation) -> str:
    return clean(found.fault) if found.fault else spell_error(found.relative_l2.estimate)


def _safe(text: str) -> str:
    return html.escape(clean(text))


def _frame(inner: str) -> str:
    return f'<div class="mezzo" style="color:inherit;font-size:13px;line-height:1.5">{inner}</div>'


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are safe already."""
    head = "".join(f"<th {_CELL}>{_safe(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td {_CELL}>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _with_bars(rows: Iterable[tuple[str, str, float]], limit: float) -> list[tuple[str, str, str]]:
    """Rows of a name, a number in words and the number, which becomes a bar as long as its share of the limit."""
    return [(_safe(name), _safe(said), _bar_of(number, limit)) for name, said, number in rows]


def _bar_of(number: float, limit: float) -> str:
    share = number / limit if limit > 0 and math.isfinite(number) else math.inf if number else 0.0
    colour = _COLOURS["f16"] if share <= 1 else "#c0392b"
    width = 120 * min(max(share, 0.0), 1.0)
    return (
        f'<svg width="120" height="10" role="img" aria-label="{_safe(f"{100 * share:.3g} % of {limit:.3g}")}">'
        f'<rect width="120" height="10" fill="none" stroke="rgba(128,128,128,.5)"/>'
        f'<rect width="{width:.1f}" height="10" fill="{colour}"/></svg>'
    )


def _bars(bars: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> str:
    """One bar for each measure with a part for each precision, as long as its share, and what the colours mean."""
    shown = [(name, parts) for name, parts in bars if sum(size for _, size in parts)]
    if not shown:
        return ""
    lines, dtypes = [], list(dict.fromkeys(dtype for _, parts in shown for dtype, size in parts if size))
    for place, (name, parts) in enumerate(shown):
        whole, left = sum(size for _, size in parts), 110.0
        lines.append(f'<text x="0" y="{place * 18 + 12}" font-size="12" fill="currentColor">{_safe(name)}</text>')
        for dtype, size in parts:
            width = (_WIDE - 110) * size / whole
            told = f"<title>{_safe(f'{name}: {100 * size / whole:.1f} % in {dtype}')}</title>"
            shape = f'x="{left:.1f}" y="{place * 18 + 2}" width="{width:.1f}" height="12" fill="{_colour(dtype)}"'
            lines.append(f"<rect {shape}>{told}</rect>" if size else "")
            left += width
    top = len(shown) * 18
    for place, dtype in enumerate(dtypes):
        lines.append(f'<rect x="{110 + place * 70}" y="{top + 4}" width="10" height="10" fill="{_colour(dtype)}"/>')
        lines.append(
            f'<text x="{124 + place * 70}" y="{top + 13}" font-size="12" fill="currentColor">{_safe(dtype)}</text>'
        )
    box = f'width="{_WIDE}" height="{top + 18}" viewBox="0 0 {_WIDE} {top + 18}"'
    return f'<svg {box} role="img">{"".join(lines)}</svg>'


def _colour(dtype: str) -> str:
    return _COLOURS.get(dtype, _OTHER)
