"""Power-of-two scales of a graph: which exponents the values of each node may have, by the rows of
operators (`OpFacts.scaling`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.formats.dtypes import FLOATING, HIGH
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.tables.facts import Cost, Function, OpFacts
from mezzo.tables.scaling import Scaling, Term, read_scaling

# A constant with several readers may be copied for them up to this many elements.
_COPIED = 1 << 12
# Exponents of Pow for which runtimes multiply, so that the result is exactly proportional.
_POWERS = frozenset({1.0, 2.0, 3.0})


class ScaleRows:
    """A graph with the rows of its operators; constants may take any exponent."""

    def __init__(self, view: GraphView) -> None:
        self._view, self._graph = view, view.graph
        self._constants = {
            value
            for value in view.graph.constants
            if view.graph.producer(value).kind is Kind.SOURCE
        }
        self._open = _open_scopes(view.graph)
        # Constants that one movement after another hands to one reader, with the first one's use.
        self.moved: dict[int, Use] = {}
        for node in view.graph.nodes:
            self._note_movement(node)

    def _note_movement(self, node: Node) -> None:
        """Note the result of a movement of a constant, if one node reads it."""
        facts = self._view.rows[node.id]
        floats = [*self.float_operands(node)]
        if facts is None or not facts.keeps_values or len(floats) != 1 or self.row(node) is None:
            return
        [(index, value)] = floats
        [*results] = self.float_results(node)
        is_read_once = len(results) == 1 and len(self._graph.uses[results[0][1]]) == 1
        if is_read_once and self.is_constant(value) and self.is_free(value, node):
            self.moved[results[0][1]] = self.moved.get(value, Use(node.id, index))

    def movements(self, value: int) -> Iterator[int]:
        """A value, and what it is moved from, back to the stored constant."""
        yield value
        while value in self.moved:
            node = self._graph.producer(value)
            value = next(operand for _, operand in self.float_operands(node))
            yield value

    def row(self, node: Node) -> Scaling | None:
        """The row of an operator; None if its operands and results have the exponent 0."""
        facts = self._view.rows[node.id]
        if node.kind is Kind.CAST:
            return read_scaling("x -> x")
        if facts is None or facts.scaling is None or node.scope not in self._open:
            return None
        scaling = read_scaling(facts.scaling)
        if not scaling.applies(self.attributes(node)):
            return None
        if facts.function is Function.CAST and not any(self.float_results(node)):
            return None  # to integers
        if facts.cost is Cost.NORMALIZATION and None in node.inputs:
            return None  # a weight that is left out is 1
        if self._converts_integers(node, facts, scaling):
            return None
        has_power = any(term.by_operand for term in scaling.results)
        return None if has_power and self.power(node) is None else scaling

    def _converts_integers(self, node: Node, facts: OpFacts, scaling: Scaling) -> bool:
        """Whether an operand of integers takes part as floats, without a scale: PyTorch's
        operators take both together.
        """
        is_of_all = facts.cost is Cost.POINTWISE or facts.like == "Concat"
        return any(self.float_results(node)) and any(
            value is not None
            and not self._is_float(value)
            and (is_of_all or index == 0)
            and scaling.operand(index).factors
            for index, value in enumerate(node.inputs)
        )

    def attributes(self, node: Node) -> Mapping[str, object]:
        """The attributes of a node, with defaults."""
        return {**node.signature.attributes, **node.attributes}

    def float_operands(self, node: Node) -> Iterator[tuple[int, int]]:
        """Index and value of each operand that is a float."""
        for index, value in enumerate(node.inputs):
            if value is not None and self._is_float(value):
                yield index, value

    def float_results(self, node: Node) -> Iterator[tuple[int, int]]:
        """Index and value of each result that is a float."""
        for index, value in enumerate(node.outputs):
            if value is not None and self._is_float(value):
                yield index, value

    def _is_float(self, value: int) -> bool:
        return self._graph.values[value].dtype in FLOATING

    def is_fixed(self, value: int) -> bool:
        """Whether a value must have the exponent 0, by its kind alone."""
        origin = self._graph.values[value]
        kind = self._graph.nodes[origin.producer].kind
        is_pinned = kind is Kind.INPUT or (kind is Kind.SOURCE and value not in self._constants)
        return is_pinned or origin.dtype is not HIGH or origin.scope not in self._open

    def is_scaled(self, value: int) -> bool:
        """Whether a value is a float that is computed."""
        return self._is_float(value) and not self.is_constant(value)

    def is_constant(self, value: int) -> bool:
        """Whether a value is a stored constant, or the movement of one for a single reader."""
        return value in self._constants or value in self.moved

    def is_free(self, value: int, node: Node) -> bool:
        """Whether a constant may take an exponent for this reader alone."""
        origin = self._graph.values[value]
        return (
            origin.dtype is HIGH
            and origin.is_castable
            and node.kind is Kind.OP
            and (len(self._graph.uses[value]) == 1 or origin.elements <= _COPIED)
        )

    def is_rigid(self, value: int) -> bool:
        """Whether nothing can be multiplied into a value between producer and reader."""
        origin = self._graph.values[value]
        return not origin.is_castable or origin.dtype is not HIGH

    def power(self, node: Node) -> float | None:
        """The number that operand 1 holds; None if it is no constant, or no power that is exact."""
        value = node.operand(1)
        facts = None if value is None else self._graph.constants.get(value)
        number = None if facts is None else facts.number
        return number if number in _POWERS else None

    @property
    def nodes(self) -> Sequence[Node]:
        return self._graph.nodes

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self._graph.values)

    def number_of(self, node: Node, term: Term, variables: Mapping[str, int]) -> int:
        total = sum(factor * variables[name] for name, factor in term.factors.items())
        if not term.by_operand:
            return total
        power = self.power(node)
        assert power is not None, "a row with a power applies where there is one"
        return total * int(power)


def _open_scopes(graph: Graph) -> Collection[int]:
    """The main graph, and subgraphs of control flow in it; not the bodies of functions."""
    scopes = set[int]()
    for number, scope in enumerate(graph.scopes):
        if scope.parent is None or (scope.parent in scopes and not scope.is_called):
            scopes.add(number)
    return scopes
