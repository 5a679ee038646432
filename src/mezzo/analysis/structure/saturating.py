"""Polynomials that are read only by a saturating activation, such as the cube in GELU with Tanh,
whose overflow is harmless.

Let x be the input of the polynomial, every constant have moderate size, and every sum have terms of
one sign and one parity in x. Then each value between x and the activation is a sum of powers of x,
all odd or all even, with coefficients of one sign.

- Rounding changes each term by a few units in the last place, and no terms cancel, so the
  argument u of the activation f has a relative error of a few eps. The error of f(u) is that
  times |u f'(u)|, which is below 0.49 for tanh, erf and the logistic function.
- A term overflows only where |x| is far above 1. It becomes the infinity of its sign; the other
  terms have the same sign, and no factor is zero, so no NaN arises. f(u) is then the limit of f,
  from which the exact value differs by less than 1.3e-4 for |u| > 9.
- A term that underflows is added to x itself, or is a power of an x so small that f(u) rounds to
  f(0).

So neither the range nor the error of the power matters. `tests/onnx/test_saturating.py` runs every
decomposition over the range.
"""

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from mezzo.analysis.structure import StructureRule, StructureView
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Function
from mezzo.tables.policy import Evidence

_SUMS = frozenset({Function.ADD, Function.SUBTRACT})
_PRODUCTS = frozenset({Function.MULTIPLY, Function.DIVIDE})
_POWERS = frozenset({Function.POWER, Function.SQUARE})
_MOST_INSIDE = 12  # operators between x and the activation; exporters write eight
_LEAST, _MOST = (
    1e-2,
    1e2,
)  # bounds of constants: outside them, one term may underflow while another overflows
_HIGHEST = 5.0

# Empty: this module denies no node; `saturated` gives evidence against findings of other rules.
RULES: tuple[StructureRule, ...] = ()


@dataclass(frozen=True, slots=True)
class _Term:
    """Parity in x and sign of a value's terms. A constant is even."""

    is_odd: bool
    is_negative: bool
    is_constant: bool = False


def saturated(view: StructureView) -> Mapping[str, Evidence]:
    """Evidence, by node name, that an overflow is harmless: the only reader of the value is an
    activation that has saturated.
    """
    evidence: dict[str, Evidence] = {}
    for core in view.nodes(Function.SATURATE):
        text = f"where a power passes the range, {core.name!r}, which alone reads it, has saturated"
        evidence |= {
            node.name: Evidence(text, fits=True) for node in _Polynomial(view, core).nodes()
        }
    return evidence


def may_overflow(view: StructureView) -> Collection[str]:
    """Names of nodes whose overflow is harmless: those of `saturated`, and a multiplication by a
    constant that only a saturating activation reads. The rounding of the latter may matter.
    """
    names = {*saturated(view)}
    for core in view.nodes(Function.SATURATE):
        maker = view.producer(core, 0)
        if maker is None or view.function(maker) is not Function.MULTIPLY:
            continue
        facts = [view.graph.constants.get(value) for value in maker.present_inputs]
        is_alone = all(
            use.node == core.id for value in maker.present_outputs for use in view.graph.uses[value]
        )
        if is_alone and any(each is not None and each.number for each in facts):
            names.add(maker.name)
    return names


@dataclass
class _Polynomial:
    """The operators between one value and an activation."""

    view: StructureView
    core: Node
    base: int | None = None
    terms: dict[int, _Term] = field(default_factory=dict)  # by value id

    def nodes(self) -> list[Node]:
        """Those operators, if they compute a polynomial of degree above 1 of a single value; else
        empty.
        """
        inside = self._behind()
        operands = {value for node in (*inside, self.core) for value in node.present_inputs}
        results = {node.outputs[0] for node in inside}
        bases = [value for value in sorted(operands - results) if self._number(value) is None]
        if len(bases) != 1:
            return []
        self.base = bases[0]
        has_power = False
        for node in inside:
            terms = [self._of(value) for value in node.inputs]
            result = self._result(node, [term for term in terms if term is not None])
            if None in terms or result is None:
                return []
            assert node.outputs[0] is not None, "arithmetic has a result"
            self.terms[node.outputs[0]] = result
            factors = [term for term in terms if term is not None and not term.is_constant]
            is_product = self.view.function(node) is Function.MULTIPLY and len(factors) > 1
            has_power |= is_product or self.view.function(node) in _POWERS
        return inside if has_power else []

    def _behind(self) -> list[Node]:
        """Arithmetic that only the activation reads, in graph order; empty if too much."""
        graph, members, queue = self.view.graph, {self.core.id}, list[int]()
        inside: list[Node] = []
        node = self.core
        while len(inside) <= _MOST_INSIDE:
            for value in node.present_inputs:
                maker = graph.producer(value)
                if self._is_arithmetic(maker) and -maker.id not in queue:
                    heapq.heappush(queue, -maker.id)
            # Ids are in topological order, so all readers of the node with the highest id are
            # already visited.
            while queue:
                node = graph.nodes[-heapq.heappop(queue)]
                if node.id not in members and self._readers(node) <= members:
                    break
            else:
                return sorted(inside, key=lambda node: node.id)
            members.add(node.id)
            inside.append(node)
        return []

    def _is_arithmetic(self, node: Node) -> bool:
        is_near = node.kind is Kind.OP and node.scope == self.core.scope
        return is_near and self.view.function(node) in _SUMS | _PRODUCTS | _POWERS

    def _readers(self, node: Node) -> set[int]:
        uses = self.view.graph.uses
        return {use.node for value in node.present_outputs for use in uses[value]}

    def _number(self, value: int) -> float | None:
        """The value of a scalar constant; else None."""
        facts = self.view.graph.constants.get(value)
        return None if facts is None else facts.number

    def _of(self, value: int | None) -> _Term | None:
        if value is None:
            return None
        if value == self.base:
            return _Term(is_odd=True, is_negative=False)
        number = self._number(value)
        if number is None:
            return self.terms.get(value)
        if not _LEAST <= abs(number) <= _MOST:
            return None
        return _Term(is_odd=False, is_negative=number < 0, is_constant=True)

    def _result(self, node: Node, terms: list[_Term]) -> _Term | None:
        """Parity and sign of a result; None where terms may cancel or give NaN."""
        function = self.view.function(node)
        if function is Function.SQUARE and len(terms) == 1:
            return _Term(is_odd=False, is_negative=False)
        if len(terms) != 2:
            return None
        first, second = terms
        if function in _SUMS:
            is_negative = second.is_negative is not (function is Function.SUBTRACT)
            alike = first.is_odd is second.is_odd and first.is_negative is is_negative
            return _Term(first.is_odd, first.is_negative) if alike else None
        if function in _PRODUCTS:
            if function is Function.DIVIDE and not second.is_constant:
                return None
            is_negative = first.is_negative is not second.is_negative
            return _Term(first.is_odd is not second.is_odd, is_negative)
        exponent = self._number(node.inputs[1]) if node.inputs[1] is not None else None
        if function is not Function.POWER or first.is_constant or exponent is None:
            return None
        if exponent != int(exponent) or not 1.0 <= exponent <= _HIGHEST:
            return None
        is_odd = bool(int(exponent) % 2)
        return _Term(first.is_odd and is_odd, first.is_negative and is_odd)
