"""Report of the difference of two plans, as text and as JSON data."""

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some, spell_precision
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import blank, dtype_style, heading, indented, make_table, section
from mezzo.report.records.account_pair import AccountPair
from mezzo.report.records.documents import Document, document, encode_fields
from mezzo.report.records.groups import count_precisions
from mezzo.report.views.plandiff import (
    Change,
    NodeDifference,
    PlanDifference,
    SettingDifference,
)

_NONE = "-"
_NAMES_SHOWN = 2


def report_difference(
    layout: Layout,
    names: tuple[str, str],
    plans: tuple[Plan, Plan],
    difference: PlanDifference,
    limit: int,
) -> list[RenderableType]:
    """The differences, at most `limit` nodes of each kind."""
    parts: list[RenderableType] = [
        heading(f"{clean(names[0])} <-> {clean(names[1])}"),
        _verdict(difference),
        blank(),
    ]
    if difference.is_same:
        return parts[:-1]
    parts.append(_counts(layout, plans, difference))
    if difference.settings:
        parts += section("settings", _settings_table(layout, difference.settings))
    parts += _report_precisions(layout, difference.nodes, limit)
    parts += _report_reasons(layout, difference.nodes, limit)
    for change, title in ((Change.ONLY_FIRST, names[0]), (Change.ONLY_SECOND, names[1])):
        unmatched = [node.name for node in difference.nodes if node.change is change]
        parts += _report_names(
            f"{spell_count(len(unmatched), 'node')} only in {clean(title)}", unmatched, limit
        )
    if difference.limits:
        limits = _settings_table(layout, difference.limits)
        parts += section("constants stored within bounds", limits)
    parts += _report_parameters(layout, difference.parameters, limit)
    if difference.casts is not None:
        for title, casts in zip(
            names, (difference.casts.only_first, difference.casts.only_second), strict=True
        ):
            cast_names = [f"{value} to {dtype}" for value, dtype in casts]
            parts += _report_names(
                f"{spell_count(len(cast_names), 'cast')} only in {clean(title)}", cast_names, limit
            )
    return parts


def report_pair(layout: Layout, pair: AccountPair) -> list[RenderableType]:
    """Two runs side by side: plans, errors and times."""
    verdict = (
        Text(f"different: {spell_count(pair.differing, 'operator')} in another precision")
        if pair.differing
        else Text.assemble(("the same", "bold green"), ": every operator's precision")
    )
    table = make_table(layout, "", "first", "second", right=("first", "second"))
    for row in pair.rows:
        table.add_row(*row)
    title = heading(f"{clean(pair.names[0])} <-> {clean(pair.names[1])}")
    return [title, verdict, blank(), table, *(indented(clean(note)) for note in pair.notes)]


def _verdict(difference: PlanDifference) -> Text:
    """One sentence: whether they differ, and in what."""
    if difference.is_same:
        return Text.assemble(
            ("the same", "bold green"), ": every node, reason, setting and parameter"
        )
    changes = Counter(node.change for node in difference.nodes)
    parts = [] if difference.is_same_model else ["they are of models whose structures differ"]
    if count := changes[Change.PRECISION]:
        parts.append(f"{spell_count(count, 'node')} in another precision")
    if count := changes[Change.REASON]:
        parts.append(f"{spell_count(count, 'node')} for another reason")
    if count := changes[Change.ONLY_FIRST] + changes[Change.ONLY_SECOND]:
        parts.append(f"{spell_count(count, 'node')} in one of them only")
    if difference.settings:
        parts.append(spell_count(len(difference.settings), "setting"))
    if difference.limits:
        parts.append(spell_count(len(difference.limits), "stored bound"))
    if difference.parameters:
        parts.append(spell_count(len(difference.parameters), "parameter"))
    if difference.casts is not None and (
        count := len(difference.casts.only_first) + len(difference.casts.only_second)
    ):
        parts.append(spell_count(count, "cast"))
    return Text.assemble(("different", "bold yellow"), f": {', '.join(parts)}")


def _counts(layout: Layout, plans: tuple[Plan, Plan], difference: PlanDifference) -> RenderableType:
    table = make_table(layout, "", "first", "second", right=("first", "second"))
    counts = [count_precisions(plan) for plan in plans]
    for dtype in dict.fromkeys(dtype for by_dtype in counts for dtype in by_dtype):
        table.add_row(f"nodes in {dtype}", *(str(by_dtype.get(dtype, 0)) for by_dtype in counts))
    if difference.casts is not None:
        table.add_row("casts added", str(difference.casts.first), str(difference.casts.second))
    return table


def _settings_table(layout: Layout, settings: Sequence[SettingDifference]) -> RenderableType:
    table = make_table(layout, "", "first", "second")
    for setting in settings:
        values = (
            _NONE if value is None else clean(value) for value in (setting.first, setting.second)
        )
        table.add_row(Text(clean(setting.name), style="cyan"), *values)
    return table


def _report_parameters(
    layout: Layout, parameters: Sequence[SettingDifference], limit: int
) -> list[RenderableType]:
    """Scales, dynamic quantization, corrections and blocks that differ."""
    if not parameters:
        return []
    table = _settings_table(layout, parameters[:limit])
    return [*section("parameters of integers", table), *_rest(len(parameters), limit)]


def _report_precisions(
    layout: Layout, nodes: Sequence[NodeDifference], limit: int
) -> list[RenderableType]:
    """Nodes with different precisions, with both plans' rules."""
    changed = [node for node in nodes if node.change is Change.PRECISION]
    if not changed:
        return []
    table = make_table(layout, "node", "operator", "first", "second", fixed=("operator",))
    for node in changed[:limit]:
        assert node.first is not None and node.second is not None, "both plans have it"
        op = node.first.op if node.first.kind == "op" else node.first.kind
        table.add_row(
            Text(clean(node.name), style="cyan"),
            clean(op),
            _decision(node.first),
            _decision(node.second),
        )
    title = f"{spell_count(len(changed), 'node')} in another precision"
    return section(title, table, *_rest(len(changed), limit))


def _decision(node: PlannedNode) -> Text:
    style = dtype_style(node.precision.compute)
    return Text.assemble((spell_precision(node.precision), style), f" {clean(node.rule)}")


def _report_reasons(
    layout: Layout, nodes: Sequence[NodeDifference], limit: int
) -> list[RenderableType]:
    """Nodes with equal precision and different reasons, counted by pair of rules."""
    changed = [node for node in nodes if node.change is Change.REASON]
    if not changed:
        return []
    by_rules: dict[tuple[str, str], list[str]] = {}
    for node in changed:
        assert node.first is not None and node.second is not None, "both plans have it"
        by_rules.setdefault((node.first.rule, node.second.rule), []).append(node.name)
    table = make_table(
        layout, "first", "second", "nodes", "which", right=("nodes",), fixed=("first", "second")
    )
    order = sorted(by_rules.items(), key=lambda item: (-len(item[1]), item[0]))
    for (first, second), names in order[:limit]:
        table.add_row(
            clean(first),
            clean(second),
            str(len(names)),
            Text(join_some(names, _NAMES_SHOWN), style="dim"),
        )
    title = f"{spell_count(len(changed), 'node')} for another reason"
    return section(title, table, *_rest(len(order), limit))


def _report_names(title: str, names: Sequence[str], limit: int) -> list[RenderableType]:
    if not names:
        return []
    lines = [indented(clean(name)) for name in names[:limit]]
    return section(title, *lines, *_rest(len(names), limit))


def _rest(count: int, limit: int) -> list[RenderableType]:
    return (
        [indented(f"and {count - limit} more; --top shows them", style="dim")]
        if count > limit
        else []
    )


def describe_difference(names: tuple[str, str], difference: PlanDifference) -> Document:
    """The difference as JSON data."""
    content = {"plans": list(names), "is_same": difference.is_same, **encode_fields(difference)}
    return document("plan-diff", content)
