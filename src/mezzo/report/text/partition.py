"""Report of a target's fused kernels in a model: units by pattern, largest units, the rest."""

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.plugins.discovery import targets
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import blank, heading, indented, make_table, section
from mezzo.report.records.fused_units import Extracted, FusedUnit, Split
from mezzo.report.records.groups import NamedNode

_LARGEST = 5
_OPS_SHOWN = 6
_ALONE_SHOWN = 10


def report_partition(layout: Layout, model: str, split: Split) -> list[RenderableType]:
    """The kernels that a target fuses."""
    fused = sum(len(unit.nodes) for unit in split.units)
    kernels = spell_count(len(split.units) + len(split.alone), "kernel")
    counted = f"{spell_count(fused + len(split.alone), 'operator')} in {kernels}"
    folded = (
        f", {spell_count(len(split.folded), 'operator')} folded before it runs"
        if split.folded
        else ""
    )
    substitute = (
        f", which fuses as {clean(split.fuses_as)}"
        if split.fuses_as not in (None, split.target)
        else ""
    )
    parts: list[RenderableType] = [
        heading(f"{clean(model)} on {clean(split.target)}"),
        indented(f"{counted}{folded}{substitute}", style="dim"),
    ]
    if split.fuses_as is None:
        *others, last = _known_targets()
        known = f"{', '.join(others)} and {last} have rows"
        return [*parts, blank(), indented(f"nothing is known of what it fuses; {known}")]
    if split.units:
        parts += section("units by pattern", _patterns(layout, split.units))
        parts += section("the largest", _units(layout, _largest(split.units)))
    if split.alone:
        parts += section("alone", indented(_spell_ops(split.alone, _ALONE_SHOWN)))
    return parts


def _known_targets() -> list[str]:
    """The runtimes of model files whose fusions are known."""
    return [
        name
        for name, target in sorted(targets().items())
        if target.fusions and target.runtime is not None and target.runtime.module is not None
    ]


def report_nodes(layout: Layout, split: Split) -> list[RenderableType]:
    """Every operator with its unit."""
    table = make_table(
        layout,
        "unit",
        "pattern",
        "operator",
        "node",
        right=("unit",),
        fixed=("pattern", "operator"),
    )
    for unit in split.units:
        for node in unit.nodes:
            table.add_row(
                str(unit.number), unit.pattern, clean(node.op), layout.spell_name(node.name)
            )
    for nodes, status in ((split.alone, "alone"), (split.folded, "folded")):
        for node in nodes:
            table.add_row("", status, clean(node.op), layout.spell_name(node.name))
    return section("every operator", table)


def report_extracted(part: Extracted, what: str) -> list[RenderableType]:
    """The file and the ports of an extracted part."""
    nodes = f"{spell_count(part.nodes, 'node')}, {format_size(part.size_bytes)}"
    ports = (
        f"reads {join_some(part.inputs, _OPS_SHOWN) or 'nothing'}; gives"
        f" {join_some(part.outputs, _OPS_SHOWN)}"
    )
    return [heading(f"{clean(what)} -> {clean(str(part.path))}"), indented(nodes), indented(ports)]


def _patterns(layout: Layout, units: Sequence[FusedUnit]) -> RenderableType:
    titles = ("pattern", "units", "operators", "as", "who says so")
    table = make_table(layout, *titles, right=titles[1:3], fixed=titles[:1])
    by_pattern: dict[str, list[FusedUnit]] = {}
    for unit in units:
        by_pattern.setdefault(unit.pattern, []).append(unit)
    for pattern, matching in sorted(by_pattern.items(), key=lambda row: (-len(row[1]), row[0])):
        shapes = Counter(tuple(node.op for node in unit.nodes) for unit in matching)
        ops = join_some(shapes.most_common(1)[0][0], _OPS_SHOWN)
        operators = sum(len(unit.nodes) for unit in matching)
        source = f"{matching[0].source} ({matching[0].since})"
        table.add_row(Text(pattern, style="cyan"), str(len(matching)), str(operators), ops, source)
    return table


def _units(layout: Layout, units: Sequence[FusedUnit]) -> RenderableType:
    table = make_table(
        layout, "unit", "pattern", "operators", "from", "to", right=("unit", "operators")
    )
    for unit in units:
        ends = [layout.spell_name(node.name) for node in (unit.nodes[0], unit.nodes[-1])]
        table.add_row(str(unit.number), unit.pattern, str(len(unit.nodes)), *ends)
    return table


def _largest(units: Sequence[FusedUnit]) -> list[FusedUnit]:
    return sorted(units, key=lambda unit: (-len(unit.nodes), unit.number))[:_LARGEST]


def _spell_ops(nodes: Sequence[NamedNode], most: int) -> str:
    counted = Counter(node.op for node in nodes)
    rows = sorted(counted.items(), key=lambda row: (-row[1], row[0]))
    return join_some((f"{count} {op}" for op, count in rows), most)
