"""Report of a sensitivity analysis: the output error of each unit, measured alone or as a share."""

import math
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_count, spell_data, spell_error, spell_share
from mezzo.report.layout.parts import blank, heading, indented, make_table, report_unknown

if TYPE_CHECKING:
    from mezzo.numerics.measures import Sensitivity, UnitError

_NODES_SHOWN = 3


def report_sensitivity(
    layout: Layout, model: str, sensitivity: "Sensitivity", limit: int
) -> list[RenderableType]:
    """The `limit` units with the largest errors, with shares of the sum of squared errors."""
    runs = f"{spell_count(sensitivity.runs, 'run')} on {spell_data(sensitivity.data)}"
    all_low = (
        f"with everything low that may be, the output error is {spell_error(sensitivity.all_low)}"
    )
    parts: list[RenderableType] = [
        heading(f"sensitivity of {clean(model)}"), Text(clean(runs), style="dim"), blank(),
        Text(all_low), blank(),
    ]  # fmt: skip
    if math.isnan(sensitivity.all_low):
        return [*parts[:-2], *report_unknown(sensitivity.unknown)]
    parts += [*report_unknown(sensitivity.unknown), blank()] if sensitivity.unknown else []
    units = sensitivity.units
    if not units:
        return [*parts[:-2], Text("no node may run low, so none costs anything")]
    top_units = units[:limit]
    suffix = (
        f", the {len(top_units)} most costly"
        if len(top_units) < len(units)
        else ", the most costly first"
    )
    holds_several = any(_spell_nodes(unit) for unit in top_units)
    is_shared = any(not unit.is_measured for unit in top_units)
    columns = ("unit", "error", *(("may be",) if is_shared else ()), "of all", "found by",
               *(("nodes",) if holds_several else ()))  # fmt: skip
    table = make_table(layout, *columns, right=("error", "may be", "of all"), fixed=("found by",))
    total = sum(unit.error**2 for unit in units if math.isfinite(unit.error))
    for unit in top_units:
        table.add_row(
            Text(layout.spell_name(unit.name), style="red" if unit.fault else "cyan"),
            spell_error(unit.error), *((_spell_reach(unit),) if is_shared else ()),
            _spell_part(unit, total), _spell_source(unit),
            *((_spell_nodes(unit),) if holds_several else ()),
        )  # fmt: skip
    faults = [
        indented(f"{clean(unit.name)}: {clean(unit.fault)}", style="red")
        for unit in top_units
        if unit.fault
    ]
    parts += [heading(f"{spell_count(len(units), 'unit')}{suffix}"), table, *faults]
    if is_shared:
        caption = (
            "a share was not measured alone: it is a unit's part of what several cost when they ran"
            " low together"
        )
        parts.append(indented(caption, style="dim"))
    if len(top_units) < len(units):
        rest = [unit.error**2 for unit in units[limit:] if math.isfinite(unit.error)]
        part = f", {spell_share(sum(rest) / total)} of the squared error" if total else ""
        parts.append(
            indented(
                f"and {spell_count(len(units) - len(top_units), 'unit')} more{part}", style="dim"
            )
        )
    return parts


def _spell_part(unit: "UnitError", total: float) -> str:
    """The unit's share of the sum of squared errors."""
    if not math.isfinite(unit.error):
        return "breaks"
    return spell_share(unit.error**2 / total) if total else "0 %"


def _spell_source(unit: "UnitError") -> str:
    """The error's source: a run of the unit alone, or of several units."""
    return "a run alone" if unit.is_measured else f"share of {unit.together}"


def _spell_reach(unit: "UnitError") -> str:
    """The interval of an error that was not measured alone."""
    return (
        ""
        if unit.low is None or unit.high is None
        else f"{spell_error(unit.low)} .. {spell_error(unit.high)}"
    )


def _spell_nodes(unit: "UnitError") -> str:
    """The nodes of a unit, unless its name is the only one."""
    return "" if unit.nodes == (unit.name,) else join_some(unit.nodes, _NODES_SHOWN)
