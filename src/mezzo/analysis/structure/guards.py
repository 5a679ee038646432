"""Epsilons that keep a divisor or a logarithm's operand from zero, and that the low-precision
format loses.

An epsilon matters for rows of zeros, so their computation is simulated: from each small constant,
through additions to data and bounds on data, to the quotient. Each operator on the path is
evaluated twice, in FP32 and with rounding to the format after each step. If the divisor differs,
all nodes from the epsilon to the quotient stay in FP32. Data never clears such a finding, as it
need not contain a row of zeros.
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mezzo.analysis.estimates.at_zero import AT_ZERO
from mezzo.analysis.estimates.backward import rounded
from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.formats.dtypes import FLOATING, FORMATS, HIGH, QUANTIZED
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import OpFacts, Risk, Transfer

# Largest acceptable relative error of an epsilon; a square root halves the error.
_LARGEST_LOSS = 1 / 16
# Larger constants are no epsilons: even the inverse of their square fits in FP16.
_LARGEST_GUARD = 2.0**-8
# Maximum depth of constant folding.
_DEEPEST = 4
# Maximum number of alternatives per value: both ends of a Clip, both branches of a Where.
_MOST = 4


class _Number(NamedTuple):
    """An element of a value where data is zero or beyond a bound: computed in FP32, and with
    rounding at every step. `is_guarded`: the constant has been combined with data. `node` computed
    the number from `sources`, those of its operands.
    """

    exact: float
    low: float
    is_guarded: bool
    node: int | None = None
    sources: tuple["_Number", ...] = ()

    @property
    def is_lost(self) -> bool:
        """Whether rounding changes the number too much."""
        return not abs(self.low - self.exact) <= _LARGEST_LOSS * abs(self.exact)


def guards(view: StructureView) -> Iterable[Detection]:
    """All operators from an epsilon that the format loses to the quotient that needs it."""
    if view.low.dtype not in QUANTIZED:
        walk = _Walk(view=view)
        walk.run()
        yield from walk.detections()


@dataclass(kw_only=True)
class _Walk:
    """Forward traversal from small constants, in graph order; linear in the nodes they reach."""

    view: StructureView
    numbers: dict[int, tuple[_Number, ...]] = field(default_factory=dict)  # by value id
    # Operators with a lost epsilon, and the number.
    losses: list[tuple[Node, _Number]] = field(default_factory=list)
    queue: list[int] = field(default_factory=list)  # a heap of node ids
    queued: set[int] = field(default_factory=set)
    # Formal inputs of functions, by their operand.
    entering: dict[int, list[int]] = field(default_factory=dict)

    def run(self) -> None:
        graph = self.view.graph
        for inner, outer in graph.entered.items():
            self.entering.setdefault(outer, []).append(inner)
        for value, facts in (*graph.constants.items(), *graph.wide_constants.items()):
            number = _uniform(facts)
            if number is None and 0.0 < facts.minimum <= facts.largest <= _LARGEST_GUARD:
                number = facts.largest  # an epsilon for each channel
            if number is not None and _is_small(number):
                maker = graph.producer(value)
                self._note(
                    value, [self._constant(number, maker.id if maker.kind is Kind.OP else None)]
                )
        for node in self.view.nodes_where(lambda row: row.transfer is Transfer.CLIP):
            if node.attributes:
                self._push(node.id)
        while self.queue:
            self._visit(graph.nodes[heapq.heappop(self.queue)])

    def detections(self) -> Iterator[Detection]:
        visited: set[int] = set()
        nodes, low = self.view.graph.nodes, self.view.low.dtype
        for end, lost in self.losses:
            text = (
                f"where data is zero {end.name!r} needs {lost.exact:.3g}, of which {low} leaves"
                f" {lost.low:.3g}"
            )
            yield from self._detect(end, text, lost.node, visited)
            path = [lost]
            while path:
                number = path.pop()
                if number.node is None or number.node in visited:
                    continue
                path += number.sources
                cause = next((source.node for source in number.sources), None)
                yield from self._detect(
                    nodes[number.node], f"guards a quotient: {text}", cause, visited
                )

    def _detect(
        self, node: Node, because: str, cause: int | None, visited: set[int]
    ) -> Iterator[Detection]:
        if node.id not in visited:
            visited.add(node.id)
            yield Detection(node, because, None if cause is None else self.view.graph.nodes[cause])

    def _note(self, value: int, numbers: Sequence[_Number]) -> None:
        if numbers and value not in self.numbers:
            self.numbers[value] = tuple(numbers[:_MOST])
            for use in self.view.graph.uses[value]:
                self._push(use.node)
            for inner in self.entering.get(value, ()):
                self._note(inner, numbers)

    def _push(self, node: int) -> None:
        if node not in self.queued:
            self.queued.add(node)
            heapq.heappush(self.queue, node)

    def _visit(self, node: Node) -> None:
        row = self.view.rows[node.id]
        operands = [self._operand(node, k) for k in range(len(node.inputs))]
        if node.kind in (Kind.CAST, Kind.SOURCE, Kind.TIE):
            results = self._picked(node, operands)
        elif row is None:
            return
        else:
            self._judge(node, row, operands)
            results = self._results(node, row, operands)
        for value in node.present_outputs:
            if self.view.graph.values[value].dtype in FLOATING:
                self._note(value, list(dict.fromkeys(results)))

    def _operand(self, node: Node, index: int) -> tuple[_Number, ...]:
        """The simulated numbers of an operand; empty for data."""
        value = node.inputs[index]
        if value is None or value in self.numbers:
            return () if value is None else self.numbers[value]
        number = self._fixed(value, _DEEPEST)
        return () if number is None else (self._constant(number, None),)

    def _fixed(self, value: int, depth: int) -> float | None:
        """The scalar that a value is folded to from constants; None if it is not a scalar
        constant.
        """
        graph = self.view.graph
        facts = graph.constants.get(value) or graph.wide_constants.get(value)
        if facts is not None:
            return _uniform(facts)
        if value in graph.integers:
            return float(graph.integers[value][0]) if len(graph.integers[value]) == 1 else None
        if value in graph.entered:
            return self._fixed(graph.entered[value], depth)
        maker = graph.producer(value)
        row = self.view.rows[maker.id]
        if not depth or not maker.inputs or (maker.kind is Kind.TIE and len(maker.inputs) > 1):
            return None
        operands = [
            None if operand is None else self._fixed(operand, depth - 1) for operand in maker.inputs
        ]
        if row is None or row.transfer in _PICKING:
            return operands[0] if row is None or row.transfer is not Transfer.JOIN else None
        compute = None if row.transfer is None else AT_ZERO.get(row.transfer)
        return None if compute is None or None in operands else compute(operands)

    def _constant(self, number: float, node: int | None) -> _Number:
        return _Number(number, rounded(number, self.view.low), is_guarded=False, node=node)

    def _results(
        self, node: Node, row: OpFacts, operands: Sequence[tuple[_Number, ...]]
    ) -> list[_Number]:
        transfer = row.transfer
        if transfer is Transfer.CLIP:
            return self._clipped(node, operands)
        if transfer is Transfer.SELECT:
            return self._picked(node, operands[1:])
        if transfer is Transfer.CONTRACT:  # with zero inputs only the bias remains
            return self._picked(node, [(), *operands[2:3]])
        if transfer in _PICKING:
            return self._picked(node, operands if transfer is Transfer.JOIN else operands[:1])
        compute = None if transfer is None else AT_ZERO.get(transfer)
        if compute is None:
            return []
        operands = operands if transfer in _OF_TWO else operands[:1]
        has_data = not all(operands)
        results = []
        for sources in itertools.islice(
            itertools.product(*[options or (None,) for options in operands]), _MOST * _MOST
        ):
            present = tuple(source for source in sources if source is not None)
            is_guarded = any(source.is_guarded for source in present)
            if has_data and transfer in _PRODUCTS and not is_guarded:
                continue  # a scale is no epsilon
            exact = compute([None if source is None else source.exact for source in sources])
            low = compute([None if source is None else source.low for source in sources])
            if exact is not None and low is not None:
                results += self._number(exact, low, is_guarded or has_data, node, present)
        self.losses += [
            (node, result)
            for result in results
            if transfer in _POLES and math.isinf(result.low) and result.is_guarded
        ]
        return results

    def _number(
        self, exact: float, low: float, is_guarded: bool, node: Node, sources: tuple[_Number, ...]
    ) -> list[_Number]:
        """The result as a list; empty if FP32 loses it too."""
        exact = rounded(exact, FORMATS[HIGH])
        if not exact or not math.isfinite(exact) or math.isnan(low):
            return []
        return [_Number(exact, rounded(low, self.view.low), is_guarded, node.id, sources)]

    def _picked(self, node: Node, operands: Sequence[tuple[_Number, ...]]) -> list[_Number]:
        """Numbers of any operand; of constants, those small enough to be epsilons."""
        has_data = not all(operands)
        numbers = [
            number
            for alternatives in operands
            for number in alternatives
            if number.is_guarded or _is_small(number.exact)
        ]
        return [_Number(n.exact, n.low, n.is_guarded or has_data, node.id, (n,)) for n in numbers]

    def _clipped(self, node: Node, operands: Sequence[tuple[_Number, ...]]) -> list[_Number]:
        """Results of a Clip: data is at either bound, a number is clamped."""
        least, most = self._bound(node, operands, 1, "min"), self._bound(node, operands, 2, "max")
        bounds = [bound for bound in (least, most) if bound is not None]
        if not operands[0]:
            return self._picked(node, [(), *((bound,) for bound in bounds)])
        results = []
        for number in operands[0]:
            exact, low = number.exact, number.low
            if least is not None:
                exact, low = max(exact, least.exact), max(low, least.low)
            if most is not None:
                exact, low = min(exact, most.exact), min(low, most.low)
            results += self._number(exact, low, number.is_guarded, node, (number, *bounds))
        return results

    def _bound(
        self, node: Node, operands: Sequence[tuple[_Number, ...]], index: int, attribute: str
    ) -> _Number | None:
        """A scalar bound, from an operand or an attribute; else None."""
        if index < len(operands) and operands[index]:
            return operands[index][0]
        number = node.float_attribute(attribute)
        return None if number is None else self._constant(number, None)

    def _judge(self, node: Node, row: OpFacts, operands: Sequence[tuple[_Number, ...]]) -> None:
        """Record a guarded number that the format loses and that is divided by or makes a product
        infinite.
        """
        transfer = row.transfer
        for k, alternatives in enumerate(operands):
            for number in alternatives:
                if not number.is_guarded:
                    continue
                if transfer is Transfer.MULTIPLY:
                    is_lost = math.isinf(number.low)
                elif transfer is Transfer.DIVIDE:
                    is_lost = k == 1 and number.is_lost
                elif transfer is Transfer.POWER:
                    is_pole = k == 0 and any(power.exact < 0.0 for power in operands[1])
                    is_lost = is_pole and number.is_lost
                else:
                    is_lost = bool(row.risks & _NEAR_ZERO) and number.is_lost
                    is_lost |= Risk.STEEP in row.risks and _beside_one(number).is_lost
                if is_lost:
                    self.losses.append((node, number))


def _uniform(facts: ConstantFacts) -> float | None:
    """The value of a constant whose elements are all equal; else None."""
    if facts.has_nan or facts.has_infinity:
        return None
    if facts.values is not None:
        return facts.values[0] if len(set(facts.values)) == 1 else None
    return facts.minimum if facts.rms is not None and facts.minimum == facts.maximum else None


def _is_small(number: float) -> bool:
    """Whether a constant may be an epsilon: close to zero or to one."""
    size = abs(number)
    return 0.0 < size <= _LARGEST_GUARD or 0.0 < abs(size - 1.0) <= _LARGEST_GUARD


def _beside_one(number: _Number) -> _Number:
    """Distance of a number from the poles at 1 and -1."""
    return _Number(1.0 - abs(number.exact), 1.0 - abs(number.low), number.is_guarded)


_OF_TWO = frozenset(
    {
        Transfer.ADD,
        Transfer.SUBTRACT,
        Transfer.MULTIPLY,
        Transfer.DIVIDE,
        Transfer.MAXIMUM,
        Transfer.MINIMUM,
        Transfer.POWER,
    }
)
_PRODUCTS = frozenset({Transfer.MULTIPLY, Transfer.DIVIDE})
_POLES = frozenset({Transfer.DIVIDE, Transfer.POWER, Transfer.RECIPROCAL, Transfer.RECIPROCAL_ROOT})
# Laws whose outputs are elements of an operand, or reductions over an axis.
_PICKING = frozenset(
    {
        Transfer.KEEP,
        Transfer.MOVE,
        Transfer.CAST,
        Transfer.JOIN,
        Transfer.SUM,
        Transfer.MEAN,
        Transfer.POOL,
        Transfer.EXTREME,
    }
)
# Risks of operators that are discontinuous at zero.
_NEAR_ZERO = frozenset({Risk.RECIPROCAL, Risk.STEP})

RULES = (
    StructureRule("guard", "an epsilon that keeps a quotient finite, and rounds away", guards),
)
