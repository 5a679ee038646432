"""What regions have put on nodes of FX graphs: which are kept as they were written, which are forced into a format.

A region writes one word into `node.meta["custom"]`, which tracers, AOTAutograd and saved programs carry along. It is
read here, and nothing is loaded for it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from mezzo.formats.dtypes import FORMATS, HIGH, LOW_DTYPES, DType
from mezzo.formats.format_words import read_format

# Where a node's mark stands, inside its "custom".
KEY = "mezzo.region"
KEEP = "keep"
# Of a disabled autocast: what is in it keeps its types, and a compiler writes it as all else.
_KEEP_TYPES = "keep-types"
# What is forced, by the word of options.
FORCED: Mapping[str, DType] = MappingProxyType({**LOW_DTYPES, FORMATS[HIGH].words[0]: HIGH})
_CUSTOM = "custom"
# Begins the word of what calls a body, with the depth of bodies that it stands in. What is in the body has the word
# too, unless a region was opened there.
_AROUND = "around"
_AUTOCAST = "wrap_with_autocast"
# What torch.export writes apart into a body, and PyTorch back into the graph when that is decomposed.
WRITTEN_APART = frozenset({_AUTOCAST, "wrap_with_set_grad_enabled"})


@dataclass(frozen=True, slots=True)
class Mark:
    """What a region asks of a node: the format that it runs in; None: it stays as it was written. `is_exact`: to the
    bit, by PyTorch's own kernel.

    `depth` is that of the bodies in which the region was found, one in the other.
    """

    dtype: DType | None
    is_exact: bool = False
    depth: int = field(default=0, compare=False)


class MarkedNode(NamedTuple):
    """A node of a graph or of a body in it. `body` is the path of names that leads to its graph, () at the top."""

    body: tuple[str, ...]
    node: Any
    mark: Mark | None


def mark_of(meta: Mapping[str, object]) -> Mark | None:
    """The mark of a node that stands in no body, of its `meta`; None where it is in no region.

    Raises InputError: the word is none that a region writes.
    """
    word = _word_of(meta)
    return None if word is None else read_mark(word)


def mark_within(meta: Mapping[str, object], around: Mark | None, depth: int = 1) -> Mark | None:
    """The mark of a node of a body whose caller's mark is `around`: its own where a region was opened in the body.

    A body may have several callers, in regions that differ, and the word that it was traced with is that of the first.
    `depth` is 1 for a body of the graph itself, 2 for one in that.

    Raises InputError: the word is none that a region writes.
    """
    word = _word_of(meta)
    if word is None:
        return around
    mark = read_mark(word)
    is_opened_there = mark.depth > around.depth if around is not None else mark.depth >= depth
    return mark if is_opened_there or not word.startswith(_AROUND) else around


def read_mark(word: str) -> Mark:
    """What a region's word says. Raises InputError: it is none."""
    plain, depth = word, 0
    match word.split(" "):
        case [before, number, rest] if before == _AROUND and number.isdecimal():
            plain, depth = rest, int(number)
    if plain in (KEEP, _KEEP_TYPES):
        return Mark(None, is_exact=plain == KEEP, depth=depth)
    return Mark(FORCED[read_format(plain, "the region of a node", (KEEP,), FORCED)], depth=depth)


def spell_around(word: str, depth: str) -> str:
    """The word of what calls a body: "around 0 keep"."""
    return f"{_AROUND} {depth} {word}"


def marks_in(graph_module: Any) -> Iterator[MarkedNode]:
    """Every node of a graph and of its bodies with its mark, in order; a body follows the node that calls it, once for
    each that does.
    """
    return _marks_in(graph_module, (), None)


def mark_disabled_autocast(graph_module: Any, depth: int = 0, *, is_inside: bool = False) -> None:
    """Mark what an author computes under `torch.autocast(..., enabled=False)` as of the types that it has, bodies
    included.

    In a graph of Dynamo such a part stands between two calls, in an exported program it is a body. Nodes that are in a
    region of mezzo's stay in that. `meta` is replaced and not written into. `depth`: as in `Mark`; `is_inside` says
    that the graph itself is such a part.
    """
    is_disabled = is_inside
    outside: list[bool] = []  # whether autocast was disabled around each part that is not yet left
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


def digest_of_marks(graph_module: Any) -> str:
    """Names what regions say of a graph: equal where all nodes have equal marks, bodies included."""
    sums = hashlib.sha256()
    for at, (body, _, mark) in enumerate(marks_in(graph_module)):
        if mark is not None:
            sums.update(f"{at} {'/'.join(body)} {mark.dtype} {mark.is_exact}\n".encode())
    return sums.hexdigest()[:32]


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
    """The graphs that a node calls: named by the attributes among its operands, or by itself."""
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
