"""Puts facts, policy, target and strategy together: graph in, assignment and reasons out. Pure, and knows no IR."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mezzo.dtypes import FORMATS, HIGH, DType
from mezzo.errors import InputError
from mezzo.facts import Cost, Function, OpFacts
from mezzo.findings import check_assumed, deny_measured, deny_suspected, lift_rules, notes_on_estimates
from mezzo.graph import Graph, Kind, Node, Signature, Use
from mezzo.ops import op_facts
from mezzo.plans import Reason
from mezzo.policy import GRANTED, Category, Evidence, NamedFinding, Policy, Verdict
from mezzo.promotion import UNTROUBLED, untroubled
from mezzo.rules import apply_function, apply_rules, mention_idle, mention_missing, nodes_in
from mezzo.selectors import Tier
from mezzo.strategy import Choice, MeasuredCosts, Problem, Strategy
from mezzo.structure import View
from mezzo.structure.masks import mask_limits
from mezzo.target import Refusal, Target


@dataclass(frozen=True, slots=True)
class ErrorPrice:
    """What a strategy pays for running a node low, in cost units: the price of the error that this makes."""

    cost: int
    because: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asks for. `include` and `exclude` are globs on node names or `op:` and a glob on operators.

    `io` maps names of graph inputs and outputs to a dtype; `io_default` is for the others: HIGH keeps them, None lets
    outputs take what their producer makes.
    `clamps_constants`: what is past the range is stored as the largest finite number, and protects nobody.
    `keep_regions` are left out of the pass; `fixed_regions` run in the dtype given. Both are patterns of `ByRegion`.
    `assumed` are the ends of graph inputs, by name, for what is estimated without data. `found` are facts measured on
    data, which deny their nodes as structure findings do, and so does `kept`, what was decided when the model was made;
    `lifted`, by node name, tells what was measured of nodes, so that what only suspected otherwise does not count;
    `error_prices`, by node name, and `measured` weigh what a strategy chooses.
    """

    low: DType
    policy: Policy
    strategy: Strategy
    target: Target
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    io: Mapping[str, DType] = field(default_factory=dict)
    io_default: DType | None = HIGH
    clamps_constants: bool = False
    keep_regions: tuple[str, ...] = ()
    fixed_regions: tuple[tuple[str, DType], ...] = ()
    found: tuple[NamedFinding, ...] = ()
    lifted: Mapping[str, Evidence] = field(default_factory=dict)
    error_prices: Mapping[str, ErrorPrice] = field(default_factory=dict)
    measured: MeasuredCosts | None = None
    assumed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    kept: tuple[NamedFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """Everything decided before a strategy runs: verdicts per node id, bounds of constants by value id, and what the
    user should hear.
    """

    problem: Problem
    verdicts: tuple[Verdict, ...]
    limits: Mapping[int, float]
    notes: tuple[str, ...] = ()


_KEEPS = Verdict(Category.CLEAR, "interface", "its dtype is the caller's contract")
_TIE = Verdict(Category.CLEAR, "tie", "carries values across a body's border without arithmetic")
_CAST = Verdict(Category.CLEAR, "existing-cast", "rounds on purpose")
_SOURCE = Verdict(Category.CLEAR, "source", "is stored or cast anew in each dtype that is read")
_NONE = Verdict(Category.CLEAR, "no-float", "computes no floats of its own")
_BY_KIND = {Kind.INPUT: _KEEPS, Kind.OUTPUT: _KEEPS, Kind.TIE: _TIE, Kind.CAST: _CAST, Kind.SOURCE: _SOURCE}


def rows_of(graph: Graph) -> tuple[OpFacts | None, ...]:
    """The facts of each operator; None for what is no operator, and for operators without a row."""
    columns = graph.columns
    rows = [op_facts(signature.dialect).get(signature.op) for signature in columns.signatures]
    return tuple([rows[code] for code in columns.node_signature.tolist()])


def judge(graph: Graph, wishes: Wishes) -> Judged:
    """Give every node its verdict and its choice.

    Raises:
        InputError: a pattern or an interface name matches nothing, or asks for what cannot be.
    """
    rows = rows_of(graph)
    view = View(graph, rows, FORMATS[wishes.low], assumed=wishes.assumed)
    limits = _limits(view, wishes)
    notes: list[str] = []
    view = replace(view, limited=frozenset(limits))
    check_assumed(graph, wishes.assumed)
    verdicts = _verdicts(view, wishes, notes)
    notes += notes_on_estimates(view, wishes.policy)
    choices = _choices(view, verdicts, wishes)
    _fix_regions(graph, verdicts, choices, wishes, notes)
    if wishes.policy.promotes_untroubled:
        for number in untroubled(graph, rows, verdicts, choices, wishes.low):
            verdicts[number] = replace(UNTROUBLED, lift=verdicts[number].lift)
    categories = tuple(
        v.category if choice is not Choice.ABSENT else None for v, choice in zip(verdicts, choices, strict=True)
    )
    costs: tuple[Cost | None, ...] = tuple(None if row is None else row.cost for row in rows)
    worths = tuple(v.worth for v in verdicts)
    with_outputs = verdicts if wishes.policy.may_hand_on_high else ()
    hands_on_high = frozenset(number for number, verdict in enumerate(with_outputs) if verdict.output is HIGH)
    prices = wishes.error_prices
    penalties = tuple(prices[n.name].cost if n.name in prices else 0 for n in graph.nodes) if prices else None
    problem = Problem(
        graph, HIGH, wishes.low, tuple(choices), categories, worths, costs, wishes.target.costs, hands_on_high,
        penalties, wishes.measured,
    )  # fmt: skip
    if wishes.io or wishes.fixed_regions:
        _check_links(problem, verdicts, wishes)
    return Judged(problem, tuple(verdicts), limits, tuple(notes))


def _limits(view: View, wishes: Wishes) -> Mapping[int, float]:
    """Bounds of the constants that are stored within bounds."""
    found = dict(mask_limits(view)) if wishes.policy.limits_masks else {}
    if wishes.clamps_constants:
        for value, facts in view.graph.constants.items():
            if facts.largest >= view.low.overflow_from:
                found.setdefault(value, view.low.max_finite)
    return found


def _verdicts(view: View, wishes: Wishes, notes: list[str]) -> list[Verdict]:
    graph = view.graph
    columns = graph.columns
    by_signature = [
        _judge_signature(signature, wishes) if signature.dtype is not None else _NONE
        for signature in columns.signatures
    ]
    verdicts = [by_signature[code] for code in columns.node_signature.tolist()]
    lift_rules(graph, verdicts, wishes.policy, wishes.low, wishes.lifted)
    for number in np.flatnonzero(~columns.is_kind(Kind.OP)).tolist():
        verdicts[number] = _BY_KIND[graph.nodes[number].kind]
    notes += mention_missing(graph, verdicts, wishes.policy)
    selected = apply_rules(graph, verdicts, wishes.policy, wishes.low, Tier.ATTRIBUTE)
    deny_suspected(view, verdicts, wishes.policy, wishes.lifted)
    deny_measured(graph, verdicts, wishes.found)
    selected |= apply_rules(graph, verdicts, wishes.policy, wishes.low, Tier.REGION)
    selected |= apply_rules(graph, verdicts, wishes.policy, wishes.low, Tier.NAME)
    apply_function(graph, verdicts, wishes.policy, wishes.low)
    notes += mention_idle(graph, wishes.policy, selected)
    deny_measured(graph, verdicts, wishes.kept)
    _apply_patterns(graph, verdicts, wishes.include, Category.ALLOW, "include")
    _apply_patterns(graph, verdicts, wishes.exclude, Category.DENY, "exclude")
    return verdicts


def _judge_signature(signature: Signature, wishes: Wishes) -> Verdict:
    key = signature.dialect, signature.op
    return wishes.policy.judge(key, op_facts(signature.dialect).get(signature.op), wishes.low)


def matcher(pattern: str) -> Callable[[Node], bool]:
    """Read a pattern: a glob on node names, or `op:` and a glob on operators. A name with no glob signs matches
    itself.
    """
    if pattern.startswith("op:"):
        wanted = pattern.removeprefix("op:")
        return lambda node: node.kind is Kind.OP and fnmatch.fnmatchcase(node.op, wanted)
    return lambda node: node.name == pattern or fnmatch.fnmatchcase(node.name, pattern)


def _apply_patterns(
    graph: Graph, verdicts: list[Verdict], patterns: Sequence[str], category: Category, rule: str
) -> None:
    for pattern in patterns:
        matches = matcher(pattern)
        found = [n for n in graph.nodes if n.kind in (Kind.OP, Kind.TIE) and matches(n)]
        if not found:
            raise InputError(
                f"--{rule} {pattern!r} matches no node; patterns are globs on node names, or 'op:' and an operator "
                f"such as 'op:{next((n.op for n in graph.nodes if n.kind is Kind.OP), 'Softmax')}'"
            )
        worth = 4 * GRANTED if category is Category.ALLOW else 0
        for node in found:
            because = f"the user asked so with --{rule} {pattern!r}"
            verdicts[node.id] = Verdict(category, rule, because, None, worth)


def _fix_regions(
    graph: Graph, verdicts: list[Verdict], choices: list[Choice], wishes: Wishes, notes: list[str]
) -> None:
    """Give regions the precision that the user has fixed; the rest is planned around them."""
    wanted = [(pattern, HIGH, "keep-region") for pattern in wishes.keep_regions]
    wanted += [(pattern, dtype, "fix-region") for pattern, dtype in wishes.fixed_regions]
    for pattern, dtype, option in wanted:
        held = nodes_in(graph, pattern)
        if not held:
            raise InputError(
                f"--{option} {pattern!r} matches no node; regions are paths of scopes such as 'encoder/layer.3', and "
                "'mezzo plan MODEL --nodes' lists every node by its path"
            )
        because = f"the user asked so with --{option} {pattern!r}"
        for number, node in ((number, graph.nodes[number]) for number in held):
            if choices[number] not in (Choice.FREE, Choice.HIGH):
                continue
            is_refused = node.kind is Kind.OP and refusal_of(node, wishes) is not None
            is_held = is_refused or verdicts[number].category is not Category.DENY
            if dtype is not HIGH and choices[number] is Choice.HIGH and is_held:
                notes.append(f"node {node.name!r} cannot run in {dtype} here, so it stays {HIGH}")
                continue
            is_low = dtype is not HIGH and wishes.low in node.signature.legal
            verdicts[number] = Verdict(Category.ALLOW if is_low else Category.DENY, option, because)
            choices[number] = Choice.LOW if is_low else Choice.HIGH


def _choices(view: View, verdicts: Sequence[Verdict], wishes: Wishes) -> list[Choice]:
    graph = view.graph
    _check_interface(graph, wishes)
    columns = graph.columns
    by_signature = [_choice_of(signature, wishes) for signature in columns.signatures]
    choices = [by_signature[code] for code in columns.node_signature.tolist()]
    for number in np.flatnonzero(columns.is_kind(Kind.INPUT, Kind.OUTPUT)).tolist():
        choices[number] = _interface_choice(graph, graph.nodes[number], wishes)
    for number in np.flatnonzero(columns.is_kind(Kind.SOURCE)).tolist():
        choices[number] = Choice.ABSENT
    for number, verdict in enumerate(verdicts):
        if verdict.category is Category.DENY and choices[number] is Choice.FREE:
            choices[number] = Choice.HIGH
    for node in view.nodes(Function.IDENTITY):
        if choices[node.id] is Choice.FREE and _is_second_name(graph, node, choices):
            choices[node.id] = Choice.HIGH
    target, low = wishes.target, wishes.low
    refusable = [target.may_refuse(s.dialect, s.op, s.version, low) for s in columns.signatures]
    for number in np.flatnonzero(np.array(refusable, bool)[columns.node_signature]).tolist():
        if choices[number] is Choice.FREE and refusal_of(graph.nodes[number], wishes) is not None:
            choices[number] = Choice.HIGH
    return choices


def _is_second_name(graph: Graph, node: Node, choices: Sequence[Choice]) -> bool:
    """Whether an operator only gives what a cast of the model made FP32 the name of an FP32 output: it follows it."""
    if Use(node.id, 0) not in graph.widened:
        return False
    readers = [graph.nodes[use.node] for value in node.outputs if value is not None for use in graph.uses[value]]
    return bool(readers) and all(r.kind is Kind.OUTPUT and choices[r.id] is Choice.HIGH for r in readers)


def _choice_of(signature: Signature, wishes: Wishes) -> Choice:
    """What the schema leaves to decide about an operator."""
    if signature.dtype is None:
        return Choice.ABSENT
    if signature.dtype is wishes.low:
        return Choice.LOW
    return Choice.FREE if wishes.low in signature.legal else Choice.HIGH


def _interface_choice(graph: Graph, node: Node, wishes: Wishes) -> Choice:
    value = node.outputs[0] if node.kind is Kind.INPUT else node.inputs[0]
    name = node.name.partition(" ")[2]
    wanted = wishes.io.get(name)
    if wanted is None and wishes.io_default is None:
        can_follow = node.kind is Kind.OUTPUT and wishes.low in node.signature.legal
        return Choice.FREE if can_follow else Choice.HIGH
    if wanted is None:
        held = node.signature.dtype
        is_plain = value is not None and graph.values[value].is_castable
        wanted = wishes.io_default if held is HIGH and is_plain else held
    return Choice.LOW if wanted is wishes.low and wishes.low in node.signature.legal else Choice.HIGH


def _check_interface(graph: Graph, wishes: Wishes) -> None:
    if not wishes.io:
        return
    names = {n.name.partition(" ")[2]: n for n in graph.nodes if n.kind in (Kind.INPUT, Kind.OUTPUT)}
    for name, dtype in wishes.io.items():
        if name not in names:
            raise InputError(
                f"--io {name!r} is no input or output of the model; choose one of {', '.join(sorted(names))}"
            )
        if dtype not in names[name].signature.legal:
            raise InputError(
                f"--io {name}={dtype}: {name!r} cannot hold {dtype} at this opset, or holds no f32; leave it out"
            )


def _check_links(problem: Problem, verdicts: Sequence[Verdict], wishes: Wishes) -> None:
    """A sequence cannot be cast, so whoever holds one may only be asked for what its other holders allow."""
    graph, choices = problem.graph, problem.choices
    fixed = {number: choice for number, choice in enumerate(choices) if choice in (Choice.HIGH, Choice.LOW)}
    first: dict[tuple[int, Choice], int] = {}
    for number, choice in fixed.items():
        first.setdefault((problem.linked[number], choice), number)
    for number, choice in fixed.items():
        node = graph.nodes[number]
        name = node.name.partition(" ")[2]
        is_asked = node.kind in (Kind.INPUT, Kind.OUTPUT) and name in wishes.io
        other = first.get((problem.linked[number], Choice.HIGH if choice is Choice.LOW else Choice.LOW))
        if other is None or not (is_asked or verdicts[number].rule == "fix-region"):
            continue
        held = HIGH if choice is Choice.LOW else wishes.low
        asked = f"--io {name}={wishes.io[name]}: {name!r}" if is_asked else f"{verdicts[number].because}: {node.name!r}"
        raise InputError(
            f"{asked} {'is' if is_asked else 'handles'} a sequence, which cannot be cast, and "
            f"{graph.nodes[other].name!r} holds it in {held}; ask the same of both, or leave it out"
        )


def reasons(judged: Judged, is_low: Sequence[bool], wishes: Wishes) -> list[Reason]:
    """Why each node has its precision. A node that follows names the neighbour on the way to what it follows."""
    problem = judged.problem
    found = [decided_reason(judged, node, is_low[node.id], wishes) for node in problem.graph.nodes]
    is_planned = [choice is not Choice.ABSENT for choice in problem.choices]
    queue = [n for n, reason in enumerate(found) if reason is not None and is_planned[n]]
    follow(problem.graph, is_low, is_planned, found, queue, (problem.high, problem.low), wishes.strategy.because)
    left = Reason(*wishes.strategy.leaves)
    return [
        _with_lift(reason or left, verdict, low)
        for reason, verdict, low in zip(found, judged.verdicts, is_low, strict=True)
    ]


def decided_reason(judged: Judged, node: Node, is_low: bool, wishes: Wishes) -> Reason | None:
    """Why a node has its precision, if it was decided for the node itself; None for what follows or is left over."""
    problem, verdict, choice = judged.problem, judged.verdicts[node.id], judged.problem.choices[node.id]
    if choice is Choice.ABSENT or (verdict.category is Category.DENY and choice is not Choice.LOW):
        return Reason(verdict.rule, verdict.because, verdict.cause)
    if choice is Choice.LOW and node.kind is Kind.OP and node.signature.dtype is problem.low:
        return Reason("typed", f"is {problem.low} in the model already")
    if choice is Choice.HIGH and node.kind in (Kind.OP, Kind.TIE):
        return _illegal(node, wishes)
    if node.kind in (Kind.INPUT, Kind.OUTPUT, Kind.CAST):
        return Reason(verdict.rule, verdict.because)
    if not is_low and wishes.error_prices and (price := _decisive_price(judged, node, wishes)):
        return Reason("error-budget", price.because)
    if verdict.category is Category.ALLOW and is_low:
        return Reason(verdict.rule, verdict.because, verdict.cause)
    return None


def _with_lift(reason: Reason, verdict: Verdict, is_low: bool) -> Reason:
    """Tell of a node that runs low what would have kept it from that without data."""
    if verdict.lift is None or not is_low:
        return reason
    return reason._replace(because=f"{reason.because}; lifted {verdict.lift.rule!r}: {verdict.lift.because}")


def _decisive_price(judged: Judged, node: Node, wishes: Wishes) -> ErrorPrice | None:
    """The price of a node's error, if it alone outweighs what running it low would save."""
    price = wishes.error_prices.get(node.name)
    return price if price is not None and price.cost > judged.problem.gains[node.id] else None


def refusal_of(node: Node, wishes: Wishes) -> Refusal | None:
    """Why the target cannot run a node low; None where it can."""
    signature = node.signature
    return wishes.target.refusal(signature.dialect, signature.op, signature.version, node.attributes, wishes.low)


def _illegal(node: Node, wishes: Wishes) -> Reason:
    signature, refusal = node.signature, refusal_of(node, wishes)
    if refusal is not None:
        return Reason("target", f"{wishes.target.name}: {refusal.because} ({refusal.source})")
    return Reason("schema", f"{signature.op} version {signature.version} does not allow {wishes.low}")


def follow(
    graph: Graph,
    is_low: Sequence[bool],
    is_planned: Sequence[bool],
    found: list[Reason | None],
    queue: list[int],
    dtypes: tuple[DType, DType],  # of high and low
    because: str,
) -> None:
    """Spread reasons from decided nodes, the queue, to neighbours of the same precision, nearest first."""
    at = 0
    while at < len(queue):
        node = graph.nodes[queue[at]]
        at += 1
        for other in _neighbours(graph, node):
            if found[other] is None and is_planned[other] and is_low[other] == is_low[node.id]:
                text = f"follows {node.name!r}, its neighbour in {dtypes[is_low[node.id]]}: {because}"
                found[other] = Reason("follows", text, node.id)
                queue.append(other)


def _neighbours(graph: Graph, node: Node) -> list[int]:
    made = [graph.values[v].producer for v in node.inputs if v is not None]
    read = [use.node for v in node.outputs if v is not None for use in graph.uses[v]]
    return made + read
