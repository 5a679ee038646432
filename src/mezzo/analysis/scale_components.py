"""Components of a graph's power-of-two scales: values whose exponents are proportional."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction

from mezzo.analysis.scale_rows import ScaleRows
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.scaling import Scaling, Term

_ZERO = 0  # the element of the union-find that is 0


@dataclass(frozen=True, slots=True)
class Component:
    """Values with proportional exponents: `factors` by value id, integers without a common
    divisor.
    """

    factors: Mapping[int, int]

    def exponents(self, scale: int) -> dict[int, int]:
        """The exponent of each value if the component's free integer is `scale`."""
        return {value: factor * scale for value, factor in self.factors.items() if scale}


def find_components(
    rows: ScaleRows, largest: Mapping[int, float], freed: Set[int]
) -> list[Component]:
    """The components, as `ScaledGraph.components` says."""
    return _Builder(rows, largest, freed).components()


class _Builder:
    """Joins values with proportional exponents, node by node: a weighted union-find."""

    def __init__(self, graph: ScaleRows, largest: Mapping[int, float], freed: Set[int]) -> None:
        self._graph, self._largest, self._freed = graph, largest, freed
        # An element is its factor times its parent. Values come after the element that is 0.
        self._parents = list(range(graph.count + 1))
        self._factors = [Fraction(1)] * (graph.count + 1)
        self._sizes = [1] * (graph.count + 1)
        self._log: list[int] = []  # roots that were attached, to undo

    def components(self) -> list[Component]:
        for node in self._graph.nodes:
            self._add(node)
        members: dict[int, dict[int, Fraction]] = {}
        for element in range(1, len(self._parents)):
            root, factor = self._find(element)
            if root != _ZERO:
                members.setdefault(root, {})[element] = factor
        found = []
        for factors in members.values():
            unit = math.lcm(*(factor.denominator for factor in factors.values()))
            shared = math.gcd(*(int(factor * unit) for factor in factors.values()))
            values = {
                element - 1: int(factor * unit) // shared
                for element, factor in factors.items()
                if element <= self._graph.count and self._graph.is_scaled(element - 1)
            }
            if values:
                found.append(Component(values))
        return found

    def _add(self, node: Node) -> None:
        graph = self._graph
        for _, value in graph.float_results(node):
            if graph.is_fixed(value):
                self._join(value + 1, _ZERO)
        if node.kind is Kind.TIE:
            self._add_tie(node)
            return
        row, place, count = graph.row(node), len(self._log), len(self._parents)
        if row is not None and self._add_row(node, row):
            return
        while len(self._log) > place:
            self._detach(self._log.pop())
        del self._parents[count:], self._factors[count:], self._sizes[count:]
        for _, value in graph.float_results(node):
            self._join(value + 1, _ZERO)
        for _, value in graph.float_operands(node):
            if graph.is_rigid(value):
                self._join(value + 1, _ZERO)

    def _add_tie(self, node: Node) -> None:
        values = [value for _, value in (*self._graph.float_operands(node),)]
        values += [value for _, value in self._graph.float_results(node)]
        for value in values:
            is_constant = self._graph.is_constant(value)
            self._join(values[0] + 1, _ZERO if is_constant else value + 1)

    def _add_row(self, node: Node, row: Scaling) -> bool:
        """Whether the relations of a row hold together with those before."""
        graph = self._graph
        operands = [(row.operand(i), value) for i, value in graph.float_operands(node)]
        results = [(row.result(i), value) for i, value in graph.float_results(node)]
        elements: dict[str, int] = {}
        bound, free, soft = dict[str, int](), set[str](), dict[str, int]()
        for term, value in operands:
            for name in term.factors if len(term.factors) == 1 else ():
                if not graph.is_constant(value) and self._find(value + 1)[0] != _ZERO:
                    bound.setdefault(name, value)
                elif graph.is_constant(value) and graph.is_free(value, node):
                    free.add(name)
                elif not graph.is_constant(value) and not graph.is_rigid(value):
                    soft.setdefault(name, value)
        for term, value in results:
            if value in self._freed and len(term.factors) == 1 and not term.by_operand:
                bound = {**{name: soft[name] for name in term.factors if name in soft}, **bound}
        mixed = [term for term, _ in (*operands, *results) if len(term.factors) > 1]
        at_zero = self._read_at_zero(mixed, bound)
        names = {name for term, _ in (*operands, *results) for name in term.factors}
        absorbed = free - bound.keys()
        for term in mixed:
            absorbed -= {*[name for name in term.factors if name in absorbed][1:]}
        for name in sorted(names):
            elements[name] = self._new()
            if name in at_zero or (name not in bound and name not in absorbed):
                self._join(elements[name], _ZERO)
        whole: dict[tuple[tuple[str, int], ...], int] = {}
        for term, value in (*operands, *results):
            is_result = (term, value) in results
            is_constant = graph.is_constant(value) and not is_result
            if term.is_any or (is_constant and graph.is_free(value, node)):
                continue
            element = _ZERO if is_constant else value + 1
            is_soft = not is_result and not graph.is_rigid(value) and not is_constant
            if is_soft and (
                self._find(element)[0] == _ZERO
                or (len(term.factors) == 1 and at_zero.issuperset(term.factors))
                or not term.factors
            ):
                continue
            if not self._relate(node, term, element, elements, absorbed, whole):
                return False
        return True

    def _relate(
        self,
        node: Node,
        term: Term,
        element: int,
        elements: Mapping[str, int],
        absorbed: Set[str],
        whole: dict[tuple[tuple[str, int], ...], int],
    ) -> bool:
        """Whether an element can have a term's exponent."""
        if term.by_operand:
            power = self._graph.power(node)
            assert power is not None, "a row with a power applies where there is one"
            [(name, factor)] = term.factors.items()
            return name not in absorbed and self._join(
                element, elements[name], Fraction(factor) * int(power)
            )
        if len(term.factors) > 1 and not absorbed.isdisjoint(term.factors):
            # A constant takes whatever is left, so the sum is a variable of its own.
            key = tuple(sorted(term.factors.items()))
            if key not in whole:
                if whole:
                    return False
                whole[key] = self._new()
            return self._join(element, whole[key])
        roots: dict[int, Fraction] = {}
        for name, factor in term.factors.items():
            root, own = self._find(elements[name])
            if root != _ZERO:
                roots[root] = roots.get(root, Fraction(0)) + factor * own
        roots = {root: factor for root, factor in roots.items() if factor}
        if not roots:
            return self._join(element, _ZERO)
        if len(roots) > 1:
            return False
        [(root, whole_factor)] = roots.items()
        return self._join(element, root, whole_factor)

    def _read_at_zero(self, mixed: Sequence[Term], bound: Mapping[str, int]) -> set[str]:
        """Variables of products of two activations that are 0: all but that of the largest operand,
        unless their exponents are proportional anyway.
        """
        at_zero = set[str]()
        for term in mixed:
            live = [name for name in term.factors if name in bound and name not in at_zero]
            if len({self._find(bound[name] + 1)[0] for name in live}) > 1:
                kept = max(live, key=lambda name: self._largest.get(bound[name], 0.0))
                at_zero.update(name for name in live if name != kept)
        return at_zero

    # -- union-find --------------------------------------------------------------------------------

    def _new(self) -> int:
        self._parents.append(len(self._parents))
        self._factors.append(Fraction(1))
        self._sizes.append(1)
        return len(self._parents) - 1

    def _find(self, element: int) -> tuple[int, Fraction]:
        """The root of an element, and its factor of it."""
        factor = Fraction(1)
        while self._parents[element] != element:
            factor *= self._factors[element]
            element = self._parents[element]
        return element, factor

    def _join(self, left: int, right: int, factor: Fraction = Fraction(1)) -> bool:
        """Whether left = factor * right, which must not be 0, holds with the relations before."""
        (first, own), (second, other) = self._find(left), self._find(right)
        other *= factor
        if first == second:
            return first == _ZERO or own == other
        if _ZERO in (first, second):
            attached = second if first == _ZERO else first
            self._attach(attached, _ZERO, Fraction(1))
        elif self._sizes[first] < self._sizes[second]:
            self._attach(first, second, other / own)
        else:
            self._attach(second, first, own / other)
        return True

    def _attach(self, root: int, parent: int, factor: Fraction) -> None:
        self._parents[root], self._factors[root] = parent, factor
        self._sizes[parent] += self._sizes[root]
        self._log.append(root)

    def _detach(self, root: int) -> None:
        self._sizes[self._parents[root]] -= self._sizes[root]
        self._parents[root], self._factors[root] = root, Fraction(1)
