"""Fusions of a runtime across Casts: a fusion may absorb the Casts at its border, so that its
kernel gets two types; without a kernel for both the model fails to load.

Pure functions over a graph. Strategies see only the resulting links, which make nodes agree on a
level.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mezzo.analysis.fusion.view import FusionView
from mezzo.contracts.problem import Choice, LevelChoices, Problem
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Role

_Link = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Nodes that a runtime fuses regardless of Casts at their border, into a kernel that supports
    one input type and one scale type only.

    `core` computes the value that `tail` scales; a Cast between them is absorbed, so that the
    result has the tail's type. `makers`: the node that determines the precision of the core's
    input, and the Identity operators after it; a Cast that only the core reads is absorbed too.
    `readers`: other readers of that value with a precision. `is_read_high`: another use reads it in
    its source dtype. `is_certain`: the fusion always happens; otherwise another fusion may start
    inside the core.
    """

    formats: frozenset[DType]
    core: tuple[int, ...]
    tail: tuple[int, ...]
    makers: tuple[int, ...]
    readers: tuple[int, ...]
    is_read_high: bool = False
    is_certain: bool = True


def join_of(
    view: FusionView,
    value: int | None,
    core: Sequence[Node],
    tail: Sequence[Node],
    *,
    formats: frozenset[DType],
    is_certain: bool,
) -> Join:
    """The join of a core with the producers and the other readers of its input value.

    `value`: None if no Cast is absorbed, because the input is produced inside the core.
    """
    makers, readers, is_read_high = (
        ([], [], False) if value is None else _around(view, value, (*core, *tail))
    )
    return Join(
        formats=formats,
        core=tuple(node.id for node in core),
        tail=tuple(node.id for node in tail),
        makers=tuple(makers),
        readers=tuple(sorted(set(readers))),
        is_read_high=is_read_high,
        is_certain=is_certain,
    )


def _around(
    view: FusionView, value: int, members: Sequence[Node]
) -> tuple[list[int], list[int], bool]:
    """Producers of a value (through Identity), readers with a precision outside `members`, and
    whether one reads it in its source dtype.
    """
    graph, origin = view.graph, view.origin(value)
    maker = view.producer(origin)
    has_precision = (
        origin in maker.outputs
        and maker.signature.outputs[maker.outputs.index(origin)] is Role.GROUP
    )
    makers = [maker.id] if has_precision and maker.kind is not Kind.SOURCE else []
    inside = {node.id for node in members}
    readers, is_read_high, pending = list[int](), False, [origin]
    while pending:
        for use in graph.uses[pending.pop()]:
            reader = graph.nodes[use.node]
            passed_through = (
                reader.outputs[0] if view.is_identity(reader) and use.operand == 0 else None
            )
            if passed_through is not None:
                makers.append(reader.id)
                pending.append(passed_through)
            elif reader.id not in inside and reader.kind is not Kind.CAST:
                role = reader.signature.inputs[use.operand]
                is_read_high |= role is Role.FIXED
                readers += [reader.id] if role is Role.GROUP else []
    return makers, readers, is_read_high


def with_joins(problem: Problem, joins: Sequence[Join]) -> Problem:
    """The problem with links that give each join's input and scale one type.

    If the core stays at the base, as norms do, that type may still be a low-precision one: if the
    other readers follow the producer's level, the core is the only reader of the Cast, which is
    absorbed.
    """
    line = problem.line
    for threshold in line.thresholds:
        if line.base not in (threshold, threshold + 1):
            continue
        beyond = threshold if line.base == threshold + 1 else threshold + 1
        named = [join for join in joins if line.dtypes[beyond] in join.formats]
        if named:
            problem = _with_joins_at(problem, named, threshold, beyond)
    return problem


def _with_joins_at(problem: Problem, joins: Sequence[Join], threshold: int, beyond: int) -> Problem:
    agreeing, links, sent = _Agreeing(problem, threshold, beyond), list[_Link](), set[int]()
    for join in joins:
        for groups in _groups(join, agreeing, problem.base_outputs):
            group = next((group for group in groups if agreeing.join(group)), ())
            if agreeing.is_sent(group):
                sent.update(group)
            else:
                links += [(threshold, group[0], node) for node in group[1:]]
    linked = replace(problem, links=(*problem.links, *links))
    if not sent:
        return linked

    def send(level: int, side: LevelChoices) -> Iterable[Choice]:
        at_level = sent if level == beyond else set[int]()
        return (
            Choice.LOW if node in at_level else choice for node, choice in enumerate(side.choices)
        )

    return linked.rechosen(send)


class _Agreeing:
    """Groups of nodes that agree at a threshold, and the levels possible for each group."""

    def __init__(self, problem: Problem, threshold: int, beyond: int) -> None:
        self._roots = list(problem.linked[threshold])
        may_stay, may_cross = problem.allowed[problem.line.base], problem.allowed[beyond]
        self._bound = [False] * len(self._roots)
        self._sent = [False] * len(self._roots)
        for node in range(len(self._roots)):
            root = self._root(node)
            self._bound[root] |= bool(may_stay[node] and not may_cross[node])
            self._sent[root] |= bool(may_cross[node] and not may_stay[node])
        self._is_absent = problem.is_absent

    def is_bound(self, nodes: Sequence[int]) -> bool:
        """Whether one of the nodes can only be at the base."""
        return any(self._bound[self._root(node)] for node in nodes)

    def is_sent(self, nodes: Sequence[int]) -> bool:
        """Whether one of the nodes can only be at the other level."""
        return any(self._sent[self._root(node)] for node in nodes)

    def has_precision(self, node: int) -> bool:
        return not self._is_absent[node]

    def join(self, nodes: Sequence[int]) -> bool:
        """Merge nodes into a group; False if one is bound to the base and another to the other
        level.
        """
        roots = {self._root(node) for node in nodes}
        is_bound, is_sent = any(self._bound[r] for r in roots), any(self._sent[r] for r in roots)
        if is_bound and is_sent:
            return False
        first = min(roots, default=None)
        if first is not None:
            for root in roots:
                self._roots[root] = first
            self._bound[first], self._sent[first] = is_bound, is_sent
        return True

    def _root(self, node: int) -> int:
        while self._roots[node] != node:
            self._roots[node] = self._roots[self._roots[node]]
            node = self._roots[node]
        return node


def _groups(
    join: Join, agreeing: _Agreeing, base_outputs: frozenset[int]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Tuples of alternative groups; of each tuple the first feasible group is joined."""
    inside = (*join.core, *join.tail)
    all_nodes = (*inside, *join.makers)
    yield (join.core,)
    if not agreeing.is_bound(join.core) or not join.is_certain:
        yield all_nodes, inside
    elif not join.makers or (
        (join.is_read_high or agreeing.is_bound(join.readers)) and len(join.makers) == 1
    ):
        # There is no Cast, or it has other readers and stays: the core reads the base type.
        yield (inside,)
    elif (
        join.is_read_high
        or base_outputs.intersection(join.makers)
        or agreeing.is_bound((*join.makers, *join.readers, *join.tail))
    ):
        yield all_nodes, inside
    else:
        following = (
            node
            for node in join.readers
            if agreeing.has_precision(node) and not agreeing.is_sent([node])
        )
        yield (*join.makers, *join.tail, *following), inside
