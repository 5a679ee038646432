"""Display of results in Python: three lines in a shell; lines, a table and bars in a notebook.

The HTML is self-contained: no script, no file, no network, all names escaped, for light and dark
themes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from mezzo.common.machine import find_machine
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.calibrations import Calibrations
from mezzo.numerics.measures import Comparison, Deviation, Ranges, Sensitivity
from mezzo.numerics.metrics.gradient_errors import GradientErrors
from mezzo.numerics.metrics.layer_errors import LayerErrors
from mezzo.numerics.ranges.gradient_ranges import GradientRanges
from mezzo.numerics.timings import Timings
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import (
    spell_count,
    spell_data,
    spell_error,
    spell_number,
    spell_share,
)
from mezzo.report.layout.printed import as_text, terminal_width
from mezzo.report.notebook.fragments import fragment, share_of
from mezzo.report.records.documents import Document
from mezzo.report.records.groups import count_precisions
from mezzo.report.records.headline import Aim, Headline, Move
from mezzo.report.records.headlines import head_comparison, head_plan
from mezzo.report.text.measured.calibrations import spell_row
from mezzo.report.text.measured.timings import spell_file
from mezzo.report.text.training.gradient_errors import (
    TITLES,
    describe_all,
    describe_gradient_errors,
    report_gradient_errors,
    spell_weight,
    worst_weights,
)
from mezzo.report.text.training.gradient_ranges import (
    RANGE_TITLES,
    describe_about,
    describe_gradient_ranges,
    describe_scale,
    name_of_gradient,
    report_gradient_ranges,
    spell_gradient,
    tell_ranges,
    worst_gradients,
)
from mezzo.report.text.training.layer_errors import (
    ERRORS,
    describe_layer_errors,
    describe_where,
    name_of,
    report_layer_errors,
    spell_errors,
    spell_layer,
    worst_layers,
)
from mezzo.report.views.picture import Picture

_WORST = 8
_NAMED = 3
_FP16_LIMIT = FORMATS[DType.FLOAT16].max_finite
# Renderers for records: as a table of a given width, and as JSON.
_TABLED: Mapping[
    type, tuple[Callable[[Layout, Any, int], Sequence[RenderableType]], Callable[[Any], Document]]
] = {
    GradientErrors: (report_gradient_errors, describe_gradient_errors),
    GradientRanges: (report_gradient_ranges, describe_gradient_ranges),
    LayerErrors: (report_layer_errors, describe_layer_errors),
}
# A quantity, and its amount in each precision.
Measure = tuple[str, Mapping[DType, int]]


@dataclass(frozen=True, slots=True)
class Card:
    """A result in three lines for a shell, and with a table for notebooks. `shares`: one bar a row,
    or none.
    """

    lines: Sequence[str]
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    shares: Sequence[float] = ()


def to_text(record: object) -> str:
    """A record in three lines."""
    return "\n  ".join(_card(record).lines)


def to_html(record: object) -> str:
    """A record as an HTML fragment."""
    return draw_card(_card(record))


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


def draw_card(card: Card) -> str:
    """A card as an HTML fragment."""
    return fragment(card.lines, card.titles, card.rows, card.shares)


def lines_of(what: str, headline: Headline) -> Sequence[str]:
    """A headline in three lines: verdict; risk and gains; next step."""
    gains = "; ".join(headline.gains)
    first = f"{what}: {headline.title}; {headline.verdict}"
    return first, f"risk: {headline.risk}; {gains}", f"next: {_call(headline.aim)}"


def card_of(what: str, headline: Headline, measures: Iterable[Measure]) -> Card:
    """A headline with the share of each precision in some quantities."""
    rows, shares = [], []
    for name, amounts in measures:
        total = sum(amounts.values())
        for dtype, amount in amounts.items():
            if amount:
                rows.append((name, str(dtype), spell_share(amount / total)))
                shares.append(amount / total)
    return Card(lines_of(what, headline), ("", "in", "share", ""), rows, shares)


def measures_of(picture: Picture) -> Sequence[Measure]:
    """Nodes, bytes and multiply-adds by precision."""
    shares = picture.shares
    return (
        ("nodes", {share.dtype: share.nodes for share in shares}),
        ("weights", {share.dtype: share.weights_bytes for share in shares}),
        ("activations", {share.dtype: share.activations_bytes for share in shares}),
        ("multiply-adds", {share.dtype: share.multiply_adds for share in shares}),
    )


@singledispatch
def _card(record: object) -> Card:
    raise AssertionError(f"{type(record).__name__} has no lines of its own")


@_card.register
def _(plan: Plan) -> Card:
    headline = head_plan("the model", plan, find_machine())
    return card_of("Plan", headline, [("nodes", count_precisions(plan))])


@_card.register
def _(comparison: Comparison) -> Card:
    headline = head_comparison("the reference", "the model", comparison, find_machine())
    outputs = sorted(comparison.outputs, key=_badness, reverse=True)[:_WORST]
    layers = sorted(comparison.layers, key=_badness, reverse=True)[: _WORST - len(outputs)]
    rows = [(f"output {value.name}", _error_of(value)) for value in outputs]
    rows += [(value.name, _error_of(value)) for value in layers]
    budget = comparison.verdict.budget
    shares = [share_of(value.relative_l2.estimate, budget) for value in (*outputs, *layers)]
    titles = ("", "relative L2 error", "of the bound")
    return Card(lines_of("Comparison", headline), titles, rows, shares)


@_card.register
def _(ranges: Ranges) -> Card:
    values = sorted(ranges.values, key=lambda value: value.largest, reverse=True)
    most = "no value was measured"
    if values:
        past = [value.value for value in ranges.values if value.largest > _FP16_LIMIT]
        passing = (
            f"{join_some(past, _NAMED)} pass f16's range" if past else "none passes f16's range"
        )
        most = (
            f"the largest magnitude is {spell_number(values[0].largest)}, of"
            f" {clean(values[0].value)}; {passing}"
        )
    unknown = (
        f"cannot tell: {clean(ranges.unknown[0])}"
        if ranges.unknown
        else "mezzo.convert takes the same data"
    )
    about = f"Ranges of {spell_count(len(values), 'value')} on {clean(spell_data(ranges.data))}"
    rows = [(value.value, spell_number(value.largest)) for value in values[:_WORST]]
    shares = [share_of(value.largest, _FP16_LIMIT) for value in values[:_WORST]]
    titles = ("value", "largest", "against f16's 65504")
    return Card((about, most, unknown), titles, rows, shares)


@_card.register
def _(sensitivity: Sensitivity) -> Card:
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
        f" {spell_count(sensitivity.runs, 'run')} on {clean(spell_data(sensitivity.data))}"
    )
    rows = [(unit.name, spell_error(unit.error)) for unit in units[:_WORST]]
    shares = [share_of(unit.error, sensitivity.all_low) for unit in units[:_WORST]]
    titles = ("unit", "error alone", "of all low")
    return Card((about, worst, all_low), titles, rows, shares)


@_card.register
def _(timings: Timings) -> Card:
    first, *others = [f"{clean(file.name)} {spell_file(file)}" for file in timings.files]
    about = (
        f"Timings of {spell_count(len(timings.files), 'file')} on {timings.target},"
        f" {clean(timings.runtime)}"
    )
    lines = (about, first, join_some(others, _NAMED) or "nothing stands beside it")
    medians = [0.0 if file.times is None else file.times.median_ns for file in timings.files]
    rows = [(file.name, spell_file(file)) for file in timings.files]
    shares = [share_of(median, max(medians)) for median in medians]
    return Card(lines, ("file", "median time, speed", "of the longest"), rows, shares)


@_card.register
def _(table: Calibrations) -> Card:
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
    lines = (about, best, join_some(others, _NAMED) or "no other was asked for")
    errors = [row.verdict.error.estimate for row in table.rows]
    rows = [(row.calibrator, spell_row(row)) for row in table.rows]
    shares = [share_of(error, max(errors)) for error in errors]
    return Card(lines, ("calibrator", "", "error, of the largest"), rows, shares)


@_card.register
def _(errors: LayerErrors) -> Card:
    worst, layers = errors.outputs[0], worst_layers(errors)
    text = f"error {spell_error(worst.error)} from FP64, {spell_error(worst.eager)} is FP32's own"
    where = "; ".join(describe_where(errors)) or "no layer was looked at"
    lines = f"LayerErrors: output {clean(worst.name)}, {text}", where, "print it for a table"
    outputs = errors.outputs[:_WORST]
    rows = [(f"output {entry.name}", "", *spell_errors(entry)) for entry in outputs]
    rows += [(name_of(entry, errors), spell_layer(entry), *spell_errors(entry)) for entry in layers]
    every = [*(entry.error for entry in outputs), *(entry.error for entry in layers)]
    shares = [share_of(error, max(every)) for error in every]
    return Card(lines, ("", "runs in", *ERRORS, "of the largest"), rows, shares)


@_card.register
def _(errors: GradientErrors) -> Card:
    worst, weights = errors.worst, worst_weights(errors)
    largest_error = f"worst {clean(worst.name)} {spell_error(worst.error)}"
    first = f"GradientErrors: {describe_all(errors)}, {largest_error}"
    lines = first, "; ".join(describe_scale(errors.ranges)), "print it for a table"
    rows = [(entry.name, *spell_weight(entry, errors)) for entry in weights]
    largest = max(entry.error for entry in weights)
    shares = [share_of(entry.error, largest) for entry in weights]
    return Card(lines, ("weight", *TITLES, "of the largest"), rows, shares)


@_card.register
def _(ranges: GradientRanges) -> Card:
    first, *rest = tell_ranges(ranges)
    lines = f"GradientRanges: {describe_about(ranges)}", first, *rest[:1], "print it for a table"
    rows = [
        (name_of_gradient(entry), *spell_gradient(entry, ranges))
        for entry in worst_gradients(ranges)
    ]
    return Card(lines, ("gradient of", *RANGE_TITLES), rows)


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
    return deviation.fault or spell_error(deviation.relative_l2.estimate)
