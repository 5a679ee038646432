"""Report of gradient errors: all gradients together, the worst weights, and losses in FP16."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, shorten_path
from mezzo.report.layout.numbers import spell_count, spell_error, spell_share
from mezzo.report.layout.parts import heading, make_table, section
from mezzo.report.records.documents import Document, document, number
from mezzo.report.text.training.gradient_ranges import ranges_section, tell_ranges
from mezzo.report.text.training.layer_errors import ERRORS

if TYPE_CHECKING:
    from mezzo.numerics.metrics.gradient_errors import GradientError, GradientErrors

MOST_WEIGHTS = 16
TITLES = (*ERRORS, "largest", "lost in FP16")
_SHORTEST_NAME = 24
_FIGURES = 60


def report_gradient_errors(
    layout: Layout, errors: "GradientErrors", width: int
) -> list[RenderableType]:
    """The weights with the largest gradient errors, in model order, and totals."""
    weights = worst_weights(errors)
    count = spell_count(len(errors.weights), "weight")
    title = count if len(weights) == len(errors.weights) else f"the worst {len(weights)} of {count}"
    table = make_table(layout, "weight", *TITLES, right=TITLES)
    for weight in weights:
        name = shorten_path(clean(weight.name), max(width - _FIGURES, _SHORTEST_NAME))
        table.add_row(name, *spell_weight(weight, errors))
    parts: list[RenderableType] = [
        heading(f"gradients over {spell_count(errors.batches, 'batch')}, relative L2 error"),
        Text(describe_all(errors)),
    ]
    parts += section(title, table, *map(Text, tell_ranges(errors.ranges)))
    return [*parts, *(Text(f"note: {clean(note)}") for note in errors.notes)]


def worst_weights(errors: "GradientErrors") -> "Sequence[GradientError]":
    """The weights with the largest errors, in model order."""
    positions = sorted(
        range(len(errors.weights)), key=lambda position: -errors.weights[position].error
    )[:MOST_WEIGHTS]
    return [errors.weights[position] for position in sorted(positions)]


def spell_weight(weight: "GradientError", errors: "GradientErrors") -> tuple[str, ...]:
    """The cells of `TITLES` for a weight."""
    weight_range = next(
        candidate for candidate in errors.ranges.weights if candidate.name == weight.name
    )
    cells = spell_error(weight.error), spell_error(weight.beside_fp32), spell_error(weight.eager)
    return *cells, f"{weight_range.largest:.1e}", spell_share(weight_range.below_smallest)


def describe_all(errors: "GradientErrors") -> str:
    """The error of all gradients together."""
    return (
        f"all together {spell_error(errors.error)} from FP64; {spell_error(errors.eager)} is"
        " FP32's own"
    )


def describe_gradient_errors(errors: "GradientErrors") -> Document:
    """Gradient errors as JSON data."""
    return document(
        "gradient-errors",
        {
            "batches": errors.batches,
            "error": number(errors.error),
            "fp32_error": number(errors.eager),
            "weights": [
                {
                    "name": weight.name,
                    "error": number(weight.error),
                    "fp32_error": number(weight.eager),
                    "error_beside_fp32": number(weight.beside_fp32),
                }
                for weight in errors.weights
            ],
            "ranges": ranges_section(errors.ranges),
            "notes": list(errors.notes),
        },
    )
