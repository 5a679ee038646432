"""Precision regions as marks on FX nodes: nodes kept as written, and nodes forced into a format.

A region writes one word into `node.meta["custom"]`, which tracers, AOTAutograd and saved programs
preserve. This module reads the marks, without importing torch.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from mezzo.formats.dtypes import FORMATS, HIGH, LOW_DTYPES, DType
from mezzo.formats.format_words import read_format

# Key of a node's mark, inside its "custom".
KEY = "mezzo.region"
KEEP = "keep"
# The mark of nodes under a disabled autocast: their types stay, but any compiler may generate their
# code.
_KEEP_TYPES = "keep-types"
# Formats that a region may force, by their option words.
FORCED: Mapping[str, DType] = MappingProxyType({**LOW_DTYPES, FORMATS[HIGH].words[0]: HIGH})
_CUSTOM = "custom"
# Prefix of the mark of a node that calls a subgraph, followed by the nesting depth. Nodes of the
# subgraph inherit this mark, unless a region was opened inside it.
_AROUND = "around"
_AUTOCAST = "wrap_with_autocast"
# Regions that torch.export moves into a subgraph, and that decomposition inlines again.
WRITTEN_APART = frozenset({_AUTOCAST, "wrap_with_set_grad_enabled"})


@dataclass(frozen=True, slots=True)
class Mark:
    """A region's request for a node: the format to run in, or None to stay as written.

    `is_exact` requires bit-equal results from PyTorch's own kernel. `depth` is the number of
    subgraphs around the region.
    """

    dtype: DType | None
    is_exact: bool = False
    depth: int = field(default=0, compare=False)


class MarkedNode(NamedTuple):
    """A node with its mark. `body` is the attribute path to its subgraph, () at the top."""

    body: tuple[str, ...]
    node: Any
    mark: Mark | None


def mark_of(meta: Mapping[str, object]) -> Mark | None:
    """The mark of a node of the main graph, from its `meta`; None outside of any region.

    Raises InputError: the mark is not one that a region writes.
    """
    word = _word_of(meta)
    return None if word is None else read_mark(word)


def mark_within(meta: Mapping[str, object], around: Mark | None, depth: int = 1) -> Mark | None:
    """The mark of a node in a subgraph whose call has the mark `around`.

    A region opened inside the subgraph wins. A subgraph may have several calls in different
    regions, and the mark in its metadata comes from the first. `depth` is 1 for a subgraph of the
    main graph, 2 for one nested in that.

    Raises InputError: the mark is not one that a region writes.
    """
    word = _word_of(meta)
    if word is None:
        return around
    mark = read_mark(word)
    is_opened_there = mark.depth > around.depth if around is not None else mark.depth >= depth
    return mark if is_opened_there or not word.startswith(_AROUND) else around


def read_mark(word: str) -> Mark:
    """Parse a region's word. Raises InputError: it is invalid."""
    plain, depth = word, 0
    match word.split(" "):
        case [before, number, rest] if before == _AROUND and number.isdecimal():
            plain, depth = rest, int(number)
    if plain in (KEEP, _KEEP_TYPES):
        return Mark(None, is_exact=plain == KEEP, depth=depth)
    return Mark(FORCED[read_format(plain, "the region of a node", (KEEP,), FORCED)], depth=depth)


def spell_around(word: str, depth: str) -> str:
    """The mark of a node that calls a subgraph, such as "around 0 keep"."""
    return f"{_AROUND} {depth} {word}"


def marks_in(graph_module: Any) -> Iterator[MarkedNode]:
    """Every node of a graph and its subgraphs with its mark, in order. The nodes of a subgraph
    follow each node that calls it.
    """
    return _marks_in(graph_module, (), None)


def mark_disabled_autocast(graph_module: Any, depth: int = 0, *, is_inside: bool = False) -> None:
    """Mark nodes under `torch.autocast(..., enabled=False)`, in subgraphs too, to keep their types.

    A Dynamo graph has such a region between two calls, an exported program has it as a subgraph.
    Nodes in one of mezzo's regions keep that mark. `meta` is replaced, not modified. `depth` is as
    in `Mark`; `is_inside` means that the graph itself is such a region.
    """
    is_disabled = is_inside
    outside: list[bool] = []  # for each open autocast region: was autocast disabled around it
    for node in graph_module.graph.nodes:
        name = getattr(node.target, "__name__", "")
        bodies = [body for _, body in _bodies_of(node, graph_module)]
        is_part = name in WRITTEN_APART
        is_marked = is_disabled or (name == _AUTOCAST and not node.args[2])
        if name == "_enter_autocast":
            outside.append(is_disabled)
            is_disabled = not node.args[2]
        elif name == "_exit_autocast":
            is_disabled = outside.pop()
        elif is_marked and node.op.startswith("call_") and _word_of(node.meta) is None:
            word = spell_around(_KEEP_TYPES, str(depth)) if bodies and not is_part else _KEEP_TYPES
            node.meta = {**node.meta, _CUSTOM: {**node.meta.get(_CUSTOM, {}), KEY: word}}
        for body in bodies:
            mark_disabled_autocast(body, depth + (not is_part), is_inside=is_marked and is_part)


def _word_of(meta: Mapping[str, object]) -> str | None:
    custom = meta.get(_CUSTOM)
    word = custom.get(KEY) if isinstance(custom, Mapping) else None
    return None if word is None else str(word)


def _marks_in(owner: Any, body: tuple[str, ...], around: Mark | None) -> Iterator[MarkedNode]:
    for node in owner.graph.nodes:
        mark = mark_within(node.meta, around, len(body)) if body else mark_of(node.meta)
        yield MarkedNode(body, node, mark)
        for name, called in _bodies_of(node, owner):
            yield from _marks_in(called, (*body, name), mark)


def _bodies_of(node: Any, owner: Any) -> Iterator[tuple[str, Any]]:
    """The subgraphs that a node calls, with the attribute names under which it refers to them."""
    names = [str(operand.target) for operand in node.all_input_nodes if operand.op == "get_attr"]
    if node.op == "call_module":
        names = [str(node.target)]
    elif node.op == "get_attr":
        names = []
    for name in names:
        called = owner
        for part in name.split("."):
            called = getattr(called, part, None)
        if hasattr(called, "graph"):
            yield name, called
