"""Random problems of any number of levels, of no dialect: shared conversions, links, caps, penalties, fixed ports."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import toy_dialect

from mezzo.contracts.problem import Choice, LevelChoices, MeasuredCosts, Problem
from mezzo.contracts.quantized_level import DynamicProduct, DynamicWeight, Quantized
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import PrecisionLine, uniform
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Role, Scope, Signature, Use, Value
from mezzo.tables.policy import Category
from mezzo.tables.target import Costs

_OTHERS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.INT8)
_PRICES = (0, 1, 7, 50, 400, 3000)
_GAINS = (0, 0, 1, 9, 60, 500, 4000, -1, -30, -600)
_PENALTIES = (0, 0, 1, 20, 300, 5000, 10**7, 10**30)


def random_line(rng: random.Random, count: int) -> PrecisionLine:
    """Levels in a random order, FP32 anywhere among them."""
    dtypes = [HIGH, *rng.sample(_OTHERS, count - 1)]
    rng.shuffle(dtypes)
    return PrecisionLine(tuple(map(uniform, dtypes)), dtypes.index(HIGH))


def random_graph(rng: random.Random, line: PrecisionLine, size: int) -> Graph:
    """Operators that read earlier values, in roles of any kind, some in a loop body; values that cannot be cast."""
    nodes: list[Node] = []
    values: list[Value] = []
    legal = frozenset(line.dtypes)
    for number in range(size):
        kind = Kind.INPUT if number == 0 else rng.choice([Kind.OP] * 6 + [Kind.INPUT, Kind.SOURCE])
        reads = tuple(rng.randrange(len(values)) for _ in range(rng.choice([1, 1, 2, 3]))) if kind is Kind.OP else ()
        drawn = [rng.choice([Role.GROUP] * 8 + [Role.FIXED, Role.ANY]) for _ in reads]
        # Who holds what cannot be cast has its dtype, or asks for none.
        roles = tuple(
            Role.GROUP if role is Role.FIXED and not values[value].is_castable else role
            for role, value in zip(drawn, reads, strict=True)
        )
        scope = rng.choice([0, 0, 1])
        made = tuple(range(len(values), len(values) + rng.choice([1, 1, 1, 2]))) if kind is Kind.OP else (len(values),)
        for value in made:
            is_castable = kind is Kind.SOURCE or rng.random() > 0.08
            dtype = rng.choice([HIGH] * 9 + [DType.INT64]) if kind is Kind.OP and is_castable else HIGH
            values.append(Value(f"v{value}", dtype, number, scope, rng.choice([1, 8, 300]), is_castable))
        out = tuple(
            Role.FIXED if values[v].dtype is not HIGH or (values[v].is_castable and rng.random() < 0.1) else Role.GROUP
            for v in made
        )
        op = "mix" if kind is Kind.OP else kind.value
        signature = Signature(
            dialect=toy_dialect.DIALECT, op=op, version=1, inputs=roles, outputs=out, dtype=HIGH, legal=legal
        )
        nodes.append(Node(number, f"n{number}", kind, signature, scope, reads, made, {}))
    for value in rng.sample(range(len(values)), min(2, len(values))):
        signature = Signature(
            dialect="", op="out", version=1, inputs=(Role.GROUP,), outputs=(), dtype=HIGH, legal=legal
        )
        nodes.append(Node(len(nodes), f"out{len(nodes)}", Kind.OUTPUT, signature, 0, (value,), (), {}))
    scopes = (Scope(None, None, "", 1), Scope(0, 0, "body/", 4))
    return Graph(
        nodes=tuple(nodes),
        values=tuple(values),
        scopes=scopes,
        constants={},
        widened=frozenset(),
        aliased=frozenset(),
        forms={},
    )


def random_problem(seed: int, count: int, size: int = 9, is_measured: bool | None = None) -> Problem:
    """A problem of `count` levels. The same seed gives the same problem."""
    rng = random.Random(seed)
    line = random_line(rng, count)
    graph = random_graph(rng, line, size)
    planned = [node.id for node in graph.nodes if node.kind is not Kind.SOURCE]
    linked_at = [(t, *sorted(rng.sample(planned, 2))) for t in line.thresholds if rng.random() < 0.4]
    fixed = {
        node.id: rng.randrange(count) if node.kind is Kind.OP and rng.random() < 0.4 else line.base
        for node in graph.nodes
        if node.kind in (Kind.INPUT, Kind.OUTPUT) or rng.random() < 0.1
    }
    sides = [_random_side(rng, graph, level, fixed) for level in sorted(line.others)]
    caps = {}
    for node in graph.nodes:
        for operand, value in enumerate(node.inputs):
            can_be_capped = value is not None and graph.values[value].is_castable
            if can_be_capped and node.signature.inputs[operand] is Role.GROUP and rng.random() < 0.15:
                least, most = sorted((rng.randrange(count), rng.randrange(count)))
                caps[Use(node.id, operand)] = (least, most)
    measured = None
    if rng.random() < 0.7 if is_measured is None else is_measured:
        gains = tuple(
            tuple(0 if level == line.base else rng.choice(_GAINS) for _ in graph.nodes) for level in range(count)
        )
        measured = MeasuredCosts(
            gains, tuple(tuple(rng.choice(_PRICES) for _ in graph.values) for _ in line.thresholds)
        )
    prices = Costs(cast_launch=rng.choice([1, 100, 5000]), linear_factor=8)
    costs_of = (None,) * len(graph.nodes)
    return Problem(
        graph=graph,
        line=line,
        sides=tuple(sides),
        costs_of=costs_of,
        prices=prices,
        links=tuple(linked_at),
        caps=caps,
        measured=measured,
    )


def _random_side(rng: random.Random, graph: Graph, level: int, fixed: dict[int, int]) -> LevelChoices:
    choices, categories = [], []
    for node in graph.nodes:
        if node.kind is Kind.SOURCE:
            choices.append(Choice.ABSENT)
        elif node.id in fixed:
            choices.append(Choice.LOW if fixed[node.id] == level else Choice.HIGH)
        else:
            choices.append(Choice.FREE if rng.random() < 0.7 else Choice.HIGH)
        categories.append(rng.choice([Category.ALLOW, Category.ALLOW, Category.INFER, Category.CLEAR]))
    worths = tuple(rng.choice([0, 1, 3]) for _ in graph.nodes)
    penalties = tuple(rng.choice(_PENALTIES) for _ in graph.nodes) if rng.random() < 0.6 else None
    return LevelChoices(tuple(choices), tuple(categories), worths, penalties)


def can_be_kept(problem: Problem) -> bool:
    """Whether some assignment respects what is given and linked: the level given to all of a group is allowed."""
    return next(legal_assignments(problem), None) is not None


def legal_assignments(problem: Problem) -> Iterator[list[int]]:
    """Every assignment that respects choices and, threshold by threshold, links."""
    linked = np.array(problem.linked)
    choices = [
        np.flatnonzero(problem.allowed[:, node]).tolist() or [problem.line.base]
        for node in range(len(problem.graph.nodes))
    ]
    present = ~problem.is_absent
    for taken in itertools.product(*choices):
        levels = np.array(taken)
        is_legal = True
        for threshold in problem.line.thresholds:
            beyond, roots = levels > threshold, linked[threshold]
            if ((beyond != beyond[roots]) & present & present[roots]).any():
                is_legal = False
                break
        if is_legal:
            yield list(taken)


def describe(problem: Problem, levels: Sequence[int]) -> str:
    """An assignment by name, for a failure."""
    return ", ".join(
        f"{node.name} {problem.line.dtypes[level]}" for node, level in zip(problem.graph.nodes, levels, strict=True)
    )


def quantized_problem(seed: int, count: int, size: int = 9) -> Problem:
    """A problem whose last level is quantized, right behind the base: kernels that hand on either, that move what they
    read, or that keep what lies inside. Only operators may run there.
    """
    rng = random.Random(seed)
    problem = random_problem(seed, count, size)
    graph, others = problem.graph, [DType.FLOAT16, DType.BFLOAT16][: count - 2]
    dtypes = (*others, HIGH, DType.QUANTIZED8)
    line = PrecisionLine(tuple(map(uniform, dtypes)), count - 2)
    legal = frozenset(dtypes)
    nodes = tuple(node._replace(signature=replace(node.signature, legal=legal)) for node in graph.nodes)
    graph = replace(graph, nodes=nodes)
    fixed = {node.id: line.base for node in nodes if node.kind in (Kind.INPUT, Kind.OUTPUT)}
    sides = [_random_side(rng, graph, level, fixed) for level in sorted(line.others)]
    holds = {node for value in graph.values if not value.is_castable for node in _holders(graph, value)}
    choices = [
        Choice.HIGH if choice is Choice.FREE and (node.kind is not Kind.OP or node.id in holds) else choice
        for node, choice in zip(nodes, sides[-1].choices, strict=True)
    ]
    sides[-1] = replace(sides[-1], choices=tuple(choices))
    made = [
        value
        for node in nodes
        for value, role in zip(node.outputs, node.signature.outputs, strict=True)
        if node.kind is Kind.OP and role is Role.GROUP and value is not None
    ]
    kinds = {value: rng.randrange(4) for value in made}
    how = Quantization(dtype=DType.UINT8, scales=(0.5,), zero_points=(0,))
    late = _find_ranges(random.Random(seed), graph)
    kinds |= {value: 1 for number in late for value in nodes[number].outputs if value in kinds}
    caps = {Use(number, at): (0, line.base) for number in late for at in range(len(nodes[number].inputs))}
    quantized = Quantized(
        parameters=dict.fromkeys(range(len(graph.values)), how),
        stay_inside=frozenset(value for value, kind in kinds.items() if kind == 1),
        either_output=frozenset(value for value, kind in kinds.items() if kind == 2),
        passed_through=frozenset(value for value, kind in kinds.items() if kind == 3),
        dynamic={number: DynamicProduct(0, (DynamicWeight(Use(number, 1), how),)) for number in late},
    )
    return replace(
        problem, graph=graph, line=line, sides=tuple(sides), quantized=quantized, caps={**problem.caps, **caps}
    )


def _find_ranges(rng: random.Random, graph: Graph) -> list[int]:
    """Operators that find the range of what they read first as they run, half of all; some have no weight."""
    return [
        node.id
        for node in graph.nodes
        if node.kind is Kind.OP
        and len({*node.inputs}) == len(node.inputs)
        and all(role is Role.GROUP for role in (*node.signature.inputs, *node.signature.outputs))
        and rng.random() < 1 / 2
    ]


def _holders(graph: Graph, value: Value) -> set[int]:
    number = graph.values.index(value)
    return {value.producer, *(use.node for use in graph.uses[number])}
