"""Explanation of a node's precision: the chain of nodes that caused it.

Nodes are found by their name, a value, an operator, a module or scope path, or a glob.
"""

import enum
import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass

from mezzo.common.errors import InputError
from mezzo.common.message_style import listing
from mezzo.common.name_matching import fold, nearest
from mezzo.contracts.options.keywords import spell_keyword
from mezzo.contracts.plans import Explanation, Plan, PlannedNode, PlannedWeight
from mezzo.ir.selectors import is_in_region
from mezzo.report.text.chain import suggest_change

_OPERATOR = "op:"
_GLOB = "*?["
_SHOWN = 3
_ASKED_RULES = frozenset({"exclude", "keep-region", "fix-region"})


class NameKind(enum.Enum):
    """Kind of name by which nodes were found."""

    NODE = "node"
    MADE = "value made"
    READ = "value read"
    OPERATOR = "operator"
    PART = "part"
    REGION = "region"
    PATTERN = "pattern"


@dataclass(frozen=True, slots=True)
class Meant:
    """The nodes that a word refers to, in plan order, and the kind of name that it is."""

    word: str
    known: NameKind
    nodes: tuple[PlannedNode, ...]


def find_meant(of: Plan, word: str) -> Meant:
    """The nodes of a plan that a word refers to, at least one.

    Raises InputError: there is none; the message has suggestions.
    """
    for kind, names in _readings(of, word):
        if names:
            return Meant(word, kind, tuple(node for node in of.nodes if node.name in names))
    dtype = of.names.without_floats.get(word)
    if dtype is not None:
        raise InputError(
            f"{word!r} holds {dtype}, no floats, and nothing that reads it computes in floats; ask"
            f" for another; {listing()} lists what there is"
        )
    suggestions = [repr(name) for name in _near(of, word)]
    question = (
        f"did you mean {', '.join(suggestions)}?"
        if suggestions
        else f"{listing()} lists what there is"
    )
    raise InputError(
        f"no node, value, operator or module {word!r} computes floats in this model; {question}"
    )


def explain(of: Plan, node: str) -> tuple[PlannedNode, ...]:
    """The chain of causes of a node's precision: the node, the node that caused it, and so on.

    `node` may also be the name of a value, an operator, a path of scopes or modules, or a glob, if
    it matches one node.

    Raises:
        InputError: the plan has no such node, or several; or `of` is no plan.
    """
    if not isinstance(of, Plan):
        raise InputError(
            f"{type(of).__name__} is no plan, and a plan is explained; results have one as .plan,"
            " and 'mezzo.plan(model)' makes one"
        )
    lookup = find_meant(of, node)
    if len(lookup.nodes) > 1:
        names = [repr(match.name) for match in lookup.nodes[:_SHOWN]]
        more = f" and {len(lookup.nodes) - _SHOWN} more" if len(lookup.nodes) > _SHOWN else ""
        raise InputError(
            f"{node!r} is {len(lookup.nodes)} nodes, {', '.join(names)}{more}; ask for one of them"
        )
    return chain_of(of, lookup.nodes[0])


def explain_word(of: Plan, word: str) -> Explanation:
    """The nodes of a plan that a word refers to, with their chains of causes and, for a single
    node, what would change its precision. Raises InputError: nothing matches.
    """
    lookup = find_meant(of, word)
    chains = tuple(chain_of(of, node) for node in lookup.nodes)
    changes = tuple(_find_changes(chains[0], of)) if len(chains) == 1 else ()
    return Explanation(
        plan=of,
        word=word,
        known=lookup.known.value,
        chains=chains,
        changes=changes,
        weights=weights_of(of, lookup),
    )


def weights_of(of: Plan, lookup: Meant) -> tuple[PlannedWeight, ...]:
    """The weight that a word names, or those that the only node that it refers to reads."""
    named = tuple(weight for weight in of.weights if lookup.word in (weight.name, weight.value))
    return named or (of.weights_read(lookup.nodes[0].name) if len(lookup.nodes) == 1 else ())


def _find_changes(chain: tuple[PlannedNode, ...], of: Plan) -> Iterator[tuple[str, str]]:
    """Keywords that change both ends of a chain: the root and the node asked for."""
    for node in dict.fromkeys((chain[-1], chain[0])):
        keyword = node.rule.replace("-", "_")
        change = suggest_change(node, of.lows, of.weights_read(node.name))
        if node.rule in _ASKED_RULES:
            yield f"without that {keyword}", f"lets the policy decide about {node.name!r}"
        elif change is not None:
            (flag, value), effect = change
            yield spell_keyword(flag, value), effect


def chain_of(of: Plan, node: PlannedNode) -> tuple[PlannedNode, ...]:
    """The node of a plan, the node that caused its precision, and so on."""
    chain = [node]
    while chain[-1].cause is not None and chain[-1].cause in of.by_name:
        cause = of.by_name[chain[-1].cause]
        if cause in chain:
            break
        chain.append(cause)
    return tuple(chain)


def _readings(of: Plan, word: str) -> Iterator[tuple[NameKind, frozenset[str]]]:
    """Meanings of a word, the most specific first: kind of name, names of matching nodes."""
    operators = [node for node in of.nodes if node.kind == "op"]
    yield NameKind.NODE, frozenset({word} & of.by_name.keys())
    if word.startswith(_OPERATOR):
        pattern = word.removeprefix(_OPERATOR).lower()
        yield (
            NameKind.OPERATOR,
            frozenset(n.name for n in operators if fnmatch.fnmatchcase(n.op.lower(), pattern)),
        )
    yield NameKind.MADE, frozenset(of.names.makers.get(word, ())) & of.by_name.keys()
    yield NameKind.READ, frozenset(of.names.readers.get(word, ())) & of.by_name.keys()
    yield NameKind.PART, frozenset({of.names.parts.get(word, "")}) & of.by_name.keys()
    readers = [weight.readers for weight in of.weights if weight.name == word]
    yield NameKind.READ, frozenset(*readers) & of.by_name.keys()
    yield (
        NameKind.NODE,
        frozenset({f"{port_kind} {word}" for port_kind in ("input", "output")} & of.by_name.keys()),
    )
    yield (
        NameKind.OPERATOR,
        frozenset(node.name for node in operators if fold(node.op) == fold(word)),
    )
    if any(sign in word for sign in _GLOB):
        matching = frozenset(node.name for node in of.nodes if fnmatch.fnmatchcase(node.name, word))
        yield NameKind.PATTERN, matching & {node.name for node in operators} or matching
    if word.strip("/."):
        paths = {
            node.name: (node.name, of.names.modules.get(node.name, node.name)) for node in operators
        }
        yield (
            NameKind.REGION,
            frozenset(
                name for name, known_names in paths.items() if is_in_region(word, known_names)
            ),
        )


def _near(of: Plan, word: str) -> tuple[str, ...]:
    """Names similar to a word that matches nothing."""
    operators = dict.fromkeys(node.op for node in of.nodes if node.kind == "op")
    values = (
        name
        for by_value in (of.names.makers, of.names.readers)
        for name, nodes in by_value.items()
        if nodes
    )
    candidates = dict.fromkeys((*operators, *of.by_name, *values, *of.names.parts))
    candidates.update(dict.fromkeys(of.names.modules.values()))
    return nearest(word.removeprefix(_OPERATOR), candidates)
