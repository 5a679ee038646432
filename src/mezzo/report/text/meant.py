"""The nodes that a word refers to: a table by reason for several, a line for one."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.contracts.plans import PlannedNode
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.parts import blank, dtype_style, heading, make_table

_NAMES_SHOWN = 3
# Kinds of names (api.explain.Known) that the report words differently.
_NODE, _MADE, _READ, _PART = "node", "value made", "value read", "part"
_KNOWN = {_MADE: "value", _READ: "value"}
_READ_BY = "stored, or of no floats, and read by "


def report_meant(
    layout: Layout, word: str, known: str, nodes: Sequence[PlannedNode]
) -> list[RenderableType]:
    """Several nodes by rule, the largest group first. `known` is the word's kind of name."""
    groups: dict[tuple[str, str], list[PlannedNode]] = {}
    for node in nodes:
        groups.setdefault((str(node.precision.compute), node.rule), []).append(node)
    table = make_table(
        layout,
        "in",
        "rule",
        "nodes",
        "why, and which",
        right=("nodes",),
        fixed=("in", "rule", "nodes"),
    )
    for (dtype, rule), members in sorted(
        groups.items(), key=lambda group: (-len(group[1]), group[0])
    ):
        style = dtype_style(members[0].precision.compute)
        reasons = dict.fromkeys(clean(node.because) for node in members)
        why = next(iter(reasons)) + (
            f" ({len(reasons) - 1} more reasons)" if len(reasons) > 2 else ""
        )
        table.add_row(Text(dtype, style=style), clean(rule), str(len(members)), why)
        table.add_row(
            "", "", "", Text(join_some([node.name for node in members], _NAMES_SHOWN), style="dim")
        )
    link = _READ_BY if known == _READ else ""
    return [
        heading(f"{_KNOWN.get(known, known)} {clean(word)}: {link}{len(nodes)} nodes"),
        blank(),
        table,
    ]


def report_origin(word: str, known: str, node: PlannedNode) -> list[RenderableType]:
    """The node that another name refers to; empty if the word is its own name."""
    if known == _NODE:
        return []
    link = {_MADE: "made by ", _READ: _READ_BY, _PART: "replaced by "}.get(known, "")
    return [
        Text(f"{_KNOWN.get(known, known)} {clean(word)}: {link}{clean(node.name)}", style="dim"),
        blank(),
    ]
