"""Policy rules applied to a graph: selected nodes, their verdicts, and notes for the user."""

from collections.abc import Iterator, Sequence, Set

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.name_matching import did_you_mean, nearest
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.ir.selectors import ByRegion, Site, Tier
from mezzo.plugins.discovery import op_facts
from mezzo.tables.ops import known_operators
from mezzo.tables.policy import Missing, NodeVerdict, Policy
from mezzo.tables.policy_function import ask

_NAMES_SHOWN = 3


def nodes_in(graph: Graph, pattern: str) -> list[int]:
    """Operators and ties of a region."""
    region = ByRegion(pattern)
    numbers = np.flatnonzero(graph.columns.is_kind(Kind.OP, Kind.TIE)).tolist()
    return [number for number in numbers if region.matches(Site(graph, graph.nodes[number]))]


def regions_of(graph: Graph) -> tuple[str, ...]:
    """Every path prefix of node names and modules, without the node's own name."""
    paths: dict[str, None] = {}
    for number in np.flatnonzero(graph.columns.is_kind(Kind.OP, Kind.TIE)).tolist():
        module = graph.modules.get(number)
        for path in (graph.nodes[number].name.strip("/"), *((module,) if module else ())):
            sign = "/" if "/" in path else "."
            while path := path.rpartition(sign)[0]:
                paths[path] = None
    return tuple(paths)


def patterns_near(graph: Graph, pattern: str) -> tuple[str, ...]:
    """Suggestions for a pattern without matches: a node, an operator, a value's producer."""
    nodes = [
        graph.nodes[number]
        for number in np.flatnonzero(graph.columns.is_kind(Kind.OP, Kind.TIE)).tolist()
    ]
    word, operators = (
        pattern.removeprefix("op:"),
        dict.fromkeys(node.op for node in nodes if node.kind is Kind.OP),
    )
    if near := nearest(word, operators, 1) if pattern != word else ():
        return (f"op:{near[0]}",)
    producers = [
        n.name
        for n in nodes
        for v in n.outputs
        if v is not None and graph.values[v].name == pattern
    ]
    if producers:
        return tuple(producers[:1])
    named = {**{op: f"op:{op}" for op in operators}, **{node.name: node.name for node in nodes}}
    return tuple(named[name] for name in nearest(word, named, 1))


def apply_rules(
    graph: Graph, verdicts: list[NodeVerdict], policy: Policy, low: DType, tier: Tier
) -> set[int]:
    """Apply the single-node rules of one tier; the first rule that selects a node decides. Returns
    the ids of rules that selected a node.
    """
    rules = policy.local_rules(tier)
    selected: set[int] = set()
    if not rules:
        return selected
    columns = graph.columns
    by_signature = [
        [
            rule
            for rule in rules
            if rule.fires((s.dialect, s.op), op_facts(s.dialect).get(s.op), low, policy.formats)
        ]
        for s in columns.signatures
    ]
    kinds = (
        columns.is_kind(Kind.OP, Kind.TIE) if tier > Tier.ATTRIBUTE else columns.is_kind(Kind.OP)
    )
    has_rule = (
        np.array([bool(candidates) for candidates in by_signature], bool)[columns.node_signature]
        & kinds
    )
    for number in np.flatnonzero(has_rule).tolist():
        site = Site(graph, graph.nodes[number])
        for rule in by_signature[columns.node_signature[number]]:
            if all(selector.matches(site) for selector in rule.where):
                verdicts[number] = rule.verdict()
                selected.add(id(rule))
                break
    return selected


def apply_function(graph: Graph, verdicts: list[NodeVerdict], policy: Policy, low: DType) -> None:
    """Apply the policy's function to every operator with floats; its verdicts override all rules.

    Raises InputError: the function fails, or returns no verdict.
    """
    if policy.function is None:
        return
    for number in np.flatnonzero(graph.columns.is_kind(Kind.OP)).tolist():
        node = graph.nodes[number]
        verdict = None if node.signature.dtype is None else ask(policy, Site(graph, node), low)
        if verdict is not None:
            verdicts[number] = verdict


def mention_idle(graph: Graph, policy: Policy, selected: Set[int]) -> Iterator[str]:
    """Notes on user rules that select no node, and on operators that no table lists."""
    if not policy.source:
        return
    operators = known_operators() | {node.op for node in graph.nodes}
    for rule in policy.rules:
        for op in sorted(rule.ops):
            if op.rpartition(":")[2] not in operators:
                asked = did_you_mean(op, sorted(operators), 1)
                hint = f"; {asked}" if asked else ""
                yield (
                    f"policy {policy.name!r}: {rule.name!r} names operator {op!r}, which no table"
                    f" knows{hint}"
                )
        if rule.where and id(rule) not in selected:
            conditions = ", ".join(map(str, rule.where))
            yield (
                f"policy {policy.name!r}: {rule.name!r} selects no node of this model"
                f" ({conditions})"
            )


def mention_missing(graph: Graph, verdicts: Sequence[NodeVerdict], policy: Policy) -> Iterator[str]:
    """A note on operators without a rule, as the policy's `missing` says.

    Raises InputError: there are some, and `missing` is "error".
    """
    if policy.missing is Missing.SILENT:
        return
    unlisted: dict[str, list[str]] = {}
    for node, verdict in zip(graph.nodes, verdicts, strict=True):
        if (
            verdict.rule in ("unlisted", "otherwise")
            and node.kind is Kind.OP
            and node.signature.dtype is not None
        ):
            unlisted.setdefault(node.op, []).append(node.name)
    if not unlisted:
        return
    summary = ", ".join(
        f"{op} ({len(names)}: {_some(names)})" for op, names in sorted(unlisted.items())
    )
    if policy.missing is Missing.ERROR:
        raise InputError(
            f"policy {policy.name!r} speaks of none of these operators: {summary}; add them to a"
            ' list, or set missing = "warn"'
        )
    yield f"policy {policy.name!r} speaks of none of these operators: {summary}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown}, ..."
