"""Transfer laws of data movement, selection, and generators of constants."""

import math

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    eased,
    nothing,
    passed,
)
from mezzo.analysis.estimates.moments import (
    HIDDEN,
    INTEGER,
    LOST,
    MASKED,
    POSITIVE,
    TRUTH,
    UNKNOWN,
    Moments,
    exactly,
    flagged,
    hull,
    moments,
    normal,
    rms,
    uniform,
)
from mezzo.analysis.estimates.site import OPEN_POSITIONS, EstimatedGraph
from mezzo.formats.dtypes import FLOATING
from mezzo.ir.nodes import Node, Role
from mezzo.tables.facts import Transfer

# A constant at most this is a mask value.
_MASK = -1e3


def joined(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    # Indices are excluded: they are not in the compute group.
    roles = node.signature.inputs
    parts = [x for x, role in zip(xs, roles, strict=True) if role is Role.GROUP] or list(xs)
    masks = [x for x in parts if is_mask(x)]
    if masks and len(masks) < len(parts):
        return _with_mask(hull([x for x in parts if not is_mask(x)]))
    return hull(parts) if parts else UNKNOWN


def _joined_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Tolerances of concatenated parts: a part that is larger than average has a proportionally
    larger one.
    """
    size = rms(y)
    if not size or demand.absolute == math.inf:
        return (demand,) * len(xs)
    return tuple(
        Demand(max(demand.absolute, demand.absolute / size * rms(x)), demand.relative) for x in xs
    )


def is_mask(x: Moments) -> bool:
    """Whether a value is a constant of very negative elements."""
    return not x.std and x.mean <= _MASK


def _with_mask(x: Moments) -> Moments:
    return flagged(x, x.flags | MASKED)


def selected(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    if len(xs) < 3:
        return UNKNOWN
    first, second = _where_chosen(site, node, xs)
    if is_mask(second) and is_mask(first):
        return HIDDEN
    if is_mask(second):
        return _with_mask(first)
    if is_mask(first):
        return _with_mask(second)
    return hull([first, second])


def _where_chosen(site: EstimatedGraph, node: Node, xs: Operands) -> tuple[Moments, Moments]:
    """The two branches of a Where, each restricted to where the condition selects it: x > c bounds
    x itself.
    """
    picked = [xs[1], xs[2]]
    condition = node.inputs[0]
    if condition is None:
        return picked[0], picked[1]
    test = site.producer(site.origin[condition])
    transfer = site.transfer(test)
    bound = site.number(test.operand(1)) if transfer in (Transfer.ABOVE, Transfer.BELOW) else None
    if bound is None or test.inputs[0] is None:
        return picked[0], picked[1]
    tested = site.estimates[test.inputs[0]]
    # One branch is never selected.
    if not tested.flags & LOST and (tested.low > bound or tested.high < bound):
        chosen = picked[0 if (transfer is Transfer.ABOVE) == (tested.low > bound) else 1]
        return chosen, chosen
    for k in range(2):
        value, x = node.inputs[k + 1], picked[k]
        if value is None or site.origin[value] != site.origin[test.inputs[0]] or x.flags & LOST:
            continue
        is_above = (transfer is Transfer.ABOVE) == (k == 0)
        low, high = (max(x.low, bound), x.high) if is_above else (x.low, min(x.high, bound))
        if low > high:  # never selected
            return picked[1 - k], picked[1 - k]
        picked[k] = moments(x.mean, x.std, low, high, x.flags)
    return picked[0], picked[1]


def _selected_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Tolerances of a Where: a branch selected by a test of its own size is treated as clamped."""
    demands: list[Demand | None] = [demand] * len(xs)
    if len(xs) == 3 and demand.absolute < math.inf:
        for k, (x, chosen) in enumerate(
            zip(xs[1:], _where_chosen(site, node, xs), strict=True), start=1
        ):
            is_bounded = chosen.low > x.low or chosen.high < x.high
            if is_bounded and x.std and not (x.flags | chosen.flags) & LOST:
                low = chosen.low if chosen.low > x.low else -math.inf
                demands[k] = eased(
                    demand, x, low, chosen.high if chosen.high < x.high else math.inf
                )
    return demands


def shape_of(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    shape = site.shape(node.inputs[0])
    flags = INTEGER | POSITIVE
    if shape is None:
        return moments(64.0, 64.0, 1.0, float(OPEN_POSITIONS), flags)
    sizes = [float(OPEN_POSITIONS if size is None else size) for size in shape] or [1.0]
    if node.op == "Size":
        return exactly(min(math.prod(sizes), 1e9), flags)
    middle = sum(sizes) / len(sizes)
    spread = math.sqrt(sum((size - middle) ** 2 for size in sizes) / len(sizes))
    return moments(middle, spread, min(sizes), max(sizes), flags)


def index_into(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    shape = site.shape(node.inputs[0])
    sizes = [OPEN_POSITIONS if size is None else size for size in shape or (OPEN_POSITIONS,)]
    if node.op.lower().startswith("arg"):
        axis = node.attributes.get("axis", 0)
        if isinstance(axis, int) and -len(sizes) <= axis < len(sizes):
            sizes = [sizes[axis]]
    top = float(max(max(sizes, default=1) - 1, 1))
    return moments(top / 2, top / 3, 0.0, top, INTEGER | POSITIVE)


def counted(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    """Range: from start to limit in steps."""
    if len(xs) < 3 or any(x.flags & LOST for x in xs[:3]):
        return moments(
            OPEN_POSITIONS / 2, OPEN_POSITIONS / 3, 0.0, float(OPEN_POSITIONS), INTEGER | POSITIVE
        )
    low, high = min(xs[0].low, xs[1].low), max(xs[0].high, xs[1].high)
    is_whole = all(x.flags & INTEGER or (not x.std and x.mean == int(x.mean)) for x in xs[:3])
    return uniform(low, high, INTEGER if is_whole else 0)


def filled(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    result = node.outputs[0]
    facts = None if result is None else site.graph.constants.get(result)
    if facts is not None and facts.values:
        number = facts.values[0]
    elif result is not None and site.dtype(result) not in FLOATING:
        number = 1.0  # integers are usually filled with 1, to be summed
    else:
        number = 0.0
    flags = (POSITIVE if number >= 0.0 else 0) | (INTEGER if number.is_integer() else 0)
    return exactly(number, flags)


def one_hot(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    return xs[2] if len(xs) > 2 else UNKNOWN


def random(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    options = node.attributes
    if "Uniform" in node.op or "high" in options:
        low, high = options.get("low", 0.0), options.get("high", 1.0)
        if isinstance(low, float) and isinstance(high, float):
            return uniform(low, high)
        return UNKNOWN
    if node.op.lower() == "bernoulli":
        return TRUTH
    scale, middle = options.get("scale", 1.0), options.get("mean", 0.0)
    if isinstance(scale, float) and isinstance(middle, float):
        return normal(middle, scale)
    return UNKNOWN


_MOVED = Law(lambda site, node, xs: xs[0], lambda site, node, xs, y, demand: (demand,))

LAWS: Laws = {
    Transfer.KEEP: _MOVED,
    Transfer.MOVE: _MOVED,
    Transfer.JOIN: Law(joined, _joined_demands),
    Transfer.SELECT: Law(selected, _selected_demands),
    Transfer.INDEX: Law(index_into, nothing),
    Transfer.SHAPE: Law(shape_of, nothing),
    Transfer.RANGE: Law(counted, passed),
    Transfer.FILL: Law(filled, nothing),
    Transfer.ONE_HOT: Law(one_hot, nothing),
    Transfer.RANDOM: Law(random, nothing),
}
