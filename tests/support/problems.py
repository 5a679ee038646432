"""Random planning problems, and what the laws do to models: shuffle nodes, rename everything, enumerate assignments."""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
from hypothesis import strategies as st
from random_models import random_model

from mezzo.contracts.problem import Choice, Problem
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import line_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.magnitudes import facts
from mezzo.onnx.read.read import read
from mezzo.onnx.schema.shapes import value_sizes
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import Judged, judge
from mezzo.plugins.discovery import policies, policy, strategies, target, targets
from mezzo.tables.policy import Category
from mezzo.tables.target import Costs


@dataclass(frozen=True)
class Case:
    """A random model and what is asked of it. `build()` makes it again from the numbers that a failure prints."""

    seed: int
    size: int
    low: DType = DType.FLOAT16
    policy: str = "balanced"
    target: str = "any"
    has_unknown: bool = False

    def build(self) -> onnx.ModelProto:
        return random_model(random.Random(self.seed), self.size, has_unknown=self.has_unknown)

    def graph(self, model: onnx.ModelProto | None = None) -> Graph:
        return graph_of(self.build() if model is None else model, self.low)

    def judged(self, model: onnx.ModelProto | None = None) -> Judged:
        return judge(self.graph(model), self.planning())

    def planning(self) -> PlanningOptions:
        return PlanningOptions(
            line=line_of(HIGH, self.low),
            policy=policy(self.policy),
            strategy=strategies()["mincut"],
            target=target(self.target),
        )


def cases(most: int = 14) -> "st.SearchStrategy[Case]":
    return st.builds(
        Case,
        seed=st.integers(0, 2**32 - 1),
        size=st.integers(1, most),
        low=st.sampled_from([DType.FLOAT16, DType.BFLOAT16]),
        policy=st.sampled_from(sorted(policies())),
        target=st.sampled_from(sorted(targets())),
        has_unknown=st.sampled_from([False, False, False, True]),
    )


def graph_of(model: onnx.ModelProto, low: DType) -> Graph:
    return read(
        model,
        (low,),
        value_sizes(model, model.SerializeToString(), may_crash=True),
        partial(facts, blobs=Blobs("the model")),
    )[0]


def perturbed(problem: Problem, rng: random.Random) -> Problem:
    """The same graph with other sizes, prices, categories and choices: what no policy would think of."""
    graph = problem.graph
    values = tuple(v._replace(elements=rng.choice([1, 16, 1000, 50_000, 200_000])) for v in graph.values)
    sides = []
    for level, side in zip(sorted(problem.line.others), problem.sides, strict=True):
        choices, categories = list(side.choices), list(side.categories)
        for node in graph.nodes:
            can_be_free = node.kind is Kind.OP and problem.line.dtypes[level] in node.signature.legal
            if choices[node.id] is Choice.FREE and rng.random() < 0.25:
                choices[node.id], categories[node.id] = Choice.HIGH, Category.DENY
            elif choices[node.id] is Choice.FREE or (
                choices[node.id] is Choice.HIGH and can_be_free and rng.random() < 0.5
            ):
                choices[node.id] = Choice.FREE
                categories[node.id] = rng.choice([Category.ALLOW, Category.INFER, Category.CLEAR])
        sides.append(replace(side, choices=tuple(choices), categories=tuple(categories)))
    prices = Costs(cast_launch=rng.choice([1, 1 << 10, 1 << 18]), linear_factor=rng.choice([1, 4, 32]))
    return replace(problem, graph=replace(graph, values=values), sides=tuple(sides), prices=prices)


def with_most_free(problem: Problem, most: int, rng: random.Random) -> Problem:
    """The problem with all but `most` free groups of linked nodes held at the base."""
    linked = problem.linked[0]
    free = sorted({linked[n] for n in (problem.allowed.sum(axis=0) > 1).nonzero()[0].tolist()})
    kept = set(rng.sample(free, min(most, len(free))))
    sides = []
    for side in problem.sides:
        choices = tuple(
            Choice.HIGH if choice is Choice.FREE and linked[n] not in kept else choice
            for n, choice in enumerate(side.choices)
        )
        sides.append(replace(side, choices=choices))
    return replace(problem, sides=tuple(sides))


def assignments(problem: Problem) -> Iterator[list[int]]:
    """Every assignment that respects choices and links."""
    linked, line, start = problem.linked[0], problem.line, problem.given_levels
    free = problem.allowed.sum(axis=0) > 1
    groups: dict[int, list[int]] = {}
    fixed: dict[int, int] = {}
    for number, level in enumerate(start):
        if free[number]:
            groups.setdefault(linked[number], []).append(number)
        elif not problem.is_absent[number]:  # who stays at the base keeps all there
            held = fixed.get(linked[number], level)
            fixed[linked[number]] = level if held == level else line.base
    for root in [root for root in groups if root in fixed]:
        for number in groups.pop(root):
            start[number] = fixed[root]
    choices = [np.flatnonzero(problem.allowed[:, members].all(axis=1)).tolist() for members in groups.values()]
    for taken in itertools.product(*choices):
        levels = list(start)
        for members, level in zip(groups.values(), taken, strict=True):
            for number in members:
                levels[number] = level
        yield levels


def with_unique_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name of its own for every node, bodies and functions included."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for number, node in enumerate(_all_nodes(copy)):
        node.name = f"node {number}"
    return copy


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with other names for all values and nodes, in another alphabetical order."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names: dict[str, str] = {"": ""}

    def rename(name: str) -> str:
        return names.setdefault(name, f"{(len(names) * 7919) % 10_007:05d}/{len(names)}")

    for number, node in enumerate(_all_nodes(copy)):
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
        node.name = f"{(number * 31) % 101} {number}"
    for graph in _all_graphs(copy):
        for info in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            info.name = rename(info.name)
    for function in copy.functions:
        function.input[:] = [rename(name) for name in function.input]
        function.output[:] = [rename(name) for name in function.output]
    return copy


def shuffled(model: onnx.ModelProto, rng: random.Random) -> onnx.ModelProto:
    """The model with the nodes of the main graph in another valid order."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    waiting = list(model.graph.node)
    made = {name for node in waiting for name in node.output}
    ready: set[str] = set()
    del copy.graph.node[:]
    while waiting:
        free = [k for k, node in enumerate(waiting) if not (_reads(node) & made) - ready]
        node = waiting.pop(rng.choice(free))
        ready.update(node.output)
        copy.graph.node.append(node)
    return copy


def _reads(node: onnx.NodeProto) -> set[str]:
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            found.update(info.name for info in attribute.g.output)
            found.update(*map(_reads, attribute.g.node))
    return found


def _all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield model.graph
    for node in _all_nodes(model):
        yield from (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)


def _all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    def walk(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            yield node
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    yield from walk(attribute.g.node)

    yield from walk(model.graph.node)
    for function in model.functions:
        yield from walk(function.node)
