"""Report of a comparison of calibrators, as text and as JSON data: one row per calibrator."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.machine import Machine
from mezzo.common.sizes import format_size
from mezzo.numerics.measures import Ruling
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import (
    spell_count,
    spell_data,
    spell_error,
    spell_number,
    spell_share,
)
from mezzo.report.layout.parts import blank, heading, indented, make_table
from mezzo.report.records.documents import Document, document, encode, number, read_schema
from mezzo.report.records.sections import describe_versions

if TYPE_CHECKING:
    from mezzo.numerics.calibrations import Calibrations, CalibratorRow, MetricScore

_REFERENCE = "FP32"
_NAMED = 4
_STYLES = {Ruling.DIFFERENT: "red", Ruling.UNDECIDED: "yellow", Ruling.UNKNOWN: "yellow"}
_SHORTEST_S = 1e-3


def calibrations_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document of `quantize-report`."""
    return read_schema("quantize-report")


def report_calibrations(
    layout: Layout, model: str, calibrations: "Calibrations"
) -> list[RenderableType]:
    """The result of each calibrator for a model, and the limits of the evaluation."""
    parts: list[RenderableType] = [
        heading(
            f"{clean(model)} to {calibrations.to} for {calibrations.target}, by each calibrator"
        )
    ]
    judged, time = spell_data(calibrations.judged), _spell_seconds(calibrations.collecting_s)
    parts.append(indented(f"judged on {clean(judged)}; values collected once, in {time}"))
    style = "" if calibrations.is_unseen else "yellow"
    parts += [indented(clean(note), style=style) for note in calibrations.notes]
    parts += [blank(), _report_table(layout, calibrations)]
    parts += [
        indented(f"{clean(row.calibrator)}: {row.verdict.ruling.value}: {row.verdict.because}",
                 style=_STYLES[row.verdict.ruling])
        for row in calibrations.rows if row.verdict.ruling is not Ruling.SAME
    ]  # fmt: skip
    captions = [
        "in int8: products with weights or of two values that run on integers, of all",
        *describe_chance(calibrations),
    ]
    if not any(row.quantized for row in calibrations.rows):
        captions.append("none does here: 'mezzo explain' says of each why")
    return [*parts, blank(), *(indented(line, style="dim") for line in captions)]


def describe_chance(calibrations: "Calibrations") -> list[str]:
    """The resolution of the metrics, and drops that are not statistically significant."""
    samples = calibrations.judged.samples
    metrics_by_line: dict[str, list[str]] = {}
    for name, _ in calibrations.scores:
        scores = [
            (row, score) for row in calibrations.rows for score in row.scores if score.name == name
        ]
        unsure = [clean(row.calibrator) for row, score in scores if score.drop.low <= 0]
        if not unsure:
            continue
        subject = "" if len(unsure) == len(scores) else f" of {join_some(unsure, _NAMED)}"
        data = spell_count(samples, "sample")
        if scores[0][1].is_share:
            data += f" (one is {100 / samples:.2g} points)"
        line = f"on {data} no statistically significant drop{subject}"
        metrics_by_line.setdefault(line, []).append(clean(name))
    return [f"{' and '.join(names)}: {line}" for line, names in metrics_by_line.items()]


def spell_row(row: "CalibratorRow") -> str:
    """One calibrator in a line: "error 0.0109, top-1 98.5 %, 17 of 21 products on integers"."""
    scores = [
        f"{clean(score.name)} {_spell_score(score.value, score.is_share)}" for score in row.scores
    ]
    numbers = ", ".join([f"error {spell_error(row.verdict.error.estimate)}", *scores])
    return f"{numbers}, {row.quantized} of {row.products} products on integers"


def describe_calibrations(model: str, calibrations: "Calibrations", machine: Machine) -> Document:
    """The comparison of calibrators as JSON data."""
    return document(
        "quantize-report",
        {
            "versions": describe_versions(machine),
            "model": model,
            "to": calibrations.to,
            "target": calibrations.target,
            "calibrated": encode(calibrations.calibrated),
            "judged": encode(calibrations.judged),
            "is_unseen": calibrations.is_unseen,
            "collecting_s": number(calibrations.collecting_s),
            "reference": {
                "scores": encode(dict(calibrations.scores)),
                "size_bytes": calibrations.size_bytes,
            },
            "calibrators": [_describe_row(row) for row in calibrations.rows],
            "best": None if calibrations.best is None else calibrations.best.calibrator,
            "memory": None,
            "notes": list(calibrations.notes),
        },
    )


def _report_table(layout: Layout, calibrations: "Calibrations") -> RenderableType:
    """The table of calibrators. Without a metric it has the top-1 agreement with FP32."""
    has_agreement = not calibrations.scores and any(
        row.agreement is not None for row in calibrations.rows
    )
    headers = [title for name, _ in calibrations.scores for title in (clean(name), "drop")]
    headers += ["as FP32"] if has_agreement else []
    right = [*headers, "error", "size", "in int8", "chosen in"]
    table = make_table(layout, "calibrator", *right, right=right, fixed=("calibrator",))
    are_shares = all(score.is_share for row in calibrations.rows for score in row.scores)
    scores = [
        cell for _, value in calibrations.scores for cell in (_spell_score(value, are_shares), "-")
    ]
    blanks = ["-"] if has_agreement else []
    table.add_row(_REFERENCE, *scores, *blanks, "-", format_size(calibrations.size_bytes), "-", "-")
    for row in calibrations.rows:
        verdict = row.verdict
        error = Text(spell_error(verdict.error.estimate), style=_STYLES.get(verdict.ruling, ""))
        cells = [cell for score in row.scores for cell in _spell_score_cells(score)]
        if has_agreement:
            cells.append("-" if row.agreement is None else spell_share(row.agreement.estimate))
        table.add_row(
            Text(layout.spell_name(row.calibrator), style="cyan"), *cells, error,
            format_size(row.size_bytes), f"{row.quantized} of {row.products}",
            _spell_seconds(row.choosing_s),
        )  # fmt: skip
    return table


def _spell_score_cells(score: "MetricScore") -> Sequence[str]:
    drop = score.drop.estimate + 0.0  # no negative zero
    return _spell_score(score.value, score.is_share), (
        f"{100 * drop:.2f}" if score.is_share else spell_number(drop)
    )


def _spell_score(value: float, is_share: bool) -> str:
    return f"{100 * value:.2f} %" if is_share else spell_number(value)


def _spell_seconds(time_s: float) -> str:
    if time_s < _SHORTEST_S:
        return "<1 ms"
    return f"{1e3 * time_s:.0f} ms" if time_s < 1 else f"{time_s:.1f} s"


def _describe_row(row: "CalibratorRow") -> Document:
    verdict = row.verdict
    return {
        "calibrator": row.calibrator,
        "summary": row.summary,
        "scores": [
            {
                "name": score.name,
                "value": number(score.value),
                "drop": encode(score.drop),
            }
            for score in row.scores
        ],
        "ruling": verdict.ruling.value,
        "error": encode(verdict.error),
        "budget": number(verdict.budget),
        "because": verdict.because,
        "agreement": encode(row.agreement),
        "size_bytes": row.size_bytes,
        "quantized": row.quantized,
        "products": row.products,
        "choosing_s": number(row.choosing_s),
    }
