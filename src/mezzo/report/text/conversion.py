"""Report of a conversion or a plan: counts, high nodes by rule, measurements and notes."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.contracts.options.request import usual_settings
from mezzo.contracts.plans import DATA_RULES, Plan, Quantize
from mezzo.plugins.discovery import version_word
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_or, join_some, spell_precision
from mezzo.report.layout.numbers import spell_count, spell_data
from mezzo.report.layout.parts import (
    Command,
    blank,
    heading,
    indented,
    make_table,
    report_unknown,
    section,
)
from mezzo.report.records.groups import (
    HighNodeGroup,
    count_before,
    count_casts,
    count_precisions,
    count_weights,
    group_high_nodes,
    is_operator,
    spell_apart,
)
from mezzo.report.records.summary import Summary
from mezzo.report.text.measured.comparison import report_notes, report_outputs, report_verdict
from mezzo.report.text.weights import report_storage

if TYPE_CHECKING:
    from mezzo.numerics.measures import Measured

_NAMES_SHOWN = 3
_REASONS_SHOWN = 2
# Settings at their defaults, which are not printed.
_UNSAID = {(name, usual) for name, usual in usual_settings().items() if usual is not None}


def report_conversion(
    layout: Layout,
    source: str,
    result: str,
    plan: Plan,
    summary: Summary,
    measured: "Measured | None" = None,
) -> list[RenderableType]:
    """A conversion with its evaluation on data, if there was any; without next steps."""
    title = heading(f"{clean(source)} -> {clean(result)}")
    parts = [title, settings_line(plan), blank(), report_counts(layout, plan, summary)]
    parts += [*report_storage(layout, plan), *report_high_nodes(layout, plan)]
    notes = summary.notes
    if measured is not None:
        parts += _report_measured(layout, plan, measured)
        notes = (*notes, *measured.all_notes)
    return parts + report_notes(notes)


def report_counts(layout: Layout, plan: Plan, summary: Summary) -> RenderableType:
    """Numbers of a model before and after."""
    table = make_table(layout, "", "before", "after", right=("before", "after"))
    before = count_before(plan)
    for dtype, count in count_precisions(plan).items():
        table.add_row(f"nodes in {dtype}", str(before[dtype]), str(count))
    for word, count in count_weights(plan).items():
        table.add_row(f"weights in {word}", "0", str(count))
    table.add_row("casts added", "", str(summary.casts))
    if plan.line.quantized is not None:
        table.add_row("tensors quantized", "", str(_count_quantized(plan)))
    table.add_row(
        "size", format_size(summary.size_before_bytes), format_size(summary.size_after_bytes)
    )
    word = version_word(plan.dialect)
    table.add_row(word, _format_version(summary.opset_before), _format_version(summary.opset_after))
    return table


def _count_quantized(plan: Plan) -> int:
    """The number of tensors with a Quantize and Dequantize pair, or stored as integers."""
    return len({edit.value for edit in plan.edits if isinstance(edit, Quantize)})


def _report_measured(layout: Layout, plan: Plan, measured: "Measured") -> list[RenderableType]:
    """The nodes that the data protected, and the verdict on the result's outputs."""
    parts: list[RenderableType] = []
    if measured.data is not None:
        groups = [group for group in group_high_nodes(plan) if group.rule in DATA_RULES]
        nodes = sum(len(group.nodes) for group in groups)
        values = 0 if measured.ranges is None else len(measured.ranges.values)
        summary = (
            f"protects {spell_count(nodes, 'node')}: see"
            f" {' and '.join(clean(group.rule) for group in groups)} above"
        )
        unknown = () if measured.ranges is None else measured.ranges.unknown
        lows = join_or(plan.lows)
        if not nodes:
            summary = f"found nothing that {lows} cannot hold"
        if not plan.lows:
            summary = f"was measured, and no node runs below {plan.high}"
        elif unknown:
            summary = (
                f"cannot tell all that {lows} cannot hold"
                if nodes
                else f"cannot tell what {lows} can hold"
            )
        measured_values = f" in {spell_count(values, 'value')}" if values else ""
        data = indented(clean(spell_data(measured.data)), style="dim")
        parts += section("what the data showed", data)
        parts += [indented(f"the data {summary}{measured_values if not nodes else ''}")]
        parts += report_unknown(unknown)
    if measured.comparison is not None:
        parts += section("the check")
        if measured.comparison.data != measured.data:
            parts += [indented(clean(spell_data(measured.comparison.data)), style="dim")]
        parts += [*report_verdict(measured.comparison), blank()]
        parts += report_outputs(layout, measured.comparison)
    return parts


def report_plan(layout: Layout, source: str, plan: Plan) -> list[RenderableType]:
    """A plan's decisions, without next steps."""
    table = make_table(layout, "", "planned", right=("planned",))
    for dtype, count in count_precisions(plan).items():
        table.add_row(f"nodes in {dtype}", str(count))
    for word, count in count_weights(plan).items():
        table.add_row(f"weights in {word}", str(count))
    table.add_row("casts added", str(count_casts(plan)))
    if plan.line.quantized is not None:
        table.add_row("tensors quantized", str(_count_quantized(plan)))
    if plan.version is not None:
        table.add_row(version_word(plan.dialect), f"rises to {plan.version}")
    parts: list[RenderableType] = [
        heading(f"plan of {clean(source)}"),
        settings_line(plan),
        blank(),
        table,
    ]
    parts += [*report_storage(layout, plan), *report_high_nodes(layout, plan)]
    return [*parts, *report_notes(plan.notes)]


def report_nodes(layout: Layout, plan: Plan) -> list[RenderableType]:
    """All nodes of a plan: name, operator, precision and rule."""
    table = make_table(layout, "node", "operator", "in", "rule", fixed=("in",))
    for node in plan.nodes:
        op = node.op if is_operator(node) else node.kind
        table.add_row(
            clean(node.name), clean(op), spell_precision(node.precision), clean(node.rule)
        )
    return section("every node", table)


def report_next_steps(
    steps: Sequence[tuple[str, str]], title: str = "try next"
) -> list[RenderableType]:
    """Suggested commands with their effects; commands are never wrapped, for copying."""
    lines = section(title)
    for command, effect in steps:
        lines.append(Command(command))
        lines.append(indented(effect, style="dim", depth=6))
    return lines


def report_aside(line: str, title: str) -> list[RenderableType]:
    """Advice that is not a command."""
    return section(title, indented(line))


def _format_version(version: int | None) -> str:
    return "none" if version is None else str(version)


def settings_line(plan: Plan) -> Text:
    """The settings that differ from the defaults, enough to make the same plan again."""
    settings = [
        (name, _plain(value))
        for name, value in plan.settings
        if value and (name, value) not in _UNSAID
    ]
    return Text(
        ", ".join(f"{name.replace('_', '-')} {clean(value)}" for name, value in settings),
        style="dim",
    )


def _plain(value: str) -> str:
    """A setting, and if it is a list, without brackets and quotes."""
    return " ".join(json.loads(value)) if value.startswith("[") else value


def report_high_nodes(layout: Layout, plan: Plan) -> list[RenderableType]:
    """The operators that stay high, by rule."""
    groups = group_high_nodes(plan)
    total = sum(count_precisions(plan).values())
    if not plan.lows:
        return []
    if not groups:
        text = f"no node stays in {plan.high}" if total else spell_apart(plan)
        return [blank(), Text(text)]
    count = sum(len(group.nodes) for group in groups)
    verb = "stays" if count == 1 else "stay"
    table = make_table(layout, "rule", "nodes", "why, and which", right=("nodes",), fixed=("rule",))
    for group in groups:
        table.add_row(
            Text(clean(group.rule), style="cyan"), str(len(group.nodes)), _explain_group(group)
        )
    return section(f"{count} of {total} nodes {verb} in {plan.high}", table)


def _explain_group(group: HighNodeGroup) -> Stack:
    """One reason and a few names if all nodes share it, else a few nodes with their reasons."""
    if len(group.reasons) == 1:
        names = join_some((node.name for node in group.nodes), _NAMES_SHOWN)
        return Stack(Text(clean(group.reasons[0])), Text(names, style="dim"))
    lines = [
        Text.assemble((f"{clean(node.name)}: ", "dim"), clean(node.because))
        for node in group.nodes[:_REASONS_SHOWN]
    ]
    if len(group.nodes) > _REASONS_SHOWN:
        lines.append(Text(f"and {len(group.nodes) - _REASONS_SHOWN} more", style="dim"))
    return Stack(*lines)
