"""Power spectra before a logarithm, and the linear transforms (STFT, mel filters) that compute
them.

The epsilon of the logarithm shows how quiet a signal may be: log(max(|X|^2, 1e-10)), log(|X| +
1e-5), log(1 + 1e6 |X|). A logarithm turns relative errors into absolute ones, and squares of small
numbers underflow early. Measured value ranges do not show that, so they never
lift these denials.

Rounding the input of a transform adds an error to every bin that is proportional to the loudest
bins. If the epsilon is below that, quiet bins contain only rounding errors. So all linear operators
between a graph input and the spectrum stay in FP32 too: windows, filters, sines and cosines. After
a nonlinear layer the bins are learned features, none of which is known to be quiet; with data, the
model's outputs show whether the transform may run low.
"""

import heapq
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from mezzo.analysis.estimates.moments import LOST, rms
from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Function, Transfer
from mezzo.tables.policy import Lifting

_GUARDING = frozenset(
    {Function.ADD, Function.SUBTRACT, Function.MAXIMUM, Function.CLIP, Function.SELECT}
)
# Functions with nonnegative results.
_MAGNITUDES = frozenset(
    {Function.SQUARE, Function.SUM_OF_SQUARES, Function.L2_NORM, Function.ABS, Function.VARIANCE}
)
# Functions whose result has one sign if all operands have one sign.
_OF_MAGNITUDES = frozenset(
    {Function.ADD, Function.SUM, Function.MEAN, Function.SQRT, Function.NEGATE, Function.IDENTITY}
)
_EXPONENTS = {
    Function.SQRT: 0.5, Function.SQUARE: 2.0, Function.SUM_OF_SQUARES: 2.0, Function.VARIANCE: 2.0,
    Function.RECIPROCAL: -1.0, Function.RSQRT: -0.5,
}  # fmt: skip
# Functions linear in a signal, and clipping; the signal is the numerator of a division.
_LINEAR = frozenset(
    {
        Function.ADD,
        Function.SUBTRACT,
        Function.NEGATE,
        Function.MULTIPLY,
        Function.DIVIDE,
        Function.MEAN,
        Function.SUM,
    }
    | {Function.IDENTITY, Function.CLIP, Function.FOURIER}
)
_ENDS = frozenset({Kind.INPUT, Kind.SOURCE})  # sources of signals
_CONTRACTING = frozenset({Transfer.CONTRACT, Transfer.EINSUM, Transfer.POOL})
_MOST_ON_THE_WAY = 8  # operators between an epsilon and its logarithm, or a root and its square


class _Reached(NamedTuple):
    """A magnitude's logarithm and epsilon: `least` is the smallest magnitude that the logarithm
    distinguishes from zero.
    """

    logarithm: Node
    guard: Node
    least: float


@dataclass(kw_only=True)
class _Spectra:
    """Nodes before logarithms with an epsilon, by node id: `magnitudes`, and the signed `signals`
    from which they are computed, each with its logarithm. `starts` are signals whose quiet bins are
    below the rounding errors of loud ones.
    """

    view: StructureView
    magnitudes: dict[int, _Reached] = field(default_factory=dict)
    signals: dict[int, Node] = field(default_factory=dict)
    starts: set[int] = field(default_factory=set)
    _queue: list[int] = field(default_factory=list)

    def search(self) -> None:
        """Traverse backward from logarithms. Outside loops, readers have higher ids, so a max-heap
        by id visits every node after its readers.
        """
        for logarithm in self.view.nodes(Function.LOG):
            self._begin(logarithm)
        visited: set[int] = set()
        while self._queue:
            number = -heapq.heappop(self._queue)
            if number not in visited:
                visited.add(number)
                self._visit(self.view.graph.nodes[number])

    def _begin(self, logarithm: Node) -> None:
        """Find a logarithm's epsilon, and for each node between them its value at the epsilon."""
        between: list[Node] = []
        makers = self.makers(logarithm)
        while len(makers) == 1 and len(between) < _MOST_ON_THE_WAY:
            (node,) = makers
            between.append(node)
            makers = self.makers(node)
            least = self._guard(node)
            if least is not None and len(makers) == 1:
                self._reach(makers[0], _Reached(logarithm, node, least))
                for inner in reversed(between):
                    least = (
                        least
                        if inner is node
                        else _power(least, self._exponent(inner)) * self._factor(inner)
                    )
                    self.magnitudes[inner.id] = _Reached(logarithm, node, least)
                return
            if not (self._is_magnitude(node) or self._exponent(node) < 0.0):
                return

    def _reach(self, node: Node, reached: _Reached) -> None:
        earlier = self.magnitudes.get(node.id)
        self.magnitudes[node.id] = (
            reached if earlier is None or reached.least < earlier.least else earlier
        )
        heapq.heappush(self._queue, -node.id)

    def _visit(self, node: Node) -> None:
        reached = self.magnitudes.get(node.id)
        if reached is None or not self._is_magnitude(node):
            self.magnitudes.pop(node.id, None)
            if node.id in self.signals and self.is_linear(node):
                for maker in self.makers(node):
                    self._reach_signal(maker, self.signals[node.id])
            return
        least = _power(reached.least / self._factor(node), 1.0 / self._exponent(node))
        for maker in self.makers(node):
            if not self._makes_positive(node) or self._is_positive(maker):
                self._reach(maker, reached._replace(least=least))
            elif least < self._rounding_error(maker):
                self._reach_signal(maker, reached.logarithm)
                self.starts.add(maker.id)

    def _reach_signal(self, node: Node, logarithm: Node) -> None:
        self.signals.setdefault(node.id, logarithm)
        heapq.heappush(self._queue, -node.id)

    def _rounding_error(self, node: Node) -> float:
        """Absolute rounding error of every bin of a transform, proportional to its large bins."""
        estimate = None if node.outputs[0] is None else self.view.estimates.moments[node.outputs[0]]
        return self.view.low.eps * (
            1.0 if estimate is None or estimate.flags & LOST else rms(estimate)
        )

    # -- operands ----------------------------------------------------------------------------------

    @cached_property
    def _fed(self) -> frozenset[int]:
        """Nodes that depend on graph inputs; all others are constant."""
        fed: set[int] = set()
        values = self.view.graph.values
        for node in self.view.graph.nodes:
            makers = (values[value].producer for value in node.present_inputs)
            if node.kind is Kind.INPUT or any(maker in fed for maker in makers):
                fed.add(node.id)
        return frozenset(fed)

    def makers(self, node: Node) -> list[Node]:
        """Producers of operands with the node's precision, without constants and divisors."""
        roles = (
            node.signature.inputs[:1]
            if self.view.function(node) is Function.DIVIDE
            else node.signature.inputs
        )
        makers = (self.view.producer(node, k) for k, role in enumerate(roles) if role is Role.GROUP)
        return [maker for maker in makers if maker is not None and maker.id in self._fed]

    def _number(self, node: Node, operand: int) -> float | None:
        """A constant operand's value; of several the largest magnitude, negated if any is negative.
        None for other operands.
        """
        view, value = self.view, node.operand(operand)
        if value is None:
            return None
        facts = view.constant(node, operand)
        if facts is not None:
            return -facts.largest if facts.has_negative else facts.largest
        estimate = view.estimates.moments[value]
        return None if estimate.std or estimate.flags & LOST else estimate.mean

    def _guard(self, node: Node) -> float | None:
        """The positive constant that a node adds to its input or uses as its lower bound; else
        None.
        """
        function = self.view.function(node)
        if function not in _GUARDING and not self._adds(node):
            return None
        numbers = [node.float_attribute("min"), *(self._number(node, k) for k in range(3))]
        number = next((number for number in numbers if number is not None), None)
        if number is None:
            return None
        number = -number if function is Function.SUBTRACT else number
        return number if 0.0 < number < math.inf else None

    def _adds(self, node: Node) -> bool:
        """Whether a node is a sum; subtracting a negated value counts."""
        if self.view.transfer(node) is Transfer.ADD:
            return True
        is_difference = self.view.function(node) is Function.SUBTRACT
        subtrahend = self.view.producer(node, 1) if is_difference else None
        return subtrahend is not None and self.view.function(subtrahend) is Function.NEGATE

    def _factor(self, node: Node) -> float:
        """The constant factor of a multiplication or division; else 1."""
        function = self.view.function(node)
        if function not in (Function.MULTIPLY, Function.DIVIDE):
            return 1.0
        number = (
            self._number(node, 1)
            or (self._number(node, 0) if function is Function.MULTIPLY else None)
            or 1.0
        )
        return abs(number) if function is Function.MULTIPLY else 1.0 / abs(number)

    # -- operators ---------------------------------------------------------------------------------

    def _exponent(self, node: Node) -> float:
        """The power of its input that a node computes."""
        function = self.view.function(node)
        if function is Function.MULTIPLY and self._is_of_one(node):
            return 2.0
        if function is Function.POWER:
            return self._number(node, 1) or 1.0
        return _EXPONENTS.get(function, 1.0)

    def _is_of_one(self, node: Node) -> bool:
        """Whether both operands are the same value."""
        first, second = self.view.producer(node, 0), self.view.producer(node, 1)
        is_whole = first is not None and len(first.outputs) == 1
        return node.inputs[0] == node.inputs[1] or (is_whole and first is second)

    def _makes_positive(self, node: Node) -> bool:
        """Whether an operator's result is nonnegative for signed operands."""
        return self.view.function(node) in _MAGNITUDES or self._exponent(node) % 2.0 == 0.0

    def _is_positive(self, node: Node) -> bool:
        """Whether a node's result is a magnitude, possibly reshaped, transposed or scaled."""
        for _ in range(_MOST_ON_THE_WAY):
            if self._makes_positive(node) or 0.0 < self._exponent(node) < 1.0:
                return True
            makers = self.makers(node) if self._moves(node) or self._factor(node) != 1.0 else []
            if len(makers) != 1:
                return False
            (node,) = makers
        return False

    def _is_magnitude(self, node: Node) -> bool:
        """Whether an operator computes magnitudes from a signal, or from magnitudes."""
        function = self.view.function(node)
        if function is Function.POWER:
            return (self._number(node, 1) or 0.0) > 0.0
        if function is Function.DIVIDE:
            return self._number(node, 1) is not None
        if function in _MAGNITUDES | _OF_MAGNITUDES or self._adds(node) or self._moves(node):
            return True
        is_weighted = function is Function.MULTIPLY or self.view.transfer(node) in _CONTRACTING
        return is_weighted and (len(self.makers(node)) == 1 or self._is_of_one(node))

    def is_linear(self, node: Node) -> bool:
        """Whether a node computes a signal from signals."""
        is_linear = (
            self.view.function(node) in _LINEAR
            or self.view.transfer(node) in _CONTRACTING
            or self._adds(node)
            or self._moves(node)
        )
        return is_linear and not self._makes_positive(node)

    def _moves(self, node: Node) -> bool:
        return self.view.moves(node) or node.kind is Kind.TIE


def _power(number: float, exponent: float) -> float:
    try:
        return float(number**exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _spectra(view: StructureView) -> _Spectra:
    spectra = _Spectra(view=view)
    spectra.search()
    return spectra


def log_magnitudes(view: StructureView) -> Iterable[Detection]:
    """Nodes from a signal to its logarithm whose smallest relevant value the low format lacks."""
    for number, reached in sorted(view.once(_spectra).magnitudes.items()):
        if not view.low.smallest_normal <= reached.least <= view.low.max_finite:
            text = (
                f"is taken the logarithm of by {reached.logarithm.name!r}, down to what"
                f" {reached.guard.name!r} guards it with"
            )
            yield Detection(view.graph.nodes[number], text, reached.logarithm)


def log_spectra(view: StructureView) -> Iterable[Detection]:
    """Linear nodes between graph inputs and magnitudes under a logarithm."""
    spectra = view.once(_spectra)
    of_inputs: set[int] = set()
    for number in sorted(spectra.signals):
        node = view.graph.nodes[number]
        makers = spectra.makers(node) if spectra.is_linear(node) else []
        if makers and all(maker.kind in _ENDS or maker.id in of_inputs for maker in makers):
            of_inputs.add(number)
    reached = spectra.starts & of_inputs
    for number in sorted(of_inputs, reverse=True):
        node = view.graph.nodes[number]
        if number in reached:
            reached.update(maker.id for maker in spectra.makers(node))
            logarithm = spectra.signals[number]
            text = (
                f"quiet bins drown in its rounding errors before {logarithm.name!r} takes their"
                " logarithm"
            )
            yield Detection(node, text, logarithm)


RULES = (
    StructureRule("log-magnitude", "powers before a guarded logarithm", log_magnitudes),
    StructureRule(
        "log-spectrum",
        "the transform whose powers go into a logarithm",
        log_spectra,
        Lifting.BY_OUTPUTS,
    ),
)
