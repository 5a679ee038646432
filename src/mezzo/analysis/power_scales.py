"""Power-of-two scales of a graph: which exponents its values may have, and what must change so that
every output stays the same number.

A value v that is stored as v * 2^-k has the exponent k. The rows of operators (`OpFacts.scaling`)
relate the exponents of operands and results. Values whose exponents are proportional form a
component, which has one free integer. Graph inputs and outputs, and what operators without a row
read and write, have the exponent 0: an operand that must have another exponent than its value is
multiplied by a power of two before it is read.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from fractions import Fraction
from itertools import product

from mezzo.analysis.scale_components import Component, find_components
from mezzo.analysis.scale_rows import ScaleRows
from mezzo.contracts.plans import Rescaling
from mezzo.ir.nodes import Kind, Node, Use
from mezzo.tables.scaling import Scaling


class ScaledGraph(ScaleRows):
    """A graph with the changes that give its values exponents."""

    def components(
        self, largest: Mapping[int, float], freed: Set[int] = frozenset()
    ) -> list[Component]:
        """The components, each with the largest exponents free. `largest` magnitudes of values by
        id decide which operand of a product keeps the exponent 0: the smaller one. Results in
        `freed` may be scaled although all that their node reads has the exponent 0: an operand is
        multiplied.
        """
        return find_components(self, largest, freed)

    def rescaling(self, exponents: Mapping[int, int]) -> Rescaling:
        """The changes with which values have these exponents; all others have 0.

        Raises ValueError: no changes of operands give a node's results their exponents.
        """
        operands, attributes = dict[Use, int](), dict[tuple[int, str], int]()
        moved = dict[int, int]()
        for node in self._graph.nodes:
            of_operands, of_attributes = self.shifts(node, exponents)
            for index, shift in of_operands.items():
                value = node.inputs[index]
                assert value is not None, "an operand that is scaled is there"
                operands[self.moved.get(value, Use(node.id, index))] = shift
                moved |= {each: -shift for each in self.movements(value) if each in self.moved}
            attributes |= {(node.id, name): shift for name, shift in of_attributes.items()}
        return Rescaling({**exponents, **moved}, operands, attributes)

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
            wanted = 0 if term is None else self.number_of(node, term, variables)
            shift = exponents.get(value, 0) - wanted
            if shift:
                operands[index] = shift
        for name, term in {} if row is None else row.attributes.items():
            shift = -self.number_of(node, term, variables)
            if shift and name in self.attributes(node):
                attributes[name] = shift
        return operands, attributes

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
                self.number_of(node, row.result(i), variables) != exponent
                for i, exponent in results
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
            if term.is_any or self.number_of(node, term, variables) == exponents.get(value, 0):
                continue
            if self.is_constant(value):
                if not self.is_free(value, node):
                    return None
            elif self.is_rigid(value):
                return None
            else:
                count += 1
        return count
