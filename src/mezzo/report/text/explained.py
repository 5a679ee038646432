"""Precisions of a program's nodes with reasons, by module and source line, as text and HTML."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from mezzo.contracts.plans import PlannedNode
from mezzo.ir.nodes import SourceLine
from mezzo.report.layout.names import clean, shorten, spell_precision
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import heading, indented, section
from mezzo.report.notebook.fragments import Card, draw_card
from mezzo.report.text.training.layer_errors import spell_line

_LONGEST_NAME, _SHORTEST_RULE = 28, 16
_ANY = 1000
_GAPS = 2 + 2 + 2 + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A node with its chain of causes, itself first, and its module and source line.

    `run` says how it runs if its precision does not show that.
    """

    chain: tuple[PlannedNode, ...]
    module: str
    line: SourceLine | None
    run: str = ""

    @property
    def node(self) -> PlannedNode:
        return self.chain[0]

    @property
    def root(self) -> PlannedNode:
        """The node at the end of the chain."""
        return self.chain[-1]


def report_explained(word: str, nodes: Sequence[Explained], width: int) -> list[RenderableType]:
    """One node with its chain, or several nodes by module with a legend of rules."""
    if len(nodes) == 1:
        return list(_chain(nodes[0]))
    by_module: dict[str, list[Explained]] = {}
    for entry in nodes:
        by_module.setdefault(entry.module, []).append(entry)
    names = min(_LONGEST_NAME, max(len(_name(entry)) for entry in nodes))
    lines = max(len(spell_line(entry.line)) for entry in nodes)
    dtypes = max(len(_precision(entry.node)) for entry in nodes)
    rules = min(
        max(len(_rule(entry, word)) for entry in nodes),
        max(width - names - dtypes - lines - _GAPS, _SHORTEST_RULE),
    )
    parts: list[RenderableType] = [heading(f"{clean(word)}: {_count(nodes)}")]
    for module, members in by_module.items():
        parts.append(Text(clean(module) or "the model", style="bold"))
        for entry in members:
            name, rule = shorten(_name(entry), names), _rule(entry, word, rules)
            cells = (
                f"{name:<{names}}  {_precision(entry.node):<{dtypes}}  {rule:<{rules}} "
                f" {spell_line(entry.line)}"
            )
            parts.append(Text(f"  {cells}".rstrip()))
    return [*parts, *section("rules", *map(indented, _rules(nodes)))]


def draw_explained(word: str, nodes: Sequence[Explained]) -> str:
    """The same as an HTML fragment."""
    rows = [
        (
            entry.node.name,
            _precision(entry.node),
            _rule(entry),
            _because(entry),
            spell_line(entry.line),
        )
        for entry in nodes
    ]
    titles = ("node", "in", "rule", "because", "line")
    return draw_card(Card(title=f"{word}: {_count(nodes)}", titles=titles, rows=rows))


def _chain(entry: Explained) -> Iterator[RenderableType]:
    for depth, node in enumerate(entry.chain):
        text = (
            f"{clean(node.name)}  {clean(node.op)}  {_precision(node)}  {node.rule}:"
            f" {clean(node.because)}"
        )
        yield indented(text, depth=2 * depth) if depth else Text(text)
    if entry.run:
        yield indented(f"it {entry.run}")
    if entry.line is not None:
        code = f"  {clean(entry.line.code)}" if entry.line.code else ""
        yield indented(f"{spell_line(entry.line)}{code}", style="dim")


def _because(entry: Explained) -> str:
    """A node's reason, and how it runs."""
    return f"{entry.node.because}; it {entry.run}" if entry.run else entry.node.because


def _count(nodes: Sequence[Explained]) -> str:
    counts = Counter(str(entry.node.precision.compute) for entry in nodes)
    return (
        f"{spell_count(len(nodes), 'node')},"
        f" {', '.join(f'{count} in {dtype}' for dtype, count in counts.items())}"
    )


def _precision(node: PlannedNode) -> str:
    return spell_precision(node.precision)


def _name(entry: Explained) -> str:
    """A node's name relative to its module."""
    return clean(_below(entry.node.name, entry.module))


def _below(name: str, module: str) -> str:
    """A name relative to a module, if it is inside."""
    is_inside = name.startswith((f"{module}/", f"{module}.")) if module else False
    return name[len(module) + 1 :] if is_inside else name


def _rule(entry: Explained, word: str = "", most: int = _ANY) -> str:
    """A node's rule and its root's name, whose middle is cut if there is not enough room."""
    rule = entry.node.rule
    if entry.root is entry.node:
        return rule
    root_name = clean(_below(_below(entry.root.name, entry.module), word))
    return f"{rule} {shorten(root_name, most - len(rule) - 1)}"


def _rules(nodes: Sequence[Explained]) -> Iterator[str]:
    """Lines with the reason of each rule, from the first node with that rule."""
    reasons: dict[str, dict[str, PlannedNode]] = {}
    for entry in nodes:
        reasons.setdefault(entry.root.rule, {}).setdefault(entry.root.because, entry.root)
    for run in dict.fromkeys(entry.run for entry in nodes if entry.run):
        count = sum(entry.run == run for entry in nodes)
        yield f"{spell_count(count, 'node')}: each {run}"
    for rule, by_reason in reasons.items():
        because, node = next(iter(by_reason.items()))
        about = f", of {clean(node.name)}; each has its own" if len(by_reason) > 1 else ""
        yield f"{rule}{about}: {clean(because)}"
