"""Report of ranges: values past a format's limits, values near them, and underflow."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import (
    spell_count,
    spell_data,
    spell_error,
    spell_number,
    spell_share,
)
from mezzo.report.layout.parts import (
    blank,
    heading,
    indented,
    make_table,
    report_lines,
    report_unknown,
    section,
)

if TYPE_CHECKING:
    from mezzo.numerics.measures import FormatRange, Ranges, ValueRange

# Largest finite number, and the smallest magnitude that overflows. Source: OCP FP8 1.0.
# 464 itself rounds to even, which is 448.
_SMALL_FORMATS = {
    DType.FLOAT8E4M3FN: (
        448.0,
        math.nextafter(464.0, math.inf),
    ),
    DType.FLOAT8E5M2: (57344.0, 61440.0),
}
# Values within this factor of the limit are reported, as other data may exceed it.
_NEAR = 4.0
_LONGEST_NAME = 24


def report_ranges(
    layout: Layout, model: str, ranges: "Ranges", format: DType, limit: int
) -> list[RenderableType]:
    """A format's effect on a model's values, the worst first, `limit` values per section."""
    beyond = sorted(
        (v for v in ranges.values if _is_beyond(v, format)),
        key=lambda v: (_share(v, format).beyond, v.largest),
    )
    near = sorted((v for v in ranges.values if _is_near(v, format)), key=lambda v: v.largest)
    vanishing = sorted(
        (v for v in ranges.values if _vanishes(v, format)),
        key=lambda v: (_share(v, format).vanishing, _share(v, format).below_normal),
    )
    limits = _limits(format)
    top = "" if limits is None else f", up to {spell_number(limits[0])}"
    about = f"{spell_count(len(ranges.values), 'value')} on {spell_data(ranges.data)}"
    parts: list[RenderableType] = [
        heading(f"ranges of {clean(model)}"),
        Text(clean(about), style="dim"),
    ]
    sections: tuple[tuple[Sequence[ValueRange], str, Callable[..., RenderableType]], ...] = (
        (beyond[::-1], f"pass {format}'s range{top}", _table_of_large),
        (near[::-1], f"come within a factor {_NEAR:g} of {format}'s limit", _table_of_large),
        (vanishing[::-1], f"vanish in part in {format}", _table_of_small),
    )
    for values, description, table in sections:
        if values:
            suffix = f", {limit} shown" if len(values) > limit else ""
            title = (
                f"{spell_count(len(values), 'value')} {_agree(description, len(values))}{suffix}"
            )
            parts += section(title, table(layout, values[:limit], format))
    if ranges.unknown:
        parts += [blank(), *report_unknown(ranges.unknown)]
    elif ranges.values and not (beyond or near or vanishing):
        has_odd = any(value.has_nan or value.has_infinity for value in ranges.values)
        subject = "every finite number" if has_odd else "every value"
        parts += [
            blank(),
            Text(f"{subject} fits {format}: none passes its range, comes near it or vanishes"),
        ]
        top_value = max(ranges.values, key=lambda value: value.largest)
        summary = (
            f"the largest magnitude is {spell_number(top_value.largest)}, of"
            f" {clean(top_value.value)} in {clean(top_value.largest_at)}"
        )
        parts.append(indented(summary, style="dim"))
    return [*parts, *_report_odd(ranges.values, limit), *_report_skipped(ranges.skipped, limit)]


def _agree(phrase: str, number: int) -> str:
    """The phrase with its verb in the singular for one value."""
    verb, rest = phrase.split(" ", 1)
    singular = {"pass": "passes", "come": "comes", "vanish": "vanishes"}
    return f"{singular[verb] if number == 1 else verb} {rest}"


def _table_of_large(
    layout: Layout, values: "Sequence[ValueRange]", format: DType
) -> RenderableType:
    numbers = ("minimum", "maximum", "beyond")
    table = make_table(layout, "value", "made by", *numbers, "largest in", right=numbers)
    for value in values:
        table.add_row(
            Text(layout.spell_name(value.value, _LONGEST_NAME), style="cyan"),
            layout.spell_name(_maker(value), _LONGEST_NAME), spell_number(value.minimum),
            spell_number(value.maximum), spell_share(_share(value, format).beyond),
            clean(value.largest_at),
        )  # fmt: skip
    return table


def _table_of_small(
    layout: Layout, values: "Sequence[ValueRange]", format: DType
) -> RenderableType:
    numbers = ("mean", "to zero", "below normal", "rounding")
    table = make_table(layout, "value", "made by", *numbers, right=numbers)
    for value in values:
        share = _share(value, format)
        table.add_row(
            Text(layout.spell_name(value.value, _LONGEST_NAME), style="cyan"),
            layout.spell_name(_maker(value), _LONGEST_NAME), spell_number(value.mean_absolute),
            spell_share(share.vanishing), spell_share(share.below_normal),
            spell_error(share.rounding),
        )  # fmt: skip
    return table


def _maker(value: "ValueRange") -> str:
    """The value's node, and its operator unless the node's name has it."""
    name = clean(value.node)
    return name if clean(value.op) in name else f"{name} ({clean(value.op)})"


def _report_odd(values: "Sequence[ValueRange]", limit: int) -> list[RenderableType]:
    """Values that have NaN or infinities before any rounding."""
    not_finite = [value for value in values if value.has_nan or value.has_infinity]
    if not not_finite:
        return []
    title = f"{spell_count(len(not_finite), 'value')} not finite before any rounding"
    lines = [f"{value.value} ({_maker(value)}): {_spell_odd(value)}" for value in not_finite]
    return section(title, *report_lines(lines, limit))


def _spell_odd(value: "ValueRange") -> str:
    return " and ".join(["NaN"] * value.has_nan + ["infinities"] * value.has_infinity)


def _report_skipped(skipped: Sequence[str], limit: int) -> list[RenderableType]:
    return section("not measured", *report_lines(skipped, limit)) if skipped else []


def _share(value: "ValueRange", format: DType) -> "FormatRange":
    range = value.formats.get(format)
    assert range is not None, f"{value.value} was not measured for {format}"
    return range


def _limits(format: DType) -> tuple[float, float] | None:
    """A format's largest finite number and smallest overflowing magnitude; None if unknown."""
    if format in FORMATS:
        return FORMATS[format].max_finite, FORMATS[format].overflow_from
    return _SMALL_FORMATS.get(format)


def _is_beyond(value: "ValueRange", format: DType) -> bool:
    limits = _limits(format)
    return _share(value, format).beyond > 0 or (limits is not None and value.largest >= limits[1])


def _is_near(value: "ValueRange", format: DType) -> bool:
    limits = _limits(format)
    return (
        limits is not None and not _is_beyond(value, format) and value.largest * _NEAR >= limits[0]
    )


def _vanishes(value: "ValueRange", format: DType) -> bool:
    return _share(value, format).vanishing > 0
