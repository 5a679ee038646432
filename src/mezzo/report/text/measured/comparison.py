"""Report of a comparison: verdict, output errors, and the layer where the error begins."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.numerics.metrics import figures
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import (
    spell_agreement,
    spell_cosine,
    spell_count,
    spell_data,
    spell_error,
    spell_interval,
    spell_mean,
    spell_share,
    spell_steps,
)
from mezzo.report.layout.parts import blank, heading, indented, make_table, report_unknown, section
from mezzo.report.records.trust import where_error_begins

if TYPE_CHECKING:
    from mezzo.numerics.measures import Comparison, Deviation, MetricResult

_WORST = 10
# Words and style of each ruling.
RULINGS = {
    "same": ("the same", "bold green"), "different": ("not the same", "bold red"),
    "undecided": ("undecided", "bold yellow"), "cannot tell": ("cannot tell", "bold yellow"),
}  # fmt: skip
_LONGEST_NAME = 32
_NAMES_SHOWN = 3
_NONE = "-"
_RUNS = {
    "emulated": "emulated: every result is rounded as the types say",
    "native": "run natively: the runtime decides what it computes in",
}


def report_comparison(
    layout: Layout, reference: str, model: str, comparison: "Comparison"
) -> list[RenderableType]:
    """The verdict of a comparison, with outputs, metric and layers."""
    how = f"{spell_data(comparison.data)}; {_RUNS.get(comparison.run, comparison.run)}"
    parts: list[RenderableType] = [
        heading(f"{clean(reference)} <-> {clean(model)}"),
        Text(clean(how), style="dim"),
        blank(),
        *report_verdict(comparison),
        blank(),
        *report_outputs(layout, comparison),
        *_report_metric(comparison.metric),
        *_report_layers(layout, comparison),
    ]
    return [*parts, *report_notes(comparison.notes)]


def report_verdict(comparison: "Comparison") -> list[RenderableType]:
    """The verdict in one sentence, then the numbers behind it."""
    verdict = comparison.verdict
    word, style = RULINGS[verdict.ruling.value]
    is_faulty = any(output.fault for output in comparison.outputs)
    measured = ""
    if not is_faulty and math.isfinite(verdict.error.estimate):
        measured = (
            f"{100 * verdict.error.confidence:g} % interval {spell_interval(verdict.error)}; "
        )
    limits = (
        f"budget {spell_error(verdict.budget)}, {verdict.budget_source}; noise of FP32"
        f" {spell_error(verdict.noise)}"
    )
    if math.isnan(verdict.error.estimate) and not is_faulty:
        suffix = (
            "; the figures below are of what is finite, and judge nothing"
            if comparison.outputs
            else ""
        )
        limits = f"no output could be judged{suffix}"
    return [
        Text.assemble((word, style), f": {clean(verdict.because)}"),
        indented(clean(measured + limits), style="dim"),
        *(
            report_unknown(verdict.unknown)
            if len(verdict.unknown) > 1 or word != "cannot tell"
            else ()
        ),
    ]


def report_outputs(layout: Layout, comparison: "Comparison") -> list[RenderableType]:
    """Errors of the outputs, and faults that no error measures."""
    outputs = comparison.outputs
    if not outputs:
        return [
            Text(
                "no output computes floats" if comparison.data.samples else "no output was computed"
            )
        ]
    has_classes = any(output.top1 is not None for output in outputs)
    percent = f"{100 * outputs[0].relative_l2.confidence:g} % interval"
    numbers = ("relative L2", percent, *_titles())
    table = make_table(
        layout, "output", *numbers, *(("top-1",) if has_classes else ()), right=(*numbers, "top-1")
    )
    for output in outputs:
        classes = "" if output.top1 is None else spell_share(output.top1.estimate)
        cells = _spell_figures(output)
        cells.insert(1, _NONE if output.fault else spell_interval(output.relative_l2))
        table.add_row(_spell_name(layout, output), *cells, *((classes,) if has_classes else ()))
    more = [
        f"{clean(output.name)}: top-{k} agreement {spell_agreement(share)}"
        for output in outputs
        for k, share in ((1, output.top1), (output.k, output.topk))
        if k is not None and share is not None
    ]
    more += [
        f"{clean(output.name)}: sample {output.worst_at} differs most, by"
        f" {spell_error(output.worst)}"
        for output in outputs
        if output.worst and output.samples > 1 and output.steps is None
    ]
    stepped = [(output, output.steps) for output in outputs if output.steps is not None]
    more += [f"{clean(output.name)}: {spell_steps(steps)}" for output, steps in stepped]
    more += [line for output in outputs for line in _spell_next_tokens(output)]
    more += [f"{clean(output.name)}: {clean(output.worry)}" for output in outputs if output.worry]
    return [
        table,
        *(indented(line) for line in more),
        *_report_faults(outputs),
        *_report_budgets(outputs),
    ]


def _spell_next_tokens(output: "Deviation") -> list[str]:
    """Divergence, agreement and perplexity of a language model's output; empty for others."""
    judged, name = output.next_tokens, clean(output.name)
    if judged is None:
        return []
    count = f"{spell_count(judged.tokens, 'token')} in {spell_count(judged.rows, 'row')} of text"
    lines = [
        f"{name}: KL divergence {spell_mean(judged.kl)} nats per token; the likeliest next token is"
        f" the same in {spell_share(judged.agreement.value)} of {count}"
    ]
    if judged.perplexity is not None and judged.reference_perplexity is not None:
        lines.append(
            f"{name}: perplexity {spell_mean(judged.reference_perplexity)} ->"
            f" {spell_mean(judged.perplexity)}"
        )
    return lines


def _report_budgets(outputs: "Sequence[Deviation]") -> list[RenderableType]:
    """The budgets of the outputs, if they differ."""
    by_budget: dict[tuple[float, str], list[str]] = {}
    for output in outputs:
        if output.budget is not None and output.budget_source is not None:
            by_budget.setdefault((output.budget, output.budget_source), []).append(output.name)
    if len(by_budget) < 2:
        return []
    lines = [f"{join_some(names, _NAMES_SHOWN)}: budget {spell_error(budget)}, {source}"
             for (budget, source), names in by_budget.items()]  # fmt: skip
    if len(lines) > _WORST:
        lines[_WORST:] = [f"and {len(lines) - _WORST} more budgets"]
    return [indented(clean(line), style="dim") for line in lines]


def _report_faults(deviations: "Sequence[Deviation]") -> list[RenderableType]:
    return [
        indented(f"{clean(deviation.name)}: {clean(deviation.fault)}", style="red")
        for deviation in deviations
        if deviation.fault
    ]


def _report_metric(metric: "MetricResult | None") -> list[RenderableType]:
    if metric is None:
        return []
    values = f"{metric.reference:.6g} -> {metric.candidate:.6g}"
    change = (
        f"{abs(metric.drop):.3g} {'worse' if metric.drop > 0 else 'better'}"
        if metric.drop
        else "no change"
    )
    return [blank(), Text.assemble((clean(metric.name), "bold"), f": {values}, {change}")]


def _report_layers(layout: Layout, comparison: "Comparison") -> list[RenderableType]:
    """The layers with the largest errors, and the first layer in graph order past the budget."""
    layers = comparison.layers
    if not layers:
        return []
    begins = where_error_begins(comparison)
    worst = sorted(layers, key=_badness, reverse=True)[:_WORST]
    numbers = ("relative L2", *_titles())
    table = make_table(layout, "layer", *numbers, right=numbers)
    for layer in worst:
        table.add_row(_spell_name(layout, layer), *_spell_figures(layer))
    title = (
        f"the worst {len(worst)} of {spell_count(len(layers), 'layer')}"
        if len(worst) < len(layers)
        else "layers"
    )
    parts = section(f"{title}, the worst first", table, *_report_faults(worst))
    if begins is not None:
        before = layers.index(begins)
        why = begins.fault or f"error {spell_error(begins.relative_l2.estimate)}"
        sentence = f"the error begins at {clean(begins.name)}: {clean(why)}"
        if before:
            sentence += f"; the {spell_count(before, 'layer')} before it keep the budget"
        parts += [blank(), Text(sentence)]
    return parts


def _badness(layer: "Deviation") -> tuple[bool, float]:
    error = layer.relative_l2.estimate
    return layer.fault is not None, math.inf if math.isnan(error) else error


def _spell_name(layout: Layout, deviation: "Deviation") -> Text:
    return Text(
        layout.spell_name(deviation.name, _LONGEST_NAME), style="red" if deviation.fault else "cyan"
    )


def _titled_figures() -> dict[str, str]:
    """Titles by name, of the figures that have a column."""
    return {figure.name: figure.title for figure in figures.FIGURES if figure.title is not None}


def _titles() -> tuple[str, ...]:
    """The columns of a table after the error."""
    return ("cosine", "SQNR dB", "ulp", *_titled_figures().values())


def _spell_figures(deviation: "Deviation") -> list[str]:
    """The error and the cells of `_titles`; dashes for a faulty value."""
    if deviation.fault:
        return [_NONE] * (1 + len(_titles()))
    ulps = f"{deviation.largest_ulp:.3g} {deviation.ulp_format}"
    more = [f"{deviation.figures.get(name, math.nan):.4g}" for name in _titled_figures()]
    return [
        spell_error(deviation.relative_l2.estimate),
        spell_cosine(deviation.cosine),
        f"{deviation.sqnr_db:.1f}",
        ulps,
        *more,
    ]


def report_notes(notes: Iterable[str]) -> list[RenderableType]:
    """Notes for the reader, each once."""
    lines = [indented(clean(note)) for note in dict.fromkeys(notes)]
    return section("notes", *lines) if lines else []
