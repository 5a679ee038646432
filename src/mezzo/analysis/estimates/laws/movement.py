"""Transfer laws of data movement, selection, and generators of constants."""

import math
from collections.abc import Sequence

from mezzo.analysis.estimates.laws.law import Demand, Law, Laws, eased, nothing, passed
from mezzo.analysis.estimates.moments import (
    HARD,
    HIDDEN,
    INTEGER,
    LOST,
    MASKED,
    POSITIVE,
    UNIT,
    UNKNOWN,
    Moments,
    exactly,
    flagged,
    hull,
    moments,
    rms,
)
from mezzo.analysis.estimates.site import OPEN_POSITIONS, EstimatedGraph
from mezzo.formats.dtypes import FLOATING
from mezzo.ir.nodes import Node, Role
from mezzo.tables.facts import Transfer

# A constant at most this is a mask value.
_MASK = -1e3


def moved(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    return xs[0]


def _first_only(
    site: EstimatedGraph, node: Node, xs: Sequence[Moments], y: Moments, demand: Demand
) -> Sequence[Demand | None]:
    return (demand,)


def joined(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    # Indices are excluded: they are not in the compute group.
    roles = node.signature.inputs
    parts = [x for x, role in zip(xs, roles, strict=True) if role is Role.GROUP] or list(xs)
    masks = [x for x in parts if is_mask(x)]
    if masks and len(masks) < len(parts):
        return _with_mask(hull([x for x in parts if not is_mask(x)]))
    return hull(parts) if parts else UNKNOWN


def _joined_demands(
    site: EstimatedGraph, node: Node, xs: Sequence[Moments], y: Moments, demand: Demand
) -> Sequence[Demand | None]:
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


def selected(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
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


def _where_chosen(
    site: EstimatedGraph, node: Node, xs: Sequence[Moments]
) -> tuple[Moments, Moments]:
    """The two branches of a Where, each restricted to where the condition selects it: x > c bounds
    x itself.
    """
    picked = [xs[1], xs[2]]
    condition = node.inputs[0]
    if condition is None:
        return picked[0], picked[1]
    test = site.producer(site.origin[condition])
    transfer = site.transfer(test)
    bound = (
        site.number(site.operand(test, 1)) if transfer in (Transfer.ABOVE, Transfer.BELOW) else None
    )
    if bound is None or test.inputs[0] is None:
        return picked[0], picked[1]
    tested = site.held[test.inputs[0]]
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
    site: EstimatedGraph, node: Node, xs: Sequence[Moments], y: Moments, demand: Demand
) -> Sequence[Demand | None]:
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


def shape_of(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
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


def index_into(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    shape = site.shape(node.inputs[0])
    sizes = [OPEN_POSITIONS if size is None else size for size in shape or (OPEN_POSITIONS,)]
    if node.op.lower().startswith("arg"):
        axis = node.attributes.get("axis", 0) if node.attributes else 0
        if isinstance(axis, int) and -len(sizes) <= axis < len(sizes):
            sizes = [sizes[axis]]
    top = float(max(max(sizes, default=1) - 1, 1))
    return moments(top / 2, top / 3, 0.0, top, INTEGER | POSITIVE)


def counted(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    """Range: from start to limit in steps."""
    if len(xs) < 3 or any(x.flags & LOST for x in xs[:3]):
        return moments(
            OPEN_POSITIONS / 2, OPEN_POSITIONS / 3, 0.0, float(OPEN_POSITIONS), INTEGER | POSITIVE
        )
    low, high = min(xs[0].low, xs[1].low), max(xs[0].high, xs[1].high)
    is_whole = all(x.flags & INTEGER or (not x.std and x.mean == int(x.mean)) for x in xs[:3])
    flags = (INTEGER if is_whole else 0) | (POSITIVE if low >= 0.0 else 0)
    return moments((low + high) / 2, (high - low) / math.sqrt(12.0), low, high, flags)


def filled(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    result = node.outputs[0]
    facts = None if result is None else site.graph.constants.get(result)
    if facts is not None and facts.values:
        number = facts.values[0]
        return exactly(
            number, (POSITIVE if number >= 0.0 else 0) | (INTEGER if number.is_integer() else 0)
        )
    if result is not None and site.graph.values[result].dtype not in FLOATING:
        # Integers are usually filled with 1, to be summed.
        return Moments(1.0, 0.0, 1.0, 1.0, INTEGER | POSITIVE)
    return Moments(0.0, 0.0, 0.0, 0.0, INTEGER | POSITIVE)


def one_hot(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    return xs[2] if len(xs) > 2 else UNKNOWN


def random(site: EstimatedGraph, node: Node, xs: Sequence[Moments]) -> Moments:
    stated = node.attributes or {}
    if "Uniform" in node.op or "high" in stated:
        ends = stated.get("low", 0.0), stated.get("high", 1.0)
        low, high = (end if isinstance(end, float) else math.nan for end in ends)
        return moments(
            (low + high) / 2,
            (high - low) / math.sqrt(12.0),
            low,
            high,
            POSITIVE if low >= 0.0 else 0,
        )
    if node.op.lower() == "bernoulli":
        return Moments(0.5, 0.5, 0.0, 1.0, INTEGER | POSITIVE | UNIT | HARD)
    scale, middle = stated.get("scale", 1.0), stated.get("mean", 0.0)
    if not isinstance(scale, float) or not isinstance(middle, float):
        return UNKNOWN
    return moments(middle, scale, middle - 4.0 * scale, middle + 4.0 * scale)


LAWS: Laws = {
    Transfer.KEEP: Law(moved, _first_only),
    Transfer.MOVE: Law(moved, _first_only),
    Transfer.JOIN: Law(joined, _joined_demands),
    Transfer.SELECT: Law(selected, _selected_demands),
    Transfer.INDEX: Law(index_into, nothing),
    Transfer.SHAPE: Law(shape_of, nothing),
    Transfer.RANGE: Law(counted, passed),
    Transfer.FILL: Law(filled, nothing),
    Transfer.ONE_HOT: Law(one_hot, nothing),
    Transfer.RANDOM: Law(random, nothing),
}
