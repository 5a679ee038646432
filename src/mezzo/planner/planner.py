"""Planning problem of a graph: combines operator facts, policy and target into a problem for a
strategy. Pure; knows no IR.
"""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mezzo.analysis.feedback import GUESS, describe_feedback, find_feedback
from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.masks import mask_limits
from mezzo.analysis.structure.saturating import saturated
from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import aside, ask_for
from mezzo.contracts.options.option import because_requested
from mezzo.contracts.problem import Choice, LevelChoices, Problem
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, QUANTIZED, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Signature
from mezzo.ir.selectors import Tier
from mezzo.ir.weight_reads import nodes_of, weight_reads
from mezzo.planner.choices.block_weights import (
    bound_readers,
    keep_readers,
    uniform_weights,
)
from mezzo.planner.choices.choosing import (
    check_interface,
    check_links,
    choices_of,
    fix_marks,
    fix_regions,
    weights_in_blocks,
)
from mezzo.planner.choices.storage_levels import contested_weights, levels_instead, storage_cost
from mezzo.planner.choices.stored_floats import floats_stored, judge_floats
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.verdicts.custom import judge_custom, mention_custom
from mezzo.planner.verdicts.exact import lift_exact, lifted_by_kernels
from mezzo.planner.verdicts.exact_masks import agreeing_on_masks, bounds_of_masks, trusted_masks
from mezzo.planner.verdicts.findings import (
    check_assumed,
    deny_measured,
    deny_suspected,
    lift_rules,
    notes_on_estimates,
)
from mezzo.planner.verdicts.promotion import UNTROUBLED, untroubled
from mezzo.planner.verdicts.rules import (
    apply_function,
    apply_rules,
    mention_idle,
    mention_missing,
    nodes_in,
    patterns_near,
)
from mezzo.planner.verdicts.second_float import deny_second, taken_by_first
from mezzo.plugins.discovery import op_facts
from mezzo.tables.facts import Cost, OpFacts
from mezzo.tables.policy import GRANTED, Category, NodeVerdict

if TYPE_CHECKING:
    from mezzo.analysis.fusion.quantized import QuantizedUnit
    from mezzo.analysis.fusion.unit import Partition
    from mezzo.planner.choices.quantizing import QuantizedUnits


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Everything decided before a strategy runs: verdicts per non-base level and node id, bounds of
    constants by value id, and notes for the user. `split`: the target's fusion units, where its
    rows affect the plan; `quantizing`: the nodes that may run quantized, if requested.
    """

    problem: Problem
    sides: tuple[tuple[NodeVerdict, ...], ...]
    limits: Mapping[int, float]
    notes: tuple[str, ...] = ()
    split: "Partition | None" = None
    quantizing: "QuantizedUnits | None" = None

    @property
    def units(self) -> "Sequence[QuantizedUnit]":
        """The units that may run quantized."""
        return () if self.quantizing is None else self.quantizing.units

    def verdicts(self, level: int | None = None) -> tuple[NodeVerdict, ...]:
        """Verdicts on running at a level; without a level, on the only one outside the base."""
        if level is None:
            (only,) = self.sides
            return only
        return self.sides[self.problem.line.side(level)]

    def verdict_of(self, number: int, level: int) -> NodeVerdict:
        """Verdict on a node at a level. At the base: the verdict for the nearest level that is not
        denied, or a denial if all are.
        """
        line = self.problem.line
        if level != line.base:
            return self.verdicts(level)[number]
        verdicts = [self.verdicts(other)[number] for other in line.others]
        return next(
            (verdict for verdict in verdicts if verdict.category is not Category.DENY),
            verdicts[0] if verdicts else ONLY_WEIGHTS,
        )


# Of every node of a plan with one level.
ONLY_WEIGHTS = NodeVerdict(
    category=Category.CLEAR,
    rule="weights-only",
    because="only the storage of weights changes: every operator computes in its own type",
)
_KEEPS = NodeVerdict(
    category=Category.CLEAR, rule="interface", because="its type is part of the model's interface"
)
_TIE = NodeVerdict(
    category=Category.CLEAR,
    rule="tie",
    because="carries values across a body's border without arithmetic",
)
_CAST = NodeVerdict(category=Category.CLEAR, rule="existing-cast", because="rounds on purpose")
_SOURCE = NodeVerdict(
    category=Category.CLEAR,
    rule="source",
    because="is stored or cast anew in each dtype that is read",
)
_NONE = NodeVerdict(
    category=Category.CLEAR, rule="no-float", because="computes no floats of its own"
)
_BY_KIND = {
    Kind.INPUT: _KEEPS,
    Kind.OUTPUT: _KEEPS,
    Kind.TIE: _TIE,
    Kind.CAST: _CAST,
    Kind.SOURCE: _SOURCE,
}


def rows_of(graph: Graph) -> tuple[OpFacts | None, ...]:
    """The facts of each operator; None for nodes that are no operators and for operators without a
    row.
    """
    columns = graph.columns
    rows = [op_facts(signature.dialect).get(signature.op) for signature in columns.signatures]
    return tuple([rows[code] for code in columns.node_signature.tolist()])


def judge(graph: Graph, planning: PlanningOptions) -> Judged:
    """Give every node its verdict and its choice at every non-base level, and weights their storage
    in blocks.

    Raises InputError: a pattern or an interface name matches nothing, or an option requests an
    impossible dtype.
    """
    if planning.in_blocks is not None:
        given = weights_in_blocks(graph, planning.in_blocks, planning.line.dtypes)
        return _judge(graph, planning, given)
    if not planning.weight_bits:
        return _judge(graph, planning, {})
    floats = nodes_in_floats(graph, planning)
    weights = uniform_weights(graph, planning.target, planning.weight_bits, floats)
    storages = {number: weight.usual_storage for number, weight in weights.items()}
    contested = contested_weights(weights, planning)
    if not contested:
        return _judge(graph, planning, storages)
    others = {number: how for number, how in storages.items() if number not in contested}
    none = _judge(graph, planning, others)
    instead = levels_instead(none.problem, contested, planning)
    in_blocks = {number: how for number, how in storages.items() if number not in instead}
    spare = {n: storages[n] for n, level in instead.items() if level == planning.line.quantized}
    joint = _judge(graph, planning, in_blocks, spare)
    if not instead:
        return joint
    return min(
        (joint, _judge(graph, planning, storages), none),
        key=lambda judged: storage_cost(judged.problem, contested, planning),
    )


def _judge(
    graph: Graph,
    planning: PlanningOptions,
    in_blocks: Mapping[int, BlockStorage],
    spare: Mapping[int, BlockStorage] = MappingProxyType({}),
) -> Judged:
    """Judge with the storage of weights, by value id. `spare`: of weights that are stored so if
    their readers may not run quantized after all.
    """
    rows, line = rows_of(graph), planning.line
    check_assumed(graph, planning.assumed)
    check_interface(graph, planning)
    split = None
    if planning.target.fused_formats.intersection(line.other_dtypes):
        from mezzo.planner.choices.kernels import split_for, with_units

        split = split_for(graph, rows, planning.target, line)
    judgements = [
        _judge_side(graph, rows, planning, dtype, split, in_blocks)
        for dtype in line.dtypes
        if dtype is not line.base_dtype
    ]
    if len(planning.floats) > 1:
        judgements = _with_islands(judgements, planning)
    quantizing = next((side.quantizing for side in judgements if side.quantizing is not None), None)
    if quantizing is not None and spare:
        taken = {number for unit in quantizing.units for number in unit.nodes}
        left = {n for n in spare if taken.isdisjoint(nodes_of(weight_reads(graph, n)))}
        in_blocks = {**in_blocks, **{number: spare[number] for number in left}}
    costs: tuple[Cost | None, ...] = tuple(None if row is None else row.cost for row in rows)
    base_outputs = frozenset(
        number
        for side in judgements
        if planning.policy.may_hand_on_high
        for number, verdict in enumerate(side.verdicts)
        if verdict.output is line.base_dtype
    )
    sides = tuple(side.side for side in judgements)
    problem = Problem(
        graph=graph,
        line=line,
        sides=sides if quantizing is None else quantizing.as_worthy(sides, line),
        costs_of=costs,
        prices=planning.target.costs,
        base_outputs=base_outputs,
        measured=planning.measured,
        links=tuple(
            (threshold, *pair)
            for threshold, side in zip(line.thresholds, judgements, strict=True)
            for pair in side.agreeing
            if line.base in (threshold, threshold + 1)
        ),
        in_blocks=in_blocks,
        stored_floats=_stored_floats(graph, planning),
    )
    if problem.in_blocks and planning.weight_bits:  # a replayed plan has levels of its own
        problem = bound_readers(problem, planning.target)
    if planning.io or planning.fixed_regions:
        check_links(problem, [side.verdicts for side in judgements], planning.io)
    if split is not None:
        problem = with_units(problem, split)
    if quantizing is not None:
        problem = quantizing.add_to(problem)
    limits = {value: limit for side in reversed(judgements) for value, limit in side.limits.items()}
    notes = dict.fromkeys(note for side in judgements for note in side.notes)
    return Judged(
        problem=problem,
        sides=tuple(side.verdicts for side in judgements),
        limits=limits,
        notes=tuple(notes),
        split=split,
        quantizing=quantizing,
    )


def _stored_floats(graph: Graph, planning: PlanningOptions) -> dict[int, DType]:
    """The low float of weights that are stored in one, by value id."""
    if planning.stored_floats is not None:
        return floats_stored(graph, planning.stored_floats)
    if planning.weight_float is None:
        return {}
    weights = judge_floats(graph, planning.weight_float, nodes_in_floats(graph, planning))
    return {weight.value: planning.weight_float for weight in weights if weight.is_stored}


def nodes_in_floats(graph: Graph, planning: PlanningOptions) -> frozenset[int]:
    """Nodes that options exclude or keep as they are, whose weights stay floats."""
    excluded = [node.id for pattern in planning.exclude for node in matched(graph, pattern)]
    regions = [n for region in planning.keep_regions for n in nodes_in(graph, region)]
    return frozenset((*excluded, *regions))


def _with_islands(judgements: "list[_Side]", planning: PlanningOptions) -> "list[_Side]":
    """The second float for nodes that the first may not take, and for what follows them."""
    first, second = (planning.line.side(planning.line.dtypes.index(low)) for low in planning.floats)
    judged = judgements[second]
    choices, categories = list(judged.side.choices), list(judged.side.categories)
    verdicts, denied = list(judged.verdicts), deny_second(*planning.floats)
    for number in taken_by_first(judgements[first].side, judged.side):
        choices[number], categories[number] = Choice.HIGH, Category.DENY
        verdicts[number] = denied
    side = replace(judged.side, choices=tuple(choices), categories=tuple(categories))
    judgements[second] = judged._replace(side=side, verdicts=tuple(verdicts))
    return judgements


class _Side(NamedTuple):
    side: LevelChoices
    verdicts: tuple[NodeVerdict, ...]
    limits: Mapping[int, float]
    notes: tuple[str, ...]
    agreeing: tuple[tuple[int, int], ...]
    quantizing: "QuantizedUnits | None"


def _judge_side(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    planning: PlanningOptions,
    low: DType,
    split: "Partition | None",
    in_blocks: Mapping[int, BlockStorage],
) -> _Side:
    """Verdicts, choices, limits and notes for running in `low` instead of the base."""
    feedback = find_feedback(graph, planning.feedback)
    view = StructureView(
        graph=graph,
        rows=tuple(rows),
        low=FORMATS[low],
        assumed=planning.assumed,
        feedback=feedback,
        sums=tuple(row for row in planning.target.sums if row.dtype is low),
    )
    masks = trusted_masks(view, planning.policy, split)
    bounded = bounds_of_masks(view, masks)
    limits = {**_limits(view, planning, split), **bounded}
    notes: list[str] = []
    if GUESS in planning.feedback:
        notes.append(f"fed back, as names show: {describe_feedback(feedback)}")
    view = replace(view, limited=frozenset(limits), masks=masks)
    verdicts, agreeing = _verdicts(view, planning, notes, split)
    notes += notes_on_estimates(view, planning.policy)
    choices = choices_of(view, verdicts, planning)
    fix_regions(graph, verdicts, choices, planning, low, notes)
    fix_marks(graph, verdicts, choices, planning, low, notes)
    agreeing += agreeing_on_masks(view, bounded, verdicts, choices)
    quantizing = None
    if low in QUANTIZED:
        from mezzo.planner.choices.quantizing import choose_units

        keep_readers(graph, in_blocks, verdicts, choices)
        quantizing = choose_units(view, planning, verdicts, choices)
    if planning.policy.promotes_untroubled and low not in QUANTIZED:
        for number in untroubled(graph, rows, verdicts, choices, low):
            verdicts[number] = replace(UNTROUBLED, lift=verdicts[number].lift)
    categories = tuple(
        [
            v.category if choice is not Choice.ABSENT else None
            for v, choice in zip(verdicts, choices, strict=True)
        ]
    )
    prices = planning.error_prices.get(low)
    penalties = (
        tuple(prices[n.name].cost if n.name in prices else 0 for n in graph.nodes)
        if prices
        else None
    )
    side = LevelChoices(tuple(choices), categories, tuple([v.worth for v in verdicts]), penalties)
    return _Side(side, tuple(verdicts), limits, tuple(notes), agreeing, quantizing)


def _limits(
    view: StructureView, planning: PlanningOptions, split: "Partition | None"
) -> Mapping[int, float]:
    """Bounds of the constants that are clamped: masks where the policy or a whole kernel of
    attention asks for it. Quantized constants have a scale that covers all values.
    """
    if view.low.dtype in QUANTIZED:
        return {}
    policy, limits = planning.policy, dict[int, float]()
    if policy.limits_masks:
        limits = dict(mask_limits(view))
    elif not view.low.is_wide:
        whole = lifted_by_kernels(view, policy, split)
        limits = dict(mask_limits(view, lambda node: node.id in whole)) if whole else {}
    if planning.clamps_constants:
        for value, facts in view.graph.constants.items():
            is_stored = view.graph.nodes[view.graph.values[value].producer].kind is not Kind.INPUT
            if is_stored and facts.largest >= view.low.overflow_from:
                limits.setdefault(value, view.low.max_finite)
    return limits


def _verdicts(
    view: StructureView, planning: PlanningOptions, notes: list[str], split: "Partition | None"
) -> tuple[list[NodeVerdict], tuple[tuple[int, int], ...]]:
    """Every node's verdict, and pairs of nodes that must have one level for a lifted denial to
    hold.
    """
    graph = view.graph
    columns = graph.columns
    by_signature = [
        (
            _judge_signature(signature, planning, view.low.dtype)
            if signature.dtype is not None
            else _NONE
        )
        for signature in columns.signatures
    ]
    verdicts = [by_signature[code] for code in columns.node_signature.tolist()]
    lifted = {**saturated(view), **planning.evidence(view.low.dtype)}
    lift_rules(graph, verdicts, planning.policy, view.low.dtype, lifted)
    for number in np.flatnonzero(~columns.is_kind(Kind.OP)).tolist():
        verdicts[number] = _BY_KIND[graph.nodes[number].kind]
    notes += mention_missing(graph, verdicts, planning.policy)
    selected = apply_rules(graph, verdicts, planning.policy, view.low.dtype, Tier.ATTRIBUTE)
    deny_suspected(view, verdicts, planning.policy, lifted)
    deny_measured(graph, verdicts, planning.found, view.low.dtype)
    agreeing = lift_exact(view, verdicts, planning.policy, split)
    selected |= apply_rules(graph, verdicts, planning.policy, view.low.dtype, Tier.REGION)
    selected |= apply_rules(graph, verdicts, planning.policy, view.low.dtype, Tier.NAME)
    apply_function(graph, verdicts, planning.policy, view.low.dtype)
    notes += mention_idle(graph, planning.policy, selected)
    deny_measured(graph, verdicts, planning.kept, view.low.dtype)
    _apply_patterns(graph, verdicts, planning.include, Category.ALLOW, "include")
    _apply_patterns(graph, verdicts, planning.exclude, Category.DENY, "exclude")
    notes += mention_custom(graph, verdicts)
    return verdicts, agreeing


def _judge_signature(signature: Signature, planning: PlanningOptions, low: DType) -> NodeVerdict:
    policy = planning.policy
    if signature.is_custom:
        return judge_custom(signature, policy, planning.target, low)
    key = signature.dialect, signature.op
    return policy.judge(key, op_facts(signature.dialect).get(signature.op), low)


def matcher(pattern: str) -> Callable[[Node], bool]:
    """Predicate of a pattern: a glob on node names, or `op:` and a glob on operators. A node's
    exact name matches itself.
    """
    if pattern.startswith("op:"):
        glob = pattern.removeprefix("op:")
        return lambda node: node.kind is Kind.OP and fnmatch.fnmatchcase(node.op, glob)
    return lambda node: node.name == pattern or fnmatch.fnmatchcase(node.name, pattern)


def matched(graph: Graph, pattern: str) -> list[Node]:
    """The operators and ties that a pattern selects."""
    matches = matcher(pattern)
    return [node for node in graph.nodes if node.kind in (Kind.OP, Kind.TIE) and matches(node)]


def spell_unmatched_pattern(graph: Graph, rule: str, pattern: str) -> str:
    """Error text for a pattern that matches no node, with the option that it was passed to."""
    asked = aside(ask_for(patterns_near(graph, pattern)))
    example = next((n.op for n in graph.nodes if n.kind is Kind.OP), "Softmax")
    return (
        f"{option(rule)} {pattern!r} matches no node{asked}; patterns are globs on node names, or"
        f" 'op:' and an operator such as 'op:{example}'"
    )


def _apply_patterns(
    graph: Graph,
    verdicts: list[NodeVerdict],
    patterns: Sequence[str],
    category: Category,
    rule: str,
) -> None:
    for pattern in patterns:
        nodes = matched(graph, pattern)
        if not nodes:
            raise InputError(spell_unmatched_pattern(graph, rule, pattern))
        worth = 4 * GRANTED if category is Category.ALLOW else 0
        for node in nodes:
            because = because_requested(rule, pattern)
            verdicts[node.id] = NodeVerdict(
                category=category, rule=rule, because=because, cause=None, worth=worth
            )
