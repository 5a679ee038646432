"""The sum of two activations and the LayerNormalization of it: SkipLayerNormalization."""

from collections.abc import Mapping, Sequence

from mezzo.analysis.fusion.own.rule import DIALECT, Rule, end_of, in_order, vector_of
from mezzo.analysis.fusion.view import View
from mezzo.ir.nodes import Node, Use
from mezzo.tables.facts import Function
from mezzo.tables.fused_operators import Fused

_USUAL_EPSILON = 1e-5
_IN_FLOAT32 = 1  # LayerNormalization's stash_type


def _write_skip_norm(view: View, nodes: Sequence[Node]) -> Fused | None:
    added, end = nodes[0], end_of(view, nodes)
    made = view.graph.shapes.get(added.outputs[0] or 0)
    if end is None or view.function(added) is not Function.ADD or not made or made[-1] is None:
        return None
    if view.op(end) == "LayerNormalization":
        parts = _of_operator(view, end, made[-1])
    else:
        parts = _of_small_operators(view, nodes[1:], end, made)
    if parts is None:
        return None
    scale, shift, epsilon = parts
    reads = (Use(added.id, 0), Use(added.id, 1), scale, *(() if shift is None else (shift,)))
    return Fused(
        dialect=DIALECT,
        op="SkipLayerNormalization",
        nodes=in_order(nodes, end),
        reads=reads,
        attributes={"epsilon": epsilon},
    )


_Parts = tuple[Use, Use | None, float]


def _of_operator(view: View, norm: Node, width: int) -> _Parts | None:
    """Scale, shift and epsilon of one operator."""
    epsilon, stash = norm.attributes.get("epsilon", _USUAL_EPSILON), norm.attributes.get("stash_type", _IN_FLOAT32)
    has_shift = len(norm.inputs) > 2 and norm.inputs[2] is not None
    uses = [Use(norm.id, at) for at in ((1, 2) if has_shift else (1,))]
    if not isinstance(epsilon, int | float) or stash != _IN_FLOAT32:
        return None
    if any(view.shape(norm, use.operand) != (width,) for use in uses):
        return None
    return uses[0], uses[1] if has_shift else None, float(epsilon)


def _of_small_operators(view: View, nodes: Sequence[Node], end: Node, made: Sequence[int | None]) -> _Parts | None:
    """The same of a norm that is written out, whose means are along the last axis."""
    means = [node for node in nodes if view.function(node) is Function.MEAN]
    root = next((node for node in nodes if view.function(node) is Function.SQRT), None)
    shifted = None if root is None else view.maker(root, 0)
    if shifted is None or len(means) != 2 or not all(_is_along_last(view, mean, len(made)) for mean in means):
        return None
    epsilons = [number for at in range(2) if (number := view.number(shifted, at)) is not None]
    shift = vector_of(view, end, made[-1])
    scaled = None if shift is None else view.maker(end, 1 - shift.operand)
    scale = (
        None if scaled is None or view.function(scaled) is not Function.MULTIPLY else vector_of(view, scaled, made[-1])
    )
    if shift is None or scale is None or len(epsilons) != 1:
        return None
    return scale, shift, epsilons[0]


def _is_along_last(view: View, mean: Node, rank: int) -> bool:
    """Whether a mean is along the last axis alone, which it keeps."""
    value = mean.inputs[1] if len(mean.inputs) > 1 else None
    axes = view.integers(mean, "axes") if value is None else view.graph.integers.get(view.origin(value), ())
    return mean.attributes.get("keepdims", 1) == 1 and axes in ((-1,), (rank - 1,))


NORMS: Mapping[str, Rule] = {"skip-layer-norm": _write_skip_norm}
