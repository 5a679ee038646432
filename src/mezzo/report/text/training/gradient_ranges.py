"""The report of the ranges of gradients: which lose numbers in a format, and the scale of the loss that keeps them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.report.layout.layout import Layout, blank, heading
from mezzo.report.layout.names import clean, shorten_path
from mezzo.report.layout.numbers import spell_count, spell_share
from mezzo.report.records.documents import Document, document
from mezzo.report.records.sections import number

if TYPE_CHECKING:
    from mezzo.numerics.ranges.gradient_ranges import GradientRange, GradientRanges

MOST_GRADIENTS = 24
RANGE_TITLES = ("largest", "below normal", "below smallest", "overflows", "kept from")
_SHORTEST_NAME = 24
_FIGURES = 70
_ODD = "not finite in FP64 itself, which no scale mends"


def report_gradient_ranges(layout: Layout, ranges: "GradientRanges", width: int) -> list[RenderableType]:
    """Lay out the gradients that lose most, activations before weights, and the scale that keeps them."""
    shown = worst_gradients(ranges)
    title = spell_count(len(ranges.every), "gradient")
    if len(shown) < len(ranges.every):
        title = f"the worst {len(shown)} of {title}"
    table = layout.make_table("gradient of", *RANGE_TITLES, right=RANGE_TITLES)
    for one in shown:
        name = shorten_path(name_of_gradient(one), max(width - _FIGURES, _SHORTEST_NAME))
        table.add_row(name, *spell_gradient(one, ranges))
    parts: list[RenderableType] = [heading(tell_about(ranges)), blank(), heading(title), table]
    return [*parts, *(Text(line) for line in tell_ranges(ranges))]


def worst_gradients(ranges: "GradientRanges") -> "Sequence[GradientRange]":
    """Those that lose most at the scale of the loss, in their order."""
    every = ranges.every
    places = sorted(range(len(every)), key=lambda place: every[place].badness(), reverse=True)[:MOST_GRADIENTS]
    return [every[place] for place in sorted(places)]


def name_of_gradient(one: "GradientRange") -> str:
    """What has the gradient: a weight by its name, what a module hands on or a function makes in it by the module's."""
    if one.is_weight:
        return clean(one.name)
    if one.op:
        return f"what {clean(one.op)} makes" + (f" in {clean(one.name)}" if one.name else "")
    return f"what {clean(one.name)} hands on" if one.name else "the output"


def spell_gradient(one: "GradientRange", ranges: "GradientRanges") -> tuple[str, ...]:
    """What `RANGE_TITLES` names."""
    power = one.keeps_from(ranges.dtype)
    shares = (spell_share(share) for share in (one.below_normal, one.below_smallest, one.beyond))
    return f"{one.largest:.1e}", *shares, "-" if power is None else f"2^{power}"


def tell_about(ranges: "GradientRanges") -> str:
    """What was looked at."""
    batches = spell_count(ranges.batches, "batch") if ranges.batches == 1 else f"{ranges.batches} batches"
    return f"gradients over {batches} in {ranges.dtype}, the loss times {spell_scale(ranges.scale)}"


def tell_ranges(ranges: "GradientRanges") -> list[str]:
    """What is lost, what scale of the loss would keep it, and what no scale mends."""
    said = [*_lost(ranges), *tell_scale(ranges)]
    odd = [one for one in ranges.every if not one.is_finite]
    if odd:
        said.append(f"{spell_count(len(odd), 'gradient')}, {name_of_gradient(odd[0])} first: {_ODD}")
    return [*said, *(f"note: {clean(note)}" for note in ranges.notes)]


def _lost(ranges: "GradientRanges") -> list[str]:
    smaller = [one for one in ranges.every if one.below_smallest]
    larger = [one for one in ranges.every if one.beyond]
    said = []
    if smaller:
        most = max(smaller, key=lambda one: one.below_smallest)
        said.append(
            f"{spell_count(len(smaller), 'gradient')} {'has' if len(smaller) == 1 else 'have'} numbers that "
            f"{ranges.dtype} has none for: {spell_share(most.below_smallest)} of {name_of_gradient(most)}"
        )
    if larger:
        most = max(larger, key=lambda one: one.beyond)
        said.append(
            f"{spell_count(len(larger), 'gradient')} {'overflows' if len(larger) == 1 else 'overflow'}: "
            f"{spell_share(most.beyond)} of {name_of_gradient(most)}"
        )
    return said


def tell_scale(ranges: "GradientRanges") -> list[str]:
    """The scale of the loss that keeps the gradients, and how near it comes to losing and to overflowing."""
    least, most, dtype = ranges.least_power, ranges.most_power, ranges.dtype
    if ranges.is_kept:
        return [f"{dtype} keeps them with the loss times {spell_scale(ranges.scale)}"]
    told = f"scale the loss by {spell_scale(ranges.proposed)} (torch.amp.GradScaler)"
    if least <= most:
        return [told, f"2^{least} to 2^{most} keep all but 0.1 % of each, with room for twice the largest"]
    hard = max(ranges.every, key=lambda one: -math.inf if (power := one.keeps_from(dtype)) is None else power)
    large = max(ranges.every, key=lambda one: one.largest)
    return [
        f"{told}, and keep {name_of_gradient(hard)} in FP32",
        f"{dtype} keeps that from 2^{least} on alone, and {name_of_gradient(large)} has no room above 2^{most}",
    ]


def spell_scale(scale: float) -> str:
    """A scale as a power of two where it is one: "2^16"."""
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 and exponent != 1 else f"{scale:g}"


def describe_gradient_ranges(ranges: "GradientRanges") -> Document:
    """Tell ranges as data."""
    return document("gradient-ranges", ranges_section(ranges))


def ranges_section(ranges: "GradientRanges") -> dict[str, object]:
    """Ranges as a part of a document."""
    return {
        "batches": ranges.batches,
        "dtype": str(ranges.dtype),
        "scale": number(ranges.scale),
        "is_kept": ranges.is_kept,
        "proposed_scale": number(ranges.proposed),
        "keeps_from_power": ranges.least_power,
        "overflows_above_power": ranges.most_power,
        "activations": [_describe(one, ranges) for one in ranges.activations],
        "weights": [_describe(one, ranges) for one in ranges.weights],
        "notes": list(ranges.notes),
    }


def _describe(one: "GradientRange", ranges: "GradientRanges") -> dict[str, object]:
    return {
        "name": one.name,
        "op": one.op,
        "count": one.count,
        "largest": number(one.largest),
        "below_normal": number(one.below_normal),
        "below_smallest": number(one.below_smallest),
        "beyond": number(one.beyond),
        "is_finite": one.is_finite,
        "keeps_from_power": one.keeps_from(ranges.dtype),
        "octaves": [list(octave) for octave in one.octaves],
    }
