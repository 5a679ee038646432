"""Display of results in Python: up to five lines in a shell; these, a table and bars in a notebook.

The HTML is self-contained: no script, no file, no network, all names escaped, for light and dark
themes.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from rich.console import RenderableType

from mezzo.common.machine import find_machine
from mezzo.contracts.plans import Explanation, Plan
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
from mezzo.report.notebook.fragments import Card, draw_card, share_of, spell_card
from mezzo.report.records.documents import Document
from mezzo.report.records.groups import count_precisions
from mezzo.report.records.headline import Aim, Headline, Move, NextCommand
from mezzo.report.records.headlines import head_comparison, head_plan
from mezzo.report.text.explanation import describe_explanation, report_explanation
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

_PRINT = ("next", "print(errors)  # as a table")
_WORST = 8
_NAMED = 3
_MOST_CHAINS = 12
_CHANGE = "to change it"
_FP16_LIMIT = FORMATS[DType.FLOAT16].max_finite
# Renderers for records: as a table of a given width, and as JSON.
_TABLED: Mapping[
    type, tuple[Callable[[Layout, Any, int], Sequence[RenderableType]], Callable[[Any], Document]]
] = {
    Explanation: (report_explanation, describe_explanation),
    GradientErrors: (report_gradient_errors, describe_gradient_errors),
    GradientRanges: (report_gradient_ranges, describe_gradient_ranges),
    LayerErrors: (report_layer_errors, describe_layer_errors),
}
_NO_TITLES = ("", "")
# A quantity, and its amount in each precision.
Measure = tuple[str, Mapping[DType, int]]


def to_text(record: object) -> str:
    """A record in up to five lines."""
    return spell_card(_card(record))


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


def sentences_of(headline: Headline, result: str) -> Sequence[tuple[str, str]]:
    """A headline in labelled sentences: verdict, risk, gains, next call. `result`: the name of the
    result in that call.
    """
    return (*headline.rows(), ("next", _call(headline.aim, result)))


def with_call(headline: Headline) -> Headline:
    """The headline with its next step as a Python call on `result`."""
    call = _call(headline.aim, "result")
    return headline.with_step(NextCommand(call, headline.aim.move.value))


def card_of(what: str, headline: Headline, measures: Iterable[Measure]) -> Card:
    """A headline of a kind of result, with the share of each precision in some quantities."""
    shown = [(name, amounts) for name, amounts in measures if any(amounts.values())]
    return Card(
        title=f"{what}: {headline.title}",
        sentences=sentences_of(headline, "plan" if what == "Plan" else "result"),
        titles=("share of", *_NO_TITLES),
        rows=[(name, _spell_shares(amounts)) for name, amounts in shown],
        stacks=[amounts for _, amounts in shown],
        standing=headline.standing,
    )


def _spell_shares(amounts: Mapping[DType, int]) -> str:
    total = sum(amounts.values())
    return ", ".join(
        f"{dtype} {spell_share(amount / total)}" for dtype, amount in amounts.items() if amount
    )


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
def _(explanation: Explanation) -> Card:
    nodes, shown = explanation.nodes, explanation.chains
    title = f"{explanation.known} {explanation.word}: {spell_count(len(nodes), 'node')}"
    rows = [
        (
            f"caused by {node.name}" if depth else node.name,
            node.op,
            str(node.precision.compute),
            node.rule,
            node.because,
        )
        for chain in shown[:_MOST_CHAINS]
        for depth, node in enumerate(chain)
    ]
    sentences = [(_CHANGE, f"{keyword}: {effect}") for keyword, effect in explanation.changes]
    if len(shown) > _MOST_CHAINS:
        sentences.append(("", f"the first {_MOST_CHAINS} are shown; print it for all by reason"))
    titles = ("node", "operator", "in", "rule", "why")
    return Card(title=title, sentences=sentences, titles=titles, rows=rows)


@_card.register
def _(comparison: Comparison) -> Card:
    headline = head_comparison(*comparison.names, comparison, find_machine())
    outputs = sorted(comparison.outputs, key=_badness, reverse=True)[:_WORST]
    layers = sorted(comparison.layers, key=_badness, reverse=True)[: _WORST - len(outputs)]
    rows = [(f"output {value.name}", _error_of(value)) for value in outputs]
    rows += [(value.name, _error_of(value)) for value in layers]
    budget = comparison.verdict.budget
    shares = [share_of(value.relative_l2.estimate, budget) for value in (*outputs, *layers)]
    titles = ("", "relative L2 error", "of the bound")
    return Card(
        title=f"Comparison: {headline.title}",
        sentences=sentences_of(headline, "result"),
        titles=titles,
        rows=rows,
        shares=shares,
        standing=headline.standing,
    )


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
            f"magnitude {spell_number(values[0].largest)}, of {clean(values[0].value)}; {passing}"
        )
    call = "mezzo.convert(source, result, data=data)"
    last = ("cannot tell", clean(ranges.unknown[0])) if ranges.unknown else ("next", call)
    about = f"Ranges of {spell_count(len(values), 'value')} on {clean(spell_data(ranges.data))}"
    rows = [(value.value, spell_number(value.largest)) for value in values[:_WORST]]
    shares = [share_of(value.largest, _FP16_LIMIT) for value in values[:_WORST]]
    titles = ("value", "largest", "against f16's 65504")
    return Card(
        title=about, sentences=(("largest", most), last), titles=titles, rows=rows, shares=shares
    )


@_card.register
def _(sensitivity: Sensitivity) -> Card:
    units, all_low, worst = sensitivity.units, "nothing was run", "no unit was measured"
    if units:
        worst = (
            f"{clean(units[0].name)}, error {spell_error(units[0].error)} when it alone runs low"
        )
    if not math.isnan(sensitivity.all_low):
        all_low = f"error {spell_error(sensitivity.all_low)}"
    about = (
        f"Sensitivity of {spell_count(len(units), 'unit')} in"
        f" {spell_count(sensitivity.runs, 'run')} on {clean(spell_data(sensitivity.data))}"
    )
    rows = [(unit.name, spell_error(unit.error)) for unit in units[:_WORST]]
    shares = [share_of(unit.error, sensitivity.all_low) for unit in units[:_WORST]]
    titles = ("unit", "error alone", "of all low")
    sentences = ("largest", worst), ("all low", all_low)
    return Card(title=about, sentences=sentences, titles=titles, rows=rows, shares=shares)


@_card.register
def _(timings: Timings) -> Card:
    first, *others = [f"{clean(file.name)} {spell_file(file)}" for file in timings.files]
    about = (
        f"Timings of {spell_count(len(timings.files), 'file')} on {timings.target},"
        f" {clean(timings.runtime)}"
    )
    sentences = ("first", first), ("others", join_some(others, _NAMED) or "none")
    medians = [0.0 if file.times is None else file.times.median_ns for file in timings.files]
    rows = [(file.name, spell_file(file)) for file in timings.files]
    shares = [share_of(median, max(medians)) for median in medians]
    titles = ("file", "median time, speed", "of the longest")
    return Card(title=about, sentences=sentences, titles=titles, rows=rows, shares=shares)


@_card.register
def _(table: Calibrations) -> Card:
    about = (
        f"Calibrations to {table.to} for {table.target}, judged on"
        f" {clean(spell_data(table.judged))}"
    )
    best = (
        "no calibrator's outputs are within the bound"
        if table.best is None
        else f"{clean(table.best.calibrator)}, {spell_row(table.best)}"
    )
    others = [
        f"{clean(row.calibrator)}: {spell_row(row)}" for row in table.rows if row is not table.best
    ]
    sentences = ("best", best), ("others", join_some(others, _NAMED) or "none")
    errors = [row.verdict.error.estimate for row in table.rows]
    rows = [(row.calibrator, spell_row(row)) for row in table.rows]
    shares = [share_of(error, max(errors)) for error in errors]
    titles = ("calibrator", "", "error, of the largest")
    return Card(title=about, sentences=sentences, titles=titles, rows=rows, shares=shares)


@_card.register
def _(errors: LayerErrors) -> Card:
    worst, layers = errors.outputs[0], worst_layers(errors)
    text = f"error {spell_error(worst.error)} from FP64, {spell_error(worst.eager)} is FP32's own"
    where = "; ".join(describe_where(errors)) or "no layer was looked at"
    title = f"LayerErrors: output {clean(worst.name)}, {text}"
    outputs = errors.outputs[:_WORST]
    rows = [(f"output {entry.name}", "", *spell_errors(entry)) for entry in outputs]
    rows += [(name_of(entry, errors), spell_layer(entry), *spell_errors(entry)) for entry in layers]
    every = [*(entry.error for entry in outputs), *(entry.error for entry in layers)]
    shares = [share_of(error, max(every)) for error in every]
    titles = ("", "runs in", *ERRORS, "of the largest")
    sentences = ("where", where), _PRINT
    return Card(title=title, sentences=sentences, titles=titles, rows=rows, shares=shares)


@_card.register
def _(errors: GradientErrors) -> Card:
    worst, weights = errors.worst, worst_weights(errors)
    largest_error = f"worst {clean(worst.name)} {spell_error(worst.error)}"
    first = f"GradientErrors: {describe_all(errors)}, {largest_error}"
    sentences = ("advice", "; ".join(describe_scale(errors.ranges))), _PRINT
    rows = [(entry.name, *spell_weight(entry, errors)) for entry in weights]
    largest = max(entry.error for entry in weights)
    shares = [share_of(entry.error, largest) for entry in weights]
    titles = ("weight", *TITLES, "of the largest")
    return Card(title=first, sentences=sentences, titles=titles, rows=rows, shares=shares)


@_card.register
def _(ranges: GradientRanges) -> Card:
    first, *rest = tell_ranges(ranges)
    title = f"GradientRanges: {describe_about(ranges)}"
    sentences = [("ranges", first), *(("", line) for line in rest[:1]), _PRINT]
    rows = [
        (name_of_gradient(entry), *spell_gradient(entry, ranges))
        for entry in worst_gradients(ranges)
    ]
    titles = ("gradient of", *RANGE_TITLES)
    return Card(title=title, sentences=sentences, titles=titles, rows=rows)


def _call(aim: Aim, result: str) -> str:
    """The next step as a Python call. `result`: what the result at hand is called."""
    words = "".join(f", {name}={_spell_value(value)}" for name, value in aim.words.items())
    match aim.move:
        case Move.WRITE:
            return "mezzo.convert(source, result, plan=plan)"
        case Move.JUDGE:
            return 'result.compare("random")  # or data of your own'
        case Move.JUDGE_ON_OWN_DATA:
            return "result.compare(data)"
        case Move.RETARGET if not aim.words:
            return "mezzo.convert(source, result, target=...)  # 'mezzo targets' lists which gain"
        case Move.RETARGET:
            return f"mezzo.convert(source, result{words})"
        case Move.TUNE | Move.LOOSEN:
            return f"mezzo.tune(source, result, data=data{words or ', max_error=1e-3'})"
        case Move.MEASURE:
            return "mezzo.ranges(source, data)"
        case Move.REPLAN:
            return f"mezzo.convert({result}.model{words}, data=data)"
        case Move.EXPLAIN:
            return f"{result}.explain({aim.words.get('node', 'NODE')!r})"


def _spell_value(value: str) -> str:
    """A number as it is, other words in quotes."""
    try:
        float(value)
    except ValueError:
        return repr(value)
    return value


def _badness(deviation: Deviation) -> float:
    error = deviation.relative_l2.estimate
    return math.inf if deviation.fault or math.isnan(error) else error


def _error_of(deviation: Deviation) -> str:
    return deviation.fault or spell_error(deviation.relative_l2.estimate)
