"""Why the nodes of a program run in what they run in, by module and line: as text, and for notebooks."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from mezzo.contracts.plans import PlannedNode
from mezzo.ir.nodes import SourceLine
from mezzo.report.layout.layout import blank, heading, indented
from mezzo.report.layout.names import clean, shorten, spell_precision
from mezzo.report.layout.numbers import spell_count
from mezzo.report.notebook.fragments import fragment
from mezzo.report.text.training.layer_errors import spell_line

_LONGEST_NAME, _SHORTEST_RULE = 28, 16
_ANY = 1000
_GAPS = 2 + 2 + 2 + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A node with the chain of causes behind it, itself first; where it stands in the program, and how it is run where
    that is not told by its precision.
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
        """The node that it goes back to."""
        return self.chain[-1]


def report_explained(word: str, nodes: Sequence[Explained], width: int) -> list[RenderableType]:
    """Lay out nodes: one with its chain, several by module with each rule told once below them."""
    if len(nodes) == 1:
        return list(_chain(nodes[0]))
    by_module: dict[str, list[Explained]] = {}
    for one in nodes:
        by_module.setdefault(one.module, []).append(one)
    names = min(_LONGEST_NAME, max(len(_name(one)) for one in nodes))
    lines = max(len(spell_line(one.line)) for one in nodes)
    dtypes = max(len(_precision(one.node)) for one in nodes)
    rules = min(
        max(len(_rule(one, word)) for one in nodes), max(width - names - dtypes - lines - _GAPS, _SHORTEST_RULE)
    )
    parts: list[RenderableType] = [heading(f"{clean(word)}: {_count(nodes)}")]
    for module, several in by_module.items():
        parts.append(Text(clean(module) or "the model", style="bold"))
        for one in several:
            name, rule = shorten(_name(one), names), _rule(one, word, rules)
            cells = f"{name:<{names}}  {_precision(one.node):<{dtypes}}  {rule:<{rules}}  {spell_line(one.line)}"
            parts.append(Text(f"  {cells}".rstrip()))
    return [*parts, blank(), heading("rules"), *(indented(line) for line in _rules(nodes))]


def draw_explained(word: str, nodes: Sequence[Explained]) -> str:
    """The same as a fragment of a page."""
    rows = [(one.node.name, _precision(one.node), _rule(one), _because(one), spell_line(one.line)) for one in nodes]
    return fragment([f"{word}: {_count(nodes)}"], ("node", "in", "rule", "because", "line"), rows)


def _chain(one: Explained) -> Iterator[RenderableType]:
    for depth, node in enumerate(one.chain):
        said = f"{clean(node.name)}  {clean(node.op)}  {_precision(node)}  {node.rule}: {clean(node.because)}"
        yield indented(said, depth=2 * depth) if depth else Text(said)
    if one.run:
        yield indented(f"it {one.run}")
    if one.line is not None:
        code = f"  {clean(one.line.code)}" if one.line.code else ""
        yield indented(f"{spell_line(one.line)}{code}", style="dim")


def _because(one: Explained) -> str:
    """The reason of a node, and how it is run."""
    return f"{one.node.because}; it {one.run}" if one.run else one.node.because


def _count(nodes: Sequence[Explained]) -> str:
    counts = Counter(str(one.node.precision.compute) for one in nodes)
    return f"{spell_count(len(nodes), 'node')}, {', '.join(f'{count} in {dtype}' for dtype, count in counts.items())}"


def _precision(node: PlannedNode) -> str:
    return spell_precision(node.precision)


def _name(one: Explained) -> str:
    """A node's name below its module's."""
    return clean(_below(one.node.name, one.module))


def _below(name: str, module: str) -> str:
    """A name without the path of a module that it is inside of."""
    inside = name.startswith((f"{module}/", f"{module}.")) if module else False
    return name[len(module) + 1 :] if inside else name


def _rule(one: Explained, word: str = "", most: int = _ANY) -> str:
    """The rule, and whom a node follows in the end; that loses its middle where there is no room for it."""
    rule = one.node.rule
    if one.root is one.node:
        return rule
    followed = clean(_below(_below(one.root.name, one.module), word))
    return f"{rule} {shorten(followed, most - len(rule) - 1)}"


def _rules(nodes: Sequence[Explained]) -> Iterator[str]:
    """What each rule says, of the first node that it holds for."""
    reasons: dict[str, dict[str, PlannedNode]] = {}
    for one in nodes:
        reasons.setdefault(one.root.rule, {}).setdefault(one.root.because, one.root)
    for run in dict.fromkeys(one.run for one in nodes if one.run):
        count = sum(one.run == run for one in nodes)
        yield f"{spell_count(count, 'node')}: each {run}"
    for rule, several in reasons.items():
        because, node = next(iter(several.items()))
        about = f", of {clean(node.name)}; each has its own" if len(several) > 1 else ""
        yield f"{rule}{about}: {clean(because)}"
