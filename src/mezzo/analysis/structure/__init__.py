"""Structure rules: detection of precision-sensitive multi-operator patterns, constants and chains.
One file per family, found by discovery.

A rule reads a `StructureView` and yields a `Detection` for each node that may need FP32; the policy
decides whether that denies low precision to the node.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import NamedTuple

from mezzo.analysis.estimates import Estimates, estimate
from mezzo.analysis.graph_with_facts import GraphView
from mezzo.formats.dtypes import Format
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Function, OpFacts
from mezzo.tables.policy import Finding, Lifting, Policy
from mezzo.tables.sums import LowSum


@dataclass(frozen=True, kw_only=True)
class StructureView(GraphView):
    """A graph with its operators' facts, and the queries that rules need. `low` is the
    low-precision format under consideration.
    """

    low: Format
    limited: frozenset[int] = frozenset()  # ids of constants that will be clamped to the range
    # Ids of masks that any softmax treats as in FP32; see `exact_masks`.
    masks: frozenset[int] = frozenset()
    # How the target's kernels sum that run in the format.
    sums: tuple[LowSum, ...] = ()
    # Ranges of graph inputs, by name.
    assumed: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # Graph outputs that the caller feeds back, each with its input.
    feedback: tuple[tuple[str, str], ...] = ()

    def nodes_where(self, is_wanted: Callable[[OpFacts], bool]) -> list[Node]:
        """Operators whose facts satisfy a predicate, in graph order. Evaluates it once per
        signature, of which a model has few.
        """
        import numpy as np

        codes = self.graph.columns.node_signature
        first = np.unique(codes, return_index=True)[1].tolist()
        is_match = np.array(
            [(row := self.rows[node]) is not None and is_wanted(row) for node in first], bool
        )
        return [self.graph.nodes[number] for number in np.flatnonzero(is_match[codes]).tolist()]

    @cached_property
    def estimates(self) -> Estimates:
        """The estimates of the graph's values, cached."""
        return estimate(self.graph, self.rows, self.low, self.assumed, self.limited, self.masks)

    @cached_property
    def _by_function(self) -> Mapping[Function, tuple[Node, ...]]:
        by_function: dict[Function, list[Node]] = {}
        for node in self.nodes_where(lambda row: row.function is not Function.NONE):
            by_function.setdefault(self.function(node), []).append(node)
        return {function: tuple(nodes) for function, nodes in by_function.items()}

    def nodes(self, *functions: Function) -> Iterable[Node]:
        """Operators with any of the functions, in graph order for each function."""
        for function in functions:
            yield from self._by_function.get(function, ())

    def producer(self, node: Node, operand: int) -> Node | None:
        """The node that produces an operand, through Casts and Identity operators."""
        value = node.operand(operand)
        if value is None:
            return None
        maker = self.graph.producer(value)
        passed = []
        while self._hands_on(maker) and (source := maker.inputs[0]) is not None:
            if maker.id in self._origins:
                maker = self.graph.nodes[self._origins[maker.id]]
                break
            passed.append(maker.id)
            maker = self.graph.producer(source)
        # Cached, so that many readers of a long chain traverse it once.
        self._origins.update(dict.fromkeys(passed, maker.id))
        return maker

    @cached_property
    def _origins(self) -> dict[int, int]:
        return {}

    def _hands_on(self, node: Node) -> bool:
        return bool(node.inputs) and (
            node.kind is Kind.CAST or self.function(node) is Function.IDENTITY
        )

    def producers(self, node: Node) -> list[Node]:
        """Producers of the operands in the node's compute group."""
        return self.graph.producers(node.group_inputs)

    def readers(self, node: Node) -> list[Node]:
        """Readers of the outputs in the node's compute group that read them in their own compute
        group.
        """
        graph = self.graph
        return [
            graph.nodes[use.node]
            for value in node.group_outputs
            for use in graph.uses[value]
            if graph.nodes[use.node].signature.inputs[use.operand] is Role.GROUP
        ]

    def constant(self, node: Node, operand: int) -> ConstantFacts | None:
        """Statistics of a constant operand, through data movement; None if it is computed."""
        value = node.operand(operand)
        for _ in range(8):
            if value is None or value in self.graph.constants:
                break
            maker = self.graph.producer(value)
            is_moved = self.keeps_values(maker) and maker.inputs
            if not is_moved or Role.GROUP in maker.signature.inputs[1:]:
                return None
            value = maker.inputs[0]
        return None if value is None else self.graph.constants.get(value)

    def is_decided(self, node: Node) -> bool:
        """Whether the node has a precision to decide."""
        return node.signature.dtype is not None and node.kind in (Kind.OP, Kind.TIE)


@dataclass(frozen=True, slots=True)
class Ways:
    """Forward paths from nodes: they continue through nodes that satisfy `passes` and end at nodes
    that satisfy `ends`.
    """

    view: StructureView
    passes: Callable[[Node], bool]
    ends: Callable[[Node], bool]
    memo: dict[int, bool] = field(default_factory=dict)

    def all_end(self, starts: Sequence[Node]) -> bool:
        """Whether there are starts, and every forward path from them ends. Linear in the graph over
        all calls.
        """
        return bool(starts) and all(self._end(start) for start in starts)

    def _end(self, start: Node) -> bool:
        order: list[Node] = []
        queue, visited = [start], {start.id}
        while queue:
            node = queue.pop()
            if node.id in self.memo:
                continue
            order.append(node)
            if self.passes(node):
                for reader in self._readers(node):
                    if reader.id not in visited:
                        visited.add(reader.id)
                        queue.append(reader)
        # Ids are in topological order, so in descending order readers come before producers.
        for node in sorted(order, key=lambda node: -node.id):
            readers = [] if self.ends(node) else list(self._readers(node))
            goes_on = self.passes(node) and bool(readers)
            self.memo[node.id] = self.ends(node) or (
                goes_on and all(self.memo.get(r.id, False) for r in readers)
            )
        return self.memo[start.id]

    def _readers(self, node: Node) -> Iterator[Node]:
        """All readers of the node's float outputs, graph outputs included."""
        for value in node.group_outputs:
            yield from self.view.graph.readers(value)


# Policies cannot exempt nodes with such a constant: no finite number is stored as infinity.
KEPT_ANYWAY = frozenset({"attribute-out-of-range", "constant-out-of-range"})


class Detection(NamedTuple):
    """A node that a rule detects, why, and the node that caused it. `lifting`: which calibration
    data may clear it; None for the rule's own.
    """

    node: Node
    because: str
    cause: Node | None = None
    lifting: Lifting | None = None


@dataclass(frozen=True, slots=True)
class StructureRule:
    """A named rule. `detect` must take time linear in the graph; nodes without a precision to
    decide are ignored.

    `lifting`: which calibration data may clear its findings.
    """

    name: str
    summary: str
    detect: Callable[[StructureView], Iterable[Detection]]
    lifting: Lifting = Lifting.NEVER

    def findings(self, view: StructureView) -> Iterator[Finding]:
        for node, because, cause, lifting in self.detect(view):
            if view.is_decided(node):
                yield Finding(
                    node=node.id,
                    rule=self.name,
                    because=because,
                    cause=None if cause is None or cause is node else cause.id,
                    lifting=lifting,
                )


# Rules of every policy: they keep operators in the integer kernels of an already quantized model.
BINDING = frozenset({"quantized-part", "quantized-unit", "quantized-weight"})


@cache
def structure_rules() -> tuple[StructureRule, ...]:
    """The rules of all modules in this package, by name."""
    rules: list[StructureRule] = []
    for module in pkgutil.iter_modules(__path__):
        rules += importlib.import_module(f"{__name__}.{module.name}").RULES
    return tuple(sorted(rules, key=lambda rule: rule.name))


def rules_of(policy: Policy) -> tuple[StructureRule, ...]:
    """The rules whose findings deny low precision under a policy."""
    named = policy.findings
    return tuple(
        rule for rule in structure_rules() if named is None or rule.name in named | BINDING
    )
