"""What a trained model's own constants tell of its values, against estimates that take weights for independent of data.

Weights are trained on data that estimates do not know: filters of smooth images cancel most of what white noise would
make of them, and estimates of deep nets grow by a factor in every layer. A batch normalization holds the variance of
its input, measured. Where it was folded into the weights of a convolution, or that was trained with a bias, the bias is
about as large as what it is added to, or it would do nothing.

`Site.inflated` holds, by product, by what factor its result was estimated too large: its operands were as well, so they
may be off by as large a share as before.
"""

from collections.abc import Sequence

from mezzo.analysis.estimates.laws.norms import gathered_input, is_overestimated
from mezzo.analysis.estimates.moments import LOST, Moments, rms, scaled
from mezzo.analysis.estimates.site import Site, is_convolution
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# Values of this size are believed without evidence, and larger ones up to so many times their bias.
_PLAUSIBLE, _TIMES_BIAS = 32.0, 16.0
# So many operators are corrected behind the one that has the evidence: a product, and its scale.
_MOST = 4


def correct(site: Site, node: Node, xs: Sequence[Moments]) -> None:
    """Correct the estimates of what a batch normalization reads, and of what a convolution and its bias make."""
    result = node.outputs[0]
    if site.transfer(node) is Transfer.GIVEN_STATISTICS:
        source = node.inputs[0]
        if source is not None and is_overestimated(site, node, xs):
            _scale(site, source, gathered_input(xs), _MOST)
        return
    bias = _bias(site, node) if result is not None and _is_filtered(site, result) else None
    if bias is None or result is None or site.held[result].flags & LOST:
        return
    size, most = rms(site.held[result]), max(_PLAUSIBLE, _TIMES_BIAS * bias)
    if size > most:
        _scale(site, result, scaled(site.held[result], most / size), _MOST)


def _is_filtered(site: Site, value: int) -> bool:
    """Whether a value is what a convolution makes, scaled and shifted by constants."""
    for _ in range(_MOST):
        node = site.producer(value)
        if site.made_by[value] is Transfer.CONTRACT:
            return is_convolution(node)
        source = _source(site, value)
        if source is None:
            return False
        value = source
    return False


def _source(site: Site, value: int) -> int | None:
    """The value that another is a multiple or a shift of."""
    if site.made_by[value] not in _CARRYING:
        return None
    operands = site.producer(value).inputs[:2]
    sources = [operand for operand in operands if operand is not None and site.constant(operand) is None]
    return sources[0] if len(sources) == 1 else None


def _bias(site: Site, node: Node) -> float | None:
    """The size of a bias that was trained, another number for each channel."""
    operands = node.inputs[2:3] if site.transfer(node) is Transfer.CONTRACT else node.inputs
    if len(node.inputs) < 2:
        return None
    for value in operands:
        facts = site.constant(value)
        if facts is not None and facts.rms and facts.elements > 1 and facts.minimum < facts.maximum:
            return facts.rms
    return None


def _scale(site: Site, value: int, believed: Moments, left: int) -> None:
    """Put a believed estimate in place of another, and bring to scale what that is a multiple or a shift of."""
    before, node = rms(site.held[value]), site.producer(value)
    site.held[value] = believed
    if site.made_by[value] is Transfer.CONTRACT and before > rms(believed) > 0.0:
        site.inflated[node.id] = site.inflated.get(node.id, 1.0) * before / rms(believed)
    source = _source(site, value)
    if source is not None and left and before:
        factor = min(rms(believed) / before, 1.0)
        _scale(site, source, scaled(site.held[source], factor), left - 1)


_CARRYING = frozenset(
    {Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.ADD, Transfer.SUBTRACT, Transfer.KEEP, Transfer.MOVE}
)
