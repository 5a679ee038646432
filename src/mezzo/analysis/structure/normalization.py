"""Decomposed normalization layers (LayerNorm, RMSNorm, L2 norm), whose squares overflow before the
result does.

All common exports are recognised: reduction axes as attribute or operand; Sqrt, reciprocal square
root or Pow.
"""

from collections.abc import Callable, Iterable, Iterator

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function
from mezzo.tables.policy import Lifting

_ROOTS = (Function.SQRT, Function.RSQRT, Function.POWER)
_REDUCTIONS = frozenset({Function.MEAN, Function.SUM})
_OF_SQUARES = frozenset({Function.SUM_OF_SQUARES, Function.VARIANCE})


def is_square(view: StructureView, node: Node) -> bool:
    """Whether a node computes x*x, x**2 or a square operator."""
    function = view.function(node)
    if function is Function.SQUARE:
        return True
    if function is Function.MULTIPLY and len(node.inputs) == 2:
        return node.inputs[0] == node.inputs[1]
    return function is Function.POWER and _exponent(view, node) == 2.0


def _exponent(view: StructureView, node: Node) -> float | None:
    facts = view.constant(node, 1)
    return None if facts is None else facts.number


def norms(view: StructureView) -> list[tuple[str, list[Node]]]:
    """Each decomposed norm: its rule name and nodes, the root first. Cached per view."""
    return view.once(_search)


def _search(view: StructureView) -> list[tuple[str, list[Node]]]:
    return list(_norms(view))


def _norms(view: StructureView) -> Iterator[tuple[str, list[Node]]]:
    for root in view.nodes(*_ROOTS):
        if view.function(root) is Function.POWER and _exponent(view, root) not in (0.5, -0.5):
            continue
        group, is_mean = [root], False
        below = _behind(view, root, 0, group)
        while below is not None and (
            view.function(below) in _FLOORS or _scaled_operand(view, below) is not None
        ):
            is_mean |= view.function(below) not in _FLOORS
            sides = [k for k in range(len(below.inputs[:2])) if view.constant(below, k) is None]
            if len(sides) != 1:
                break
            group.append(below)
            below = _behind(view, below, sides[0], group)
        if below is None:
            continue
        if pair := _pair_of_squares(view, below):
            yield "l2-norm", [*group, below, *pair, *_scaling(view, root)]
            continue
        if view.function(below) is Function.SUBTRACT:
            moments = _second_moment(view, below)
            if moments:
                scaling = _scaling(view, root)
                yield "layer-norm", [*group, *moments, *scaling, *_centring(view, None, scaling)]
            continue
        if view.function(below) not in _REDUCTIONS | _OF_SQUARES:
            continue
        group.append(below)
        is_mean |= view.function(below) is Function.MEAN
        squared: Node | None = below
        if view.function(below) in _REDUCTIONS:
            squared = view.producer(below, 0)
            if squared is None or not is_square(view, squared):
                continue
            group.append(squared)
        assert squared is not None, "set on every path above"
        centred = view.producer(squared, 0)
        name = "rms-norm" if is_mean else "l2-norm"
        scaling = _scaling(view, root)
        if view.function(below) is Function.VARIANCE:
            name = "layer-norm"
            group += _centring(view, below, scaling)
        if centred is not None and view.function(centred) is Function.SUBTRACT:
            mean = _mean(view, centred, 1)
            if mean:
                group += [centred, *mean]
                name = "layer-norm"
        group += scaling
        yield name, group


_FLOORS = frozenset({Function.ADD, Function.MAXIMUM, Function.CLIP})


def _pair_of_squares(view: StructureView, total: Node) -> list[Node]:
    """The two squares that a node adds, as of real and imaginary parts; empty in a wide format or
    for other nodes.
    """
    is_sum = view.function(total) is Function.ADD and not view.low.is_wide
    makers = [view.producer(total, k) for k in range(2)] if is_sum else []
    pair = [maker for maker in makers if maker is not None and is_square(view, maker)]
    return pair if len(pair) == 2 else []


def _moves(view: StructureView, node: Node) -> bool:
    """Whether a node is data movement with one data operand, which excludes Concat and Where."""
    is_mover = view.moves(node) and view.function(node) is Function.NONE
    return is_mover and len(view.producers(node)) == 1


def _behind(view: StructureView, node: Node, operand: int, passed: list[Node]) -> Node | None:
    """The producer of an operand before data movement; the moving nodes are appended to
    `passed`.
    """
    maker = view.producer(node, operand)
    while maker is not None and _moves(view, maker):
        passed.append(maker)
        maker = view.producer(maker, 0)
    return maker


def _scaled_operand(view: StructureView, node: Node) -> int | None:
    """Index of the operand that a node multiplies or divides by a constant; else None."""
    if view.function(node) is Function.DIVIDE:
        return 0 if view.constant(node, 1) is not None and view.constant(node, 0) is None else None
    if view.function(node) is not Function.MULTIPLY:
        return None
    data = [k for k in range(2) if view.constant(node, k) is None]
    return data[0] if len(data) == 1 else None


def _mean(view: StructureView, node: Node, operand: int) -> list[Node]:
    """Nodes that compute an operand as a mean over an axis, including a scaled sum; empty if it is
    no mean.
    """
    group: list[Node] = []
    maker = _behind(view, node, operand, group)
    while maker is not None and (side := _scaled_operand(view, maker)) is not None:
        group.append(maker)
        maker = _behind(view, maker, side, group)
    is_mean = maker is not None and view.function(maker) is (
        Function.SUM if group else Function.MEAN
    )
    if maker is None or not (is_mean or view.function(maker) is Function.MEAN):
        return []
    return [*group, maker]


def _second_moment(view: StructureView, variance: Node) -> list[Node]:
    """Nodes of a variance computed as the mean of squares minus the square of the mean; empty if it
    is none.
    """
    squares, passed = _mean(view, variance, 0), list[Node]()
    square = _behind(view, variance, 1, passed)
    if square is None or not is_square(view, square):
        return []
    if not squares:
        moments = _moments_of_groups(view, variance, square)
        return [variance, *passed, square, *moments] if moments else []
    squared = view.producer(squares[-1], 0)
    mean = _mean(view, square, 0) if squared is not None and is_square(view, squared) else []
    return (
        [variance, *squares, squared, *passed, square, *mean]
        if squared is not None and mean
        else []
    )


def _moments_of_groups(view: StructureView, variance: Node, square: Node) -> list[Node]:
    """Nodes of a group-wise variance, whose means are matmuls with one table of groups or weights
    (one-hot, attention); `square` is the square of the mean. Empty if it is none.
    """
    squares, sums = _sum_by_product(view, variance), _sum_by_product(view, square)
    if not squares or not sums:
        return []
    for side in range(2):
        passed: list[Node] = []
        squared = _behind(view, squares[-1], side, passed)
        is_alike = squares[-1].inputs[1 - side] == sums[-1].inputs[1 - side]
        if squared is not None and is_square(view, squared) and is_alike:
            return [*squares, *passed, squared, *sums]
    return []


def _sum_by_product(view: StructureView, node: Node) -> list[Node]:
    """Nodes of a weighted sum over the first operand: a matmul, or a multiplication and a
    reduction, possibly scaled; the product is last.
    """
    group: list[Node] = []
    maker = _behind(view, node, 0, group)
    while maker is not None and view.function(maker) in (Function.DIVIDE, Function.MULTIPLY):
        if is_square(view, maker):
            return []
        group.append(maker)
        maker = _behind(view, maker, 0, group)
    function = Function.MATMUL
    if maker is not None and view.function(maker) in _REDUCTIONS:
        group.append(maker)
        maker, function = _behind(view, maker, 0, group), Function.MULTIPLY
    return [*group, maker] if maker is not None and view.function(maker) is function else []


def _centring(view: StructureView, variance: Node | None, scaling: Iterable[Node]) -> list[Node]:
    """Nodes that subtract the mean before the scaling, and those of the mean, which may be computed
    with the variance.
    """
    nodes: list[Node] = []
    for node in scaling:
        for operand in range(2):
            centred = view.producer(node, operand)
            if centred is None or view.function(centred) is not Function.SUBTRACT:
                continue
            if variance is not None and view.producer(centred, 1) is variance:
                nodes.append(centred)
            elif mean := _mean(view, centred, 1):
                nodes += [centred, *mean]
    return nodes


def _scaling(view: StructureView, root: Node) -> list[Node]:
    """Nodes that divide or multiply by the root's result, including its reciprocal and the gain."""
    scaling: list[Node] = []
    queue = [(reader, False) for reader in view.readers(root)]
    while queue and len(scaling) < _MOST_SCALING:
        reader, is_inverse = queue.pop(0)
        function = view.function(reader)
        if function is Function.RECIPROCAL or (
            function is Function.DIVIDE and view.constant(reader, 0) is not None
        ):
            scaling.append(reader)
            queue += [
                (r, True)
                for r in view.readers(reader)
                if view.function(r) is Function.MULTIPLY or _moves(view, r)
            ]
        elif function in (Function.DIVIDE, Function.MULTIPLY):
            scaling.append(reader)
            if function is Function.MULTIPLY and _scaled_operand(view, reader) is not None:
                queue += [
                    (r, True) for r in view.readers(reader) if view.function(r) is Function.MULTIPLY
                ]
        elif _moves(view, reader):
            onward = [
                r
                for r in view.readers(reader)
                if view.function(r) in (Function.DIVIDE, Function.MULTIPLY)
            ]
            scaling += [reader] if onward else []
            queue += [(r, is_inverse) for r in onward]
        elif function in (Function.MAXIMUM, Function.CLIP) and not is_inverse:
            scaling += [reader, *_divided_by(view, reader)]  # the lower bound may follow the root
    return scaling


# A root with more readers is not that of a norm.
_MOST_SCALING = 32


def _divided_by(view: StructureView, floor: Node) -> list[Node]:
    """Divisions by a norm with a lower bound, through data movement."""
    divisions: list[Node] = []
    for reader in view.readers(floor):
        if view.function(reader) is Function.DIVIDE:
            divisions.append(reader)
        elif view.keeps_values(reader):
            divisions += [r for r in view.readers(reader) if view.function(r) is Function.DIVIDE]
    return divisions


def _find(rule_name: str) -> Callable[[StructureView], Iterable[Detection]]:
    def find(view: StructureView) -> Iterable[Detection]:
        for name, group in norms(view):
            if name == rule_name:
                root = group[0]
                text = (
                    f"part of a decomposed {name} around {root.name!r}: its squares overflow, so it"
                    " stays together"
                )
                for node in group:
                    yield Detection(node, text, root)

    return find


def squares(view: StructureView) -> Iterable[Detection]:
    """Squares that are summed: variance, energy, squared distance."""
    for node in view.nodes(Function.SQUARE, Function.MULTIPLY, Function.POWER):
        if not is_square(view, node):
            continue
        for reader in view.readers(node):
            is_sum = view.function(reader) in _REDUCTIONS or _pair_of_squares(view, reader)
            if is_sum and view.is_decided(reader):
                yield Detection(node, f"its squares are summed by {reader.name!r}")
                yield Detection(reader, f"sums the squares that {node.name!r} makes", node)


def means(view: StructureView) -> Iterable[Detection]:
    """Divisions that turn a sum into a mean. The sum may overflow, so the division reads it in
    FP32.
    """
    if view.low.is_wide:
        return
    for total in view.nodes(Function.SUM):
        queue = view.readers(total)
        while queue:
            reader = queue.pop()
            is_mover = _moves(view, reader)
            if not view.is_decided(reader) or not (is_mover or _shrinks(view, reader)):
                continue
            text = (
                f"makes a mean of the sum {total.name!r}, which may pass the range before it is"
                " divided"
            )
            yield Detection(reader, text, total)
            queue += view.readers(reader) if is_mover else []


def _shrinks(view: StructureView, node: Node) -> bool:
    """Whether a node divides by a constant above 1 or multiplies by one below 1."""
    operand = _scaled_operand(view, node)
    facts = None if operand is None else view.constant(node, 1 - operand)
    if facts is None:
        return False
    return (
        facts.smallest > 1.0
        if view.function(node) is Function.DIVIDE
        else 0.0 < facts.largest < 1.0
    )


RULES = (
    StructureRule(
        "mean-by-sum", "a sum over an axis that is divided to be a mean", means, Lifting.BY_RANGES
    ),
    StructureRule(
        "layer-norm",
        "LayerNorm or InstanceNorm in small operators",
        _find("layer-norm"),
        Lifting.BY_RANGES,
    ),
    StructureRule("rms-norm", "RMSNorm in small operators", _find("rms-norm"), Lifting.BY_RANGES),
    StructureRule(
        "l2-norm", "division by an L2 norm in small operators", _find("l2-norm"), Lifting.BY_RANGES
    ),
    StructureRule("sum-of-squares", "squares summed over an axis", squares, Lifting.BY_RANGES),
)
