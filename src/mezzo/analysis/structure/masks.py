"""Clamping of mask constants beyond the format's range that only reach softmaxes, where all very
negative numbers are equivalent.
"""

from collections.abc import Callable, Mapping

from mezzo.analysis.structure import StructureRule, StructureView, Ways
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Cost, Function

_COMBINES = frozenset(
    {
        Function.SELECT,
        Function.ADD,
        Function.SUBTRACT,
        Function.MULTIPLY,
        Function.MAXIMUM,
        Function.MINIMUM,
    }
)
_ENDS = frozenset({Function.SOFTMAX, Function.LOG_SOFTMAX})

# Empty: this module clamps constants instead of denying nodes; see `mask_limits`.
RULES: tuple[StructureRule, ...] = ()


def mask_limits(
    view: StructureView, may_end: Callable[[Node], bool] = lambda node: True
) -> Mapping[int, float]:
    """Bounds for mask constants, by value id: half the range, so that adding logits cannot
    overflow. `may_end`: whether a softmax counts as an end of a path.

    A fully masked row then stays finite; with the largest finite number it would overflow and give
    NaN.
    """
    graph = view.graph
    ways = Ways(
        view,
        passes=lambda node: (
            view.function(node) in _COMBINES
            or view.keeps_values(node)
            or view.cost(node) is Cost.GENERATOR
        ),
        ends=lambda node: (
            (view.function(node) in _ENDS or view.cost(node) is Cost.ATTENTION) and may_end(node)
        ),
    )
    limit = view.low.max_finite / 2
    limits = {}
    for value, facts in graph.constants.items():
        if facts.largest <= limit:
            continue
        maker = graph.producer(value)
        if maker.kind is Kind.INPUT:
            continue  # a default that the caller may replace
        starts = [maker] if maker.kind is Kind.OP else graph.readers(value)
        if ways.all_end(starts):
            limits[value] = limit
    return limits
