"""Power-of-two scales of a graph: which exponents its values may have, and what must change so that
every output stays the same number.

A value v that is stored as v * 2^-k has the exponent k. The rows of operators (`OpFacts.scaling`)
relate the exponents of operands and results. Values whose exponents are proportional form a
component, which has one free integer. Graph inputs and outputs, and what operators without a row
read and write, have the exponent 0: an operand that must have another exponent than its value is
multiplied by a power of two before it is read.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.contracts.plans import Rescaling
from mezzo.formats.dtypes import FLOATING, HIGH
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.tables.facts import Function
from mezzo.tables.scaling import Scaling, Term, read_scaling

# A constant with several readers may be copied for them up to this many elements.
_COPIED = 1 << 12
# Exponents of Pow for which runtimes multiply, so that the result is exactly proportional.
_POWERS = frozenset({1.0, 2.0, 3.0})
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


class ScaledGraph:
    """A graph with the rows of its operators; constants may take any exponent."""

    def __init__(self, view: GraphView) -> None:
        self._view, self._graph = view, view.graph
        self._constants = {
            value
            for value in view.graph.constants
            if view.graph.producer(value).kind is Kind.SOURCE
        }
        self._open = _open_scopes(view.graph)

    def components(
        self, largest: Mapping[int, float], freed: Set[int] = frozenset()
    ) -> list[Component]:
        """The components, each with the largest exponents free. `largest` magnitudes of values by
        id decide which operand of a product keeps the exponent 0: the smaller one. Results in
        `freed` may be scaled although all that their node reads has the exponent 0: an operand is
        multiplied.
        """
        return _Builder(self, largest, freed).components()

    def rescaling(self, exponents: Mapping[int, int]) -> Rescaling:
        """The changes with which values have these exponents; all others have 0.

        Raises ValueError: no changes of operands give a node's results their exponents.
        """
        operands, attributes = dict[Use, int](), dict[tuple[int, str], int]()
        for node in self._graph.nodes:
            of_operands, of_attributes = self.shifts(node, exponents)
            operands |= {Use(node.id, index): shift for index, shift in of_operands.items()}
            attributes |= {(node.id, name): shift for name, shift in of_attributes.items()}
        return Rescaling(exponents, operands, attributes)

    def shifts(
        self, node: Node, exponents: Mapping[int, int]
    ) -> tuple[dict[int, int], dict[str, int]]:
        """The powers of two by which a node's operands, by index, and attributes are multiplied.
        Errors as of `rescaling`.
        """
        operands, attributes = dict[int, int](), dict[str, int]()
        variables = self._solve(node, exponents)
        if node.kind is Kind.TIE:
            return operands, attributes  # its values agree
        row = self.row(node)
        for index, value in self.float_operands(node):
            term = None if row is None else row.operand(index)
            if term is not None and term.is_any:
                continue
            wanted = 0 if term is None else self._number(node, term, variables)
            shift = exponents.get(value, 0) - wanted
            if shift:
                operands[index] = shift
        for name, term in {} if row is None else row.attributes.items():
            shift = -self._number(node, term, variables)
            if shift and name in self.attributes(node):
                attributes[name] = shift
        return operands, attributes

    # -- queries -----------------------------------------------------------------------------------

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
        has_power = any(term.by_operand for term in scaling.results)
        return None if has_power and self.power(node) is None else scaling

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
        """Whether a value is a stored constant."""
        return value in self._constants

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

    # -- one node ----------------------------------------------------------------------------------

    def _number(self, node: Node, term: Term, variables: Mapping[str, int]) -> int:
        total = sum(factor * variables[name] for name, factor in term.factors.items())
        if not term.by_operand:
            return total
        power = self.power(node)
        assert power is not None, "a row with a power applies where there is one"
        return total * int(power)

    def _solve(self, node: Node, exponents: Mapping[int, int]) -> dict[str, int]:
        """The variables of a node's row that give its results their exponents, with the fewest
        multiplied operands. Raises ValueError: there are none.
        """
        results = [(i, exponents.get(value, 0)) for i, value in self.float_results(node)]
        row = self.row(node)
        if node.kind is Kind.TIE:
            read = {exponents.get(value, 0) for _, value in self.float_operands(node)}
            if len(read.union(exponent for _, exponent in results)) > 1:
                raise ValueError(f"{node.name!r} joins values of several scales")
            return {}
        if row is None:
            if any(exponent for _, exponent in results):
                raise ValueError(f"the results of {node.name!r} cannot be scaled")
            return {}
        best: tuple[int, dict[str, int]] | None = None
        for variables in self._candidates(node, row, exponents, results):
            if any(
                self._number(node, row.result(i), variables) != exponent for i, exponent in results
            ):
                continue
            count = self._count_changes(node, row, variables, exponents)
            if count is not None and (best is None or count < best[0]):
                best = count, variables
        if best is None:
            raise ValueError(f"no scales of its operands give {node.name!r} the result's")
        return best[1]

    def _candidates(
        self,
        node: Node,
        row: Scaling,
        exponents: Mapping[int, int],
        results: Sequence[tuple[int, int]],
    ) -> Iterator[dict[str, int]]:
        """Variables by the operands' exponents or 0; those of constants follow from the results."""
        choices: dict[str, dict[int, None]] = {}
        names = {
            name: None
            for term in (*row.operands, *row.results, *row.attributes.values())
            for name in term.factors
        }
        operands = [
            (row.operand(index), exponents.get(value, 0))
            for index, value in self.float_operands(node)
            if not self.is_constant(value)
        ]
        for term, exponent in (*operands, *((row.result(i), number) for i, number in results)):
            if len(term.factors) == 1 and not term.by_operand:
                [(name, factor)] = term.factors.items()
                of_value = Fraction(exponent, factor)
                if of_value.denominator == 1:
                    choices.setdefault(name, {})[int(of_value)] = None
        for name in choices:
            choices[name][0] = None
        for numbers in product(*choices.values()):
            variables = dict(zip(choices, numbers, strict=True))
            for index, exponent in results:
                term = row.result(index)
                # Of several constants, the first takes what is left.
                unknown = [name for name in term.factors if name not in variables]
                if unknown and not term.by_operand:
                    known = sum(
                        factor * variables[name]
                        for name, factor in term.factors.items()
                        if name in variables
                    )
                    left = Fraction(exponent - known, term.factors[unknown[0]])
                    if left.denominator == 1:
                        variables[unknown[0]] = int(left)
            yield {name: variables.get(name, 0) for name in names}

    def _count_changes(
        self,
        node: Node,
        row: Scaling,
        variables: Mapping[str, int],
        exponents: Mapping[int, int],
    ) -> int | None:
        """How many operands must be multiplied; None if one of them cannot be."""
        count = 0
        for index, value in self.float_operands(node):
            term = row.operand(index)
            if term.is_any or self._number(node, term, variables) == exponents.get(value, 0):
                continue
            if self.is_constant(value):
                if not self.is_free(value, node):
                    return None
            elif self.is_rigid(value):
                return None
            else:
                count += 1
        return count


def _open_scopes(graph: Graph) -> Collection[int]:
    """The main graph, and subgraphs of control flow in it; not the bodies of functions."""
    scopes = set[int]()
    for number, scope in enumerate(graph.scopes):
        if scope.parent is None or (scope.parent in scopes and not scope.is_called):
            scopes.add(number)
    return scopes


class _Builder:
    """Joins values with proportional exponents, node by node: a weighted union-find."""

    def __init__(self, graph: ScaledGraph, largest: Mapping[int, float], freed: Set[int]) -> None:
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
