"""Report of gradient ranges: underflow and overflow, and the loss scale that avoids them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, shorten_path
from mezzo.report.layout.numbers import spell_count, spell_share
from mezzo.report.layout.parts import heading, make_table, section
from mezzo.report.records.documents import Document, document, number

if TYPE_CHECKING:
    from mezzo.numerics.ranges.gradient_ranges import GradientRange, GradientRanges

MOST_GRADIENTS = 24
RANGE_TITLES = ("largest", "below normal", "below smallest", "overflows", "kept from")
_SHORTEST_NAME = 24
_FIGURES = 70
_ODD = "not finite in FP64 itself, which no scale mends"


def report_gradient_ranges(
    layout: Layout, ranges: "GradientRanges", width: int
) -> list[RenderableType]:
    """The gradients with the largest losses, activations before weights, and the loss scale."""
    gradients = worst_gradients(ranges)
    title = spell_count(len(ranges.every), "gradient")
    if len(gradients) < len(ranges.every):
        title = f"the worst {len(gradients)} of {title}"
    table = make_table(layout, "gradient of", *RANGE_TITLES, right=RANGE_TITLES)
    for gradient in gradients:
        name = shorten_path(name_of_gradient(gradient), max(width - _FIGURES, _SHORTEST_NAME))
        table.add_row(name, *spell_gradient(gradient, ranges))
    lines = map(Text, tell_ranges(ranges))
    return [heading(describe_about(ranges)), *section(title, table, *lines)]


def worst_gradients(ranges: "GradientRanges") -> "Sequence[GradientRange]":
    """The gradients with the largest losses at the loss scale, in their order."""
    gradients = ranges.every
    positions = sorted(
        range(len(gradients)), key=lambda position: gradients[position].badness(), reverse=True
    )[:MOST_GRADIENTS]
    return [gradients[position] for position in sorted(positions)]


def name_of_gradient(one: "GradientRange") -> str:
    """The name of a gradient: its weight, or the module output or function result in a module."""
    if one.is_weight:
        return clean(one.name)
    if one.op:
        return f"what {clean(one.op)} makes" + (f" in {clean(one.name)}" if one.name else "")
    return f"what {clean(one.name)} hands on" if one.name else "the output"


def spell_gradient(one: "GradientRange", ranges: "GradientRanges") -> tuple[str, ...]:
    """The cells of `RANGE_TITLES` for a gradient."""
    power = one.keeps_from(ranges.dtype)
    shares = (spell_share(share) for share in (one.below_normal, one.below_smallest, one.beyond))
    return f"{one.largest:.1e}", *shares, "-" if power is None else f"2^{power}"


def describe_about(ranges: "GradientRanges") -> str:
    """The data, format and loss scale of the measurement."""
    batches = spell_count(ranges.batches, "batch")
    return f"gradients over {batches} in {ranges.dtype}, the loss times {spell_scale(ranges.scale)}"


def tell_ranges(ranges: "GradientRanges") -> list[str]:
    """Sentences on lost gradients, the loss scale that keeps them, and non-finite gradients."""
    lines = [*_lost(ranges), *describe_scale(ranges)]
    not_finite = [gradient for gradient in ranges.every if not gradient.is_finite]
    if not_finite:
        lines.append(
            f"{spell_count(len(not_finite), 'gradient')}, {name_of_gradient(not_finite[0])} first:"
            f" {_ODD}"
        )
    return [*lines, *(f"note: {clean(note)}" for note in ranges.notes)]


def _lost(ranges: "GradientRanges") -> list[str]:
    gradients, lines = ranges.every, []
    smaller = sum(gradient.below_smallest > 0 for gradient in gradients)
    larger = sum(gradient.beyond > 0 for gradient in gradients)
    if smaller:
        worst = max(gradients, key=lambda gradient: gradient.below_smallest)
        lines.append(
            f"{spell_count(smaller, 'gradient')} {'has' if smaller == 1 else 'have'}"
            f" numbers that {ranges.dtype} has none for: {spell_share(worst.below_smallest)} of"
            f" {name_of_gradient(worst)}"
        )
    if larger:
        worst = max(gradients, key=lambda gradient: gradient.beyond)
        lines.append(
            f"{spell_count(larger, 'gradient')} {'overflows' if larger == 1 else 'overflow'}:"
            f" {spell_share(worst.beyond)} of {name_of_gradient(worst)}"
        )
    return lines


def describe_scale(ranges: "GradientRanges") -> list[str]:
    """The loss scale that keeps the gradients, and its distance to underflow and overflow."""
    least, most, dtype = ranges.least_power, ranges.most_power, ranges.dtype
    if ranges.is_kept:
        return [f"{dtype} keeps them with the loss times {spell_scale(ranges.scale)}"]
    advice = f"scale the loss by {spell_scale(ranges.proposed)} (torch.amp.GradScaler)"
    if least <= most:
        return [
            advice,
            f"2^{least} to 2^{most} keep all but 0.1 % of each, with room for twice the largest",
        ]
    hard = max(
        ranges.every,
        key=lambda gradient: -math.inf if (power := gradient.keeps_from(dtype)) is None else power,
    )
    large = max(ranges.every, key=lambda gradient: gradient.largest)
    return [
        f"{advice}, and keep {name_of_gradient(hard)} in FP32",
        (
            f"{dtype} keeps that from 2^{least} on alone, and {name_of_gradient(large)} has no room"
            f" above 2^{most}"
        ),
    ]


def spell_scale(scale: float) -> str:
    """A loss scale, as a power of two if it is one: "2^16"."""
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 and exponent != 1 else f"{scale:g}"


def describe_gradient_ranges(ranges: "GradientRanges") -> Document:
    """Gradient ranges as JSON data."""
    return document("gradient-ranges", ranges_section(ranges))


def ranges_section(ranges: "GradientRanges") -> dict[str, object]:
    """Gradient ranges as a section of a document."""
    return {
        "batches": ranges.batches,
        "dtype": str(ranges.dtype),
        "scale": number(ranges.scale),
        "is_kept": ranges.is_kept,
        "proposed_scale": number(ranges.proposed),
        "keeps_from_power": ranges.least_power,
        "overflows_above_power": ranges.most_power,
        "activations": [_describe(gradient, ranges) for gradient in ranges.activations],
        "weights": [_describe(gradient, ranges) for gradient in ranges.weights],
        "notes": list(ranges.notes),
    }


def _describe(gradient: "GradientRange", ranges: "GradientRanges") -> dict[str, object]:
    return {
        "name": gradient.name,
        "op": gradient.op,
        "count": gradient.count,
        "largest": number(gradient.largest),
        "below_normal": number(gradient.below_normal),
        "below_smallest": number(gradient.below_smallest),
        "beyond": number(gradient.beyond),
        "is_finite": gradient.is_finite,
        "keeps_from_power": gradient.keeps_from(ranges.dtype),
        "octaves": [list(octave) for octave in gradient.octaves],
    }
