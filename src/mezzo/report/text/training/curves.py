"""The report of trainings: where each way ends over seeds, and how that stands beside the baseline."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.report.layout.layout import Layout, blank, heading, indented
from mezzo.report.layout.names import clean, join_some, shorten
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.documents import Document, document
from mezzo.report.records.sections import number

if TYPE_CHECKING:
    from mezzo.numerics.statistics.training_curves import Curve, Curves

MOST_WAYS = 64
LONGEST_NAME = 32
COLUMNS = ("end", "of seeds", "from the baseline", "90 % interval", "equal within")
_MOST_POINTS = 400
_NAMED = 3


def report_curves(layout: Layout, networks: "Sequence[Curves]", test: str) -> list[RenderableType]:
    """Lay out every way on every network, and what the verdicts rest on."""
    parts: list[RenderableType] = []
    for one in networks:
        table = layout.make_table("way", *COLUMNS, "", right=COLUMNS)
        for way, *cells in rows_of_curves(one):
            table.add_row(layout.spell_name(way, LONGEST_NAME), *cells)
        parts += [*([blank()] if parts else []), heading(title_of(one)), table]
        more = len(one.curves) - MOST_WAYS
        parts += [indented(f"and {spell_count(more, 'way')} more")] if more > 0 else []
        parts += [Text(line) for line in tell_unknown(one)]
    return [*parts, Text(f"judged {test}", style="dim")]


def tell_curves(one: "Curves") -> tuple[str, ...]:
    """What was trained, and which ways end how, in three lines."""
    seeds = {seed for curve in one.curves for seed in curve.ends}
    beside = next(curve.way for curve in one.curves if curve.judged.ending.is_reference)
    by_ending: dict[str, list[str]] = {}
    for curve in one.curves:
        if not curve.judged.ending.is_reference:
            by_ending.setdefault(curve.judged.ending.value, []).append(shorten(clean(curve.way), LONGEST_NAME))
    endings = "; ".join(f"{ending}: {join_some(ways, _NAMED)}" for ending, ways in by_ending.items())
    about = f"Curves of {spell_count(len(one.curves), 'way')} over {spell_count(len(seeds), 'seed')}, {title_of(one)}"
    beside = shorten(clean(beside), LONGEST_NAME)
    return about, endings or "nothing stands beside the baseline", f"the baseline is {beside}; print it for a table"


def rows_of_curves(one: "Curves") -> list[tuple[str, ...]]:
    """A row for each way: its name, what `COLUMNS` names, and how it ends."""
    return [(curve.way, *spell_curve(curve), curve.judged.ending.value) for curve in one.curves[:MOST_WAYS]]


def title_of(one: "Curves") -> str:
    """What was trained, and what an end is."""
    last = "the last loss" if one.window == 1 else f"the mean of the last {one.window} losses"
    what = f"each end is {'the loss held out' if one.is_held_out else last}"
    return f"{shorten(clean(one.network), LONGEST_NAME)}: {what}" if one.network else what


def mean_end(curve: "Curve") -> float:
    """The mean of a way's ends; NaN where one is not finite."""
    ends = list(curve.ends.values())
    return statistics.fmean(ends) if all(map(math.isfinite, ends)) else math.nan


def spell_curve(curve: "Curve") -> tuple[str, ...]:
    """What `COLUMNS` names."""
    ends, judged = list(curve.ends.values()), curve.judged
    over = f"{min(ends):.4g} to {max(ends):.4g}" if len(ends) > 1 else "1 seed"
    interval = "-" if judged.low is None or judged.high is None else f"{judged.low:+.2g} .. {judged.high:+.2g}"
    margin = "-" if judged.margin is None else f"{judged.margin:.2g}"
    difference = "-" if judged.difference is None else f"{judged.difference:+.2g}"
    return f"{mean_end(curve):.4g}", over, difference, interval, margin


def tell_unknown(one: "Curves") -> list[str]:
    """Why nothing can be told of some ways."""
    return [
        f"cannot tell of {shorten(clean(curve.way), LONGEST_NAME)}: {curve.judged.because}"
        for curve in one.curves[:MOST_WAYS]
        if curve.judged.because
    ]


def thinned(count: int) -> Sequence[int]:
    """The places of at most so many points as are drawn, the first and the last among them."""
    if count <= _MOST_POINTS:
        return range(count)
    return [round(at * (count - 1) / (_MOST_POINTS - 1)) for at in range(_MOST_POINTS)]


def describe_curves(networks: "Sequence[Curves]", test: str) -> Document:
    """Tell curves as data."""
    return document("curves", {"test": test, "networks": [_describe(one) for one in networks]})


def _describe(one: "Curves") -> dict[str, object]:
    return {
        "network": one.network,
        "ends_are": "held out" if one.is_held_out else "last losses",
        "window": one.window,
        "ways": [_describe_curve(curve) for curve in one.curves],
    }


def _describe_curve(curve: "Curve") -> dict[str, object]:
    places = thinned(len(curve.steps))
    judged = curve.judged
    figures = {"difference": judged.difference, "low": judged.low, "high": judged.high, "margin": judged.margin}
    return {
        "way": curve.way,
        "ending": curve.judged.ending.value,
        "because": curve.judged.because,
        **{name: None if figure is None else number(figure) for name, figure in figures.items()},
        "ends": [{"seed": seed, "loss": number(loss)} for seed, loss in curve.ends.items()],
        "steps": [curve.steps[at] for at in places],
        "mean": _numbers(curve.mean, places),
        "lowest": _numbers(curve.lowest, places),
        "highest": _numbers(curve.highest, places),
    }


def _numbers(values: Sequence[float], places: Iterable[int]) -> list[float | str]:
    return [number(values[at]) for at in places]
