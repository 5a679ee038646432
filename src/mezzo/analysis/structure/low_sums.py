"""Sums inside an operator that pass a format's range, where the target's kernel sums in it.

The result may be far below: a mean, a norm or a logarithm of the sum. The count that a mean divides
by is a number of the format too. Partial sums of products are as large as their results, unless
terms of one sign come first, which data shows: the emulation sums as the target does.
"""

import math
from collections.abc import Iterable, Sequence

from mezzo.analysis.estimates.moments import LOST, SIGMA, rms
from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Node
from mezzo.tables.policy import Lifting

_MEANS = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
_SQUARES = frozenset({"ReduceL2", "ReduceSumSquare"})
_PLAIN = _MEANS | {"ReduceLogSum", "ReduceSum"}
# Exponents beyond this are past every format.
_MOST_EXPONENT = 100.0


def _summing(view: StructureView) -> Iterable[tuple[Node, float]]:
    """The operators that the target's kernels sum in the format, with their numbers of terms."""
    ops = frozenset(op for row in view.sums for op in row.ops)
    for node in view.graph.nodes if ops else ():
        if node.op in ops and node.signature.dialect == "onnx":
            yield node, _count(view, node)


def low_counts(view: StructureView) -> Iterable[Detection]:
    """Means over more elements than the format can count."""
    for node, terms in _summing(view):
        if node.op in _MEANS and terms >= view.low.overflow_from:
            yield Detection(node, f"divides by {terms:.6g}, past {view.low.dtype}'s range")


def low_sums(view: StructureView) -> Iterable[Detection]:
    """Reductions and pools whose sum passes the range."""
    for node, terms in _summing(view):
        size = _size_of_sum(view, node, terms)
        if size >= view.low.overflow_from:
            yield Detection(
                node,
                f"sums {terms:.6g} terms in {view.low.dtype} on this target, to some {size:.3g},"
                f" past {view.low.max_finite:.6g}",
            )


def _count(view: StructureView, node: Node) -> float:
    """The number of terms; axes of unknown length do not count."""
    kernel = node.attributes.get("kernel_shape")
    if node.op == "AveragePool":
        return float(math.prod(kernel)) if isinstance(kernel, tuple) else 1.0
    site = view.estimates.site
    shape = site.shape(node.inputs[0])
    if shape is None:
        return 1.0
    axes: Sequence[int] | None = site.reduced_axes(node)
    if node.op == "Softmax":
        axis = node.attributes.get("axis", -1)
        axes = (axis if isinstance(axis, int) else -1,)
    elif axes is None:
        axes = range(2 if node.op.startswith("Global") else 0, len(shape))
    return float(math.prod(shape[a] or 1 for a in axes if -len(shape) <= a < len(shape)))


def _size_of_sum(view: StructureView, node: Node, terms: float) -> float:
    """The plausible size of an operator's sum; 0 if it is not followed."""
    value = node.inputs[0]
    x = None if value is None else view.estimates.moments[value]
    if x is None or x.flags & LOST:
        return 0.0
    if node.op == "Softmax":  # of exponentials, the largest of which is 1
        return terms * _exp(x.std**2 / 2 - x.std * math.sqrt(2 * math.log(max(terms, 1.0))))
    if node.op == "ReduceLogSumExp":
        return terms * _exp(x.mean + x.std**2 / 2)
    if node.op == "ReduceL1":
        return terms * rms(x)
    if node.op in _SQUARES:
        return terms * rms(x) ** 2
    if node.op in _PLAIN:
        return terms * abs(x.mean) + SIGMA * math.sqrt(terms) * x.std
    return 0.0  # a product


def _exp(exponent: float) -> float:
    return math.exp(min(exponent, _MOST_EXPONENT))


RULES = (
    StructureRule(
        "low-count",
        "a mean over more elements than the format of the target's sums can count",
        low_counts,
    ),
    StructureRule(
        "low-sum",
        "a sum that passes the range of the format in which the target's kernel sums",
        low_sums,
        Lifting.BY_OUTPUTS,
    ),
)
