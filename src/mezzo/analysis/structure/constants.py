"""Constants and attributes that do not fit the low-precision format: masks, scales, epsilons."""

from collections.abc import Iterable, Iterator, Mapping

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.ir.walks import walk
from mezzo.tables.facts import Cost, Function, Transfer
from mezzo.tables.policy import Lifting

# Largest acceptable relative rounding error of a constant.
_LARGEST_LOSS = 1 / 8
# The largest FP32 number means "no bound" in Clip, where infinity is equivalent.
_NO_BOUND = 3.0e38
_STOPS = frozenset(
    {Function.SOFTMAX, Function.LOG_SOFTMAX, Function.COMPARE, Function.LOG, Function.SQRT}
)


def _constants(view: StructureView) -> Iterator[tuple[Node, int, int, ConstantFacts]]:
    """Operators with a constant operand that may not fit: node, operand, value, statistics. Operand
    -1: the operator generates the constant.
    """
    graph = view.graph
    for value, facts in graph.constants.items():
        if value in view.limited or value in view.masks or _fits(facts, view):
            continue
        producer = graph.producer(value)
        if producer.kind is Kind.OP and producer.signature.dtype is not None:
            yield producer, -1, value, facts
        for use in graph.uses[value]:
            node = graph.nodes[use.node]
            if node.signature.inputs[use.operand] is Role.GROUP and view.is_decided(node):
                yield node, use.operand, value, facts


def _fits(facts: ConstantFacts, view: StructureView) -> bool:
    """Whether a constant is neither large nor tiny, so that no rule of this file applies."""
    return not facts.largest or view.low.smallest_normal <= facts.largest < 2 / view.low.eps


def _spread(
    view: StructureView, start: Node, because: str, reached: set[int]
) -> Iterator[Detection]:
    """Detect a node with an unsuitable constant, and the nodes after it until an operator bounds
    the values, that operator included.

    `reached`: nodes that earlier calls for the same rule have visited. They are skipped, so that
    all calls together take linear time.
    """
    if start.id not in reached:
        reached.add(start.id)
        yield Detection(start, because)
        yield from _followers(view, start, reached)


def _followers(
    view: StructureView, start: Node, reached: set[int], lifting: Lifting | None = None
) -> Iterator[Detection]:
    """Detect the nodes after `start`."""

    def following(node: Node) -> Iterable[Node]:
        is_bounded = _bounds(view, node) or _averages(view, node, reached)
        return () if is_bounded else filter(view.is_decided, view.readers(node))

    for reader, node in walk([start], following, reached):
        text = f"reads what {node.name!r} makes of it, and nothing has bounded that yet"
        yield Detection(reader, text, node, lifting)


def _averages(view: StructureView, node: Node, reached: set[int]) -> bool:
    """Whether a node is attention of values that were not reached: its masks go no further."""
    values = node.operand(2)
    if view.transfer(node) is not Transfer.ATTENTION or values is None:
        return False
    return view.graph.producer(values).id not in reached


def _bounds(view: StructureView, node: Node) -> bool:
    """Whether a node's output is within the range for any input."""
    row = view.rows[node.id]
    if row is None or row.is_bounded or row.function in _STOPS:
        return row is not None
    if row.function is not Function.CLIP:
        return False
    ends = [view.constant(node, 1), view.constant(node, 2)]
    stated = node.float_attribute("min"), node.float_attribute("max")
    sizes = [facts.largest for facts in ends if facts is not None]
    sizes += [abs(end) for end in stated if end is not None]
    return len(sizes) == len(ends) and max(sizes) < view.low.overflow_from


def out_of_range(view: StructureView) -> Iterable[Detection]:
    limit = view.low.overflow_from
    texts: dict[int, str] = {}
    for node, operand, value, facts in _constants(view):
        if facts.largest < limit:
            continue
        if view.function(node) is Function.CLIP and operand > 0 and facts.largest > _NO_BOUND:
            continue
        name = view.graph.values[value].name
        text = (
            f"constant {name!r} reaches {facts.largest:.4g}, past {view.low.dtype}'s"
            f" {view.low.max_finite:.6g}"
        )
        texts.setdefault(node.id, text)
    yield from _spread_all(view, texts)


def _spread_all(view: StructureView, texts: Mapping[int, str]) -> Iterator[Detection]:
    """Detect all nodes with an out-of-range constant, then the nodes after them."""
    nodes = [view.graph.nodes[number] for number in texts]
    yield from map(Detection, nodes, texts.values())
    visited = set(texts)
    for node in nodes:
        # A norm's statistics are large, its output is not.
        if view.cost(node) is not Cost.NORMALIZATION:
            yield from _followers(view, node, visited, Lifting.BY_RANGES)


def near_range(view: StructureView) -> Iterable[Detection]:
    """Constants of more than half of the range, such as masks, which overflow in a sum."""
    limit = view.low.max_finite / 2
    visited: set[int] = set()
    for node, operand, value, facts in _constants(view):
        if (
            operand < 0
            or facts.values is None
            or not limit < facts.largest < view.low.overflow_from
        ):
            continue
        if view.function(node) in (
            Function.ADD,
            Function.SUBTRACT,
            Function.SELECT,
            Function.MULTIPLY,
        ):
            name = view.graph.values[value].name
            text = (
                f"constant {name!r} is {facts.largest:.6g}; one addition passes "
                f"{view.low.dtype}'s {view.low.max_finite:.6g}"
            )
            yield from _spread(view, node, text, visited)


def absorbing(view: StructureView) -> Iterable[Detection]:
    """Attention masks so large that adding one rounds the score away: if all scores of a row are
    masked, their differences are lost.
    """
    limit = 2 / view.low.eps
    visited: set[int] = set()
    for node, operand, value, facts in _constants(view):
        if (
            operand < 0
            or facts.values is None
            or facts.largest < limit
            or facts.largest >= view.low.overflow_from
        ):
            continue
        text = (
            f"constant {view.graph.values[value].name!r} is {facts.largest:.6g}; added to a value, "
            f"{view.low.dtype} keeps nothing of it below {facts.largest * view.low.eps / 2:.3g}"
        )
        if view.function(node) in _ADDS:
            yield from _spread(view, node, text, visited)
        elif view.function(node) is Function.MULTIPLY:
            for path in _paths_to_sums(view, node):
                for step in path[:-1]:
                    yield Detection(step, text)
                yield from _spread(view, path[-1], text, visited)


_ADDS = frozenset({Function.ADD, Function.SUBTRACT})


def _paths_to_sums(view: StructureView, start: Node) -> Iterator[list[Node]]:
    """Paths from a multiplication to additions, through at most three data movements."""
    paths = [[start]]
    for _ in range(4):
        following = []
        for path in paths:
            for reader in view.readers(path[-1]):
                if view.function(reader) in _ADDS:
                    yield [*path, reader]
                elif view.keeps_values(reader):
                    following.append([*path, reader])
        paths = following


def _loss(magnitude: float, view: StructureView) -> float:
    """Relative error of a magnitude that is rounded to a subnormal number or zero; else 0."""
    step = view.low.smallest_subnormal
    if magnitude >= view.low.smallest_normal:
        return 0.0
    return abs(round(magnitude / step) * step - magnitude) / magnitude


def tiny_constant(view: StructureView) -> Iterable[Detection]:
    """Constant factors that underflow. `guards.py` has the rules for epsilons and bounds.

    Weights that underflow are judged by the model's outputs instead. A bias is skipped: its error
    is at most its own size.
    """
    visited: set[int] = set()
    for node, operand, value, facts in _constants(view):
        function = view.function(node)
        is_contraction = view.transfer(node) is Transfer.CONTRACT
        if operand < 0 or function in _GUARDING or (is_contraction and operand == _BIAS):
            continue
        if not facts.largest or _loss(facts.largest, view) <= _LARGEST_LOSS:
            continue
        name = view.graph.values[value].name
        text = (
            f"constant {name!r} is {facts.largest:.4g}; {view.low.dtype} keeps "
            f"nothing smaller than {view.low.smallest_subnormal:.3g}"
        )
        if function in (Function.MULTIPLY, Function.DIVIDE, Function.POWER):
            yield from _spread(view, node, text, visited)
        else:
            lifting = Lifting.BY_OUTPUTS if is_contraction else None
            yield Detection(node, text, lifting=lifting)


_BIAS = 2  # the bias operand of a matmul or convolution
_GUARDING = frozenset(
    {
        Function.ADD,
        Function.SUBTRACT,
        Function.MAXIMUM,
        Function.MINIMUM,
        Function.CLIP,
        Function.SELECT,
    }
)


def attribute_out_of_range(view: StructureView) -> Iterable[Detection]:
    texts: dict[int, str] = {}
    for node in view.nodes_where(lambda row: bool(row.numbers)):
        row = view.rows[node.id]
        for name in () if row is None or not node.attributes else row.numbers:
            value = node.float_attribute(name)
            if value is not None and view.low.overflow_from <= abs(value) < _NO_BOUND:
                text = (
                    f"attribute {name!r} is {value:.6g}, past {view.low.dtype}'s"
                    f" {view.low.max_finite:.6g}"
                )
                texts.setdefault(node.id, text)
    yield from _spread_all(view, texts)


RULES = (
    StructureRule(
        "constant-out-of-range",
        "a constant overflows, and what it touches until something bounds it",
        out_of_range,
    ),
    StructureRule(
        "constant-near-range",
        "a mask so large that adding to it overflows",
        near_range,
        Lifting.BY_RANGES,
    ),
    StructureRule("absorbing-constant", "a mask that drowns what it is added to", absorbing),
    StructureRule("tiny-constant", "a scale that rounds away", tiny_constant),
    StructureRule("attribute-out-of-range", "an attribute overflows", attribute_out_of_range),
)
