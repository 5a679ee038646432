"""Corrections of estimates from a trained model's statistics, where estimates assume weights
independent of the data.

Weights are trained on correlated data: filters of smooth images cancel most of what white noise
would produce, so estimates of deep networks grow by a factor per layer. A batch normalization
stores the measured variance of its input. Where it was folded into a convolution, or the
convolution was trained with a bias, the bias is about as large as the value it is added to.

`EstimatedGraph.inflated` holds, by matmul or convolution, the factor by which its output was
overestimated: its operands were too, so their tolerated relative error is unchanged.
"""

from collections.abc import Sequence

from mezzo.analysis.estimates.laws.norms import gathered_input, is_overestimated
from mezzo.analysis.estimates.moments import LOST, Moments, rms, scaled
from mezzo.analysis.estimates.site import EstimatedGraph, is_convolution
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Estimates up to this size are accepted, and larger ones up to this multiple of the bias.
_PLAUSIBLE, _TIMES_BIAS = 32.0, 16.0
# Number of operators before the evidence that are corrected: a convolution and its scale.
_MOST = 4


def correct(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> None:
    """Correct the estimates of a batch normalization's input, and of the output of a convolution
    with a bias.
    """
    result = node.outputs[0]
    if site.transfer(node) is Transfer.GIVEN_STATISTICS:
        source = node.inputs[0]
        if source is not None and is_overestimated(site, node, xs):
            _scale(site, source, gathered_input(xs), _MOST)
        return
    bias = _bias(site, node) if result is not None and _is_filtered(site, result) else None
    if bias is None or result is None or site.estimates[result].flags & LOST:
        return
    size, most = rms(site.estimates[result]), max(_PLAUSIBLE, _TIMES_BIAS * bias)
    if size > most:
        _scale(site, result, scaled(site.estimates[result], most / size), _MOST)


def _is_filtered(site: EstimatedGraph, value: int) -> bool:
    """Whether a value is a convolution's output, possibly scaled and shifted by constants."""
    for _ in range(_MOST):
        node = site.producer(value)
        if site.made_by[value] is Transfer.CONTRACT:
            return is_convolution(node)
        source = _source(site, value)
        if source is None:
            return False
        value = source
    return False


def _source(site: EstimatedGraph, value: int) -> int | None:
    """The only non-constant operand of a scaling, shift or data movement."""
    if site.made_by[value] not in _CARRYING:
        return None
    operands = site.producer(value).inputs[:2]
    sources = [
        operand for operand in operands if operand is not None and site.constant(operand) is None
    ]
    return sources[0] if len(sources) == 1 else None


def _bias(site: EstimatedGraph, node: Node) -> float | None:
    """Root mean square of a trained bias, which differs between channels; None without one."""
    operands = node.inputs[2:3] if site.transfer(node) is Transfer.CONTRACT else node.inputs
    if len(node.inputs) < 2:
        return None
    for value in operands:
        facts = site.constant(value)
        if facts is not None and facts.rms and facts.elements > 1 and facts.minimum < facts.maximum:
            return facts.rms
    return None


def _scale(site: EstimatedGraph, value: int, believed: Moments, left: int) -> None:
    """Replace an estimate by a corrected one, and rescale the values it is a multiple or a shift
    of.
    """
    before, node = rms(site.estimates[value]), site.producer(value)
    site.estimates[value] = believed
    if site.made_by[value] is Transfer.CONTRACT and before > rms(believed) > 0.0:
        site.inflated[node.id] = site.inflated.get(node.id, 1.0) * before / rms(believed)
    source = _source(site, value)
    if source is not None and left and before:
        factor = min(rms(believed) / before, 1.0)
        _scale(site, source, scaled(site.estimates[source], factor), left - 1)


_CARRYING = frozenset(
    {
        Transfer.MULTIPLY,
        Transfer.DIVIDE,
        Transfer.ADD,
        Transfer.SUBTRACT,
        Transfer.KEEP,
        Transfer.MOVE,
    }
)
