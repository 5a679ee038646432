"""Range repair and levels against their joint optimum, on random graphs with random ranges past FP16's.

    python benchmarks/ranges_and_levels.py
    python benchmarks/ranges_and_levels.py --problems 2000 --free 300 --json out/ranges_and_levels.json

mezzo chooses which components of values are scaled, and by what; then one cut gives every node its level. Here, for
each problem, all sets of components are tried with every power of two that their values and constants hold, and for
each the cut, which costs the least of all levels (`levels.py` holds it against every assignment). Graphs have branches,
joins, products of two values, norms, quotients, functions without scales, and constants that several nodes read.

In the second part every value has an exponent of its own, and each of them is tried, of small graphs: components are
then no limit either, since a value may be multiplied by a power of two before every reader. Costs are those of the
planner's tables: conversions and multiplications, less what lower levels gain, over the model in FP32.
"""

import argparse
import itertools
import json
import random
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

from mezzo.analysis.power_scales import Component
from mezzo.contracts.options.request import Request
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Use
from mezzo.numerics.measures import DataSource, Ranges, ValueRange
from mezzo.onnx.opening import open_model
from mezzo.planner.options import read_options
from mezzo.tuning.repair import range_repair
from mezzo.tuning.repair.range_repair import _Trials
from mezzo.tuning.repair.repair_scales import Repair, RepairScales

_HEAD = '<ir_version: 10, opset_import: ["" : 23]>\n'
# Exponents that are tried reach this far past the smallest that hold.
_REACH = 24
# Problems with more combinations of exponents are left out, and counted.
_MOST = 40_000
_BENT = ("Tanh", "Sigmoid", "Softplus", "Softmax")
_EXACT = ("Relu", "Abs", "Neg")


class Graph:
    """A graph in the making, as ONNX text and weights."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines = list[str]()
        self.weights = dict[str, np.ndarray]()
        self.values = [("x", 32)]  # names and widths

    def weight(self, *shape: int) -> str:
        """A constant of these lengths, an earlier one in a third of the cases."""
        alike = [name for name, array in self.weights.items() if array.shape == shape]
        if alike and self.rng.random() < 1 / 3:
            return self.rng.choice(alike)
        name = f"w{len(self.weights)}"
        numbers = np.random.default_rng(self.rng.randrange(1 << 30)).normal(size=shape)
        self.weights[name] = (numbers * 10 ** self.rng.uniform(-3, 3)).astype(np.float32)
        return name

    def add(self) -> None:
        """One operator on values so far, mostly on one of the last three."""
        value, width = self.rng.choice(self.values[-3:])
        result = f"v{len(self.lines)}"
        others = [name for name, other in self.values if other == width and name != value]
        kinds = ["MatMul"] * 4 + ["exact", "exact", "bent", "norm", "constant"] + ["join"] * 3 * bool(others)
        match self.rng.choice(kinds):
            case "MatMul":
                count = self.rng.choice((16, 32, 128))
                line, width = f"MatMul({value}, {self.weight(width, count)})", count
            case "join":
                pair = [value, self.rng.choice(others)]
                self.rng.shuffle(pair)
                line = f"{self.rng.choice(('Add', 'Add', 'Sub', 'Mul', 'Div', 'Concat <axis = 1>'))}({', '.join(pair)})"
                width *= 1 + ("Concat" in line)
            case "norm":
                ones, zeros = self.weight(width), self.weight(width)
                line = f"LayerNormalization({value}, {ones}, {zeros})"
            case "constant":
                line = f"{self.rng.choice(('Add', 'Mul'))}({value}, {self.weight(width)})"
            case "exact":
                line = f"{self.rng.choice(_EXACT)}({value})"
            case _:
                line = f"{self.rng.choice(_BENT)}({value})"
        self.lines.append(f"{result} = {line}")
        self.values.append((result, width))

    def model(self) -> onnx.ModelProto:
        """The model: its output is a product of the last value, and in half of the cases one more value is given."""
        self.weights["last"] = np.ones((self.values[-1][1], 8), np.float32)
        outputs = ["float[64,8] y"]
        if self.rng.random() < 0.5 and len(self.values) > 2:
            name, width = self.rng.choice(self.values[1:-1])
            outputs.append(f"float[64,{width}] {name}")
        body = "  ".join([*self.lines, f"y = MatMul({self.values[-1][0]}, last)"])
        model = onnx.parser.parse_model(f"{_HEAD}g (float[64,32] x) => ({', '.join(outputs)}) {{ {body} }}")
        for name, array in self.weights.items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return model


def random_ranges(rng: random.Random, model: onnx.ModelProto) -> Ranges:
    """A range for every value: what is exact or adds up has its operands', functions have at most 1, and of the others
    four in ten pass FP16's, with typical numbers that are up to 10,000 times smaller.
    """
    graph = open_model(model).read(DType.FLOAT16).graph
    ends: dict[int, tuple[float, float]] = {}
    ranges = []
    for node in graph.nodes:
        read = [ends[value] for value in node.present_inputs if value in ends]
        for value in node.present_outputs if node.kind is not Kind.SOURCE else ():
            largest = 10 ** (rng.uniform(4.9, 7) if rng.random() < 0.4 else rng.uniform(-2, 4))
            typical = largest * 10 ** rng.uniform(-4, 0)
            if node.op in (*_EXACT, "Add", "Sub", "Concat", "Softplus"):
                largest, typical = (max(ends) for ends in zip(*read, strict=True))
            elif node.op in _BENT:
                largest, typical = 1.0, min(typical, 1.0)
            ends[value] = largest, typical
            drawn = ValueRange(
                value=graph.values[value].name, node=node.name, op=node.op, count=1, sampled=1, minimum=-largest,
                maximum=largest, mean_absolute=typical, has_nan=False, has_infinity=False,
                quantiles=((0.5, typical), (0.9, typical)), formats={}, largest_at="drawn",
            )  # fmt: skip
            ranges.append(drawn)
    return Ranges(DataSource("drawn", 1, 1), tuple(ranges))


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem that range repair was asked about: its trials, and the cost of what it chose."""

    scales: RepairScales
    trials: _Trials
    chosen: int

    @property
    def unscaled(self) -> int:
        return self.trials.cost([])


def problems(count: int, sizes: Sequence[int], first: int = 0) -> Iterator[tuple[int, Problem]]:
    """Problems in which some component overflows, with their seeds."""
    for seed in itertools.count(first):
        rng = random.Random(seed)
        graph = Graph(rng)
        for _ in range(rng.choice(sizes)):
            graph.add()
        model = graph.model()
        options = read_options(Request(to="fp16", target="any", policy="aggressive"))
        kept = list[tuple[RepairScales, _Trials]]()

        def keep(scales: RepairScales, trials: _Trials, kept: list[tuple[RepairScales, _Trials]] = kept) -> object:
            kept.append((scales, trials))
            return best(scales, trials)

        with mock.patch.object(range_repair, "_best", keep):
            found = range_repair.repair_ranges(open_model(model), options, random_ranges(rng, model))
        if not kept or not movable(kept[0][0]):
            continue
        scales, trials = kept[0]
        exponents = {} if found is None else {each.value: each.exponent for each in found[1].scaled}
        yield seed, Problem(scales, trials, cost(scales, trials, by_id(scales, exponents)))
        count -= 1
        if not count:
            return


best = range_repair._best


def by_id(scales: RepairScales, exponents: Mapping[str, int]) -> dict[int, int]:
    return {number: exponents[v.name] for number, v in enumerate(scales.graph.values) if v.name in exponents}


def movable(scales: RepairScales) -> list[Component]:
    """The components that overflow."""
    largest = {value: measured.largest for value, measured in scales._measured.items()}
    return [
        each
        for each in scales.scaled.components(largest, scales._overflowing)
        if not scales._overflowing.isdisjoint(each.factors)
    ]


# A node's operands that are multiplied, by what; None if the exponents are impossible for it, or a constant would lose
# its bits or overflow.
Changes = Mapping[Use, int] | None


class Costs:
    """Costs of exponents. What changes at a node is found once for the exponents around it, and a plan is made once for
    each set of multiplications and of values in range.
    """

    def __init__(self, scales: RepairScales, trials: _Trials) -> None:
        self._scales, self._trials = scales, trials
        whole = scales.scaled
        self._nodes = [
            (node, tuple(v for _, v in (*whole.float_operands(node), *whole.float_results(node))))
            for node in scales.graph.nodes
        ]
        self._local = [dict[tuple[int, ...], Changes]() for _ in self._nodes]
        self._known = dict[object, int]()

    def of(self, exponents: Mapping[int, int]) -> int | None:
        """The least cost over all levels; None if the exponents are impossible, or a constant does not hold them."""
        shared: dict[tuple[int | None, int], list[Use]] = {}
        for number, (_, values) in enumerate(self._nodes):
            around = tuple([exponents.get(value, 0) for value in values])
            local = self._local[number]
            if around not in local:
                local[around] = self._changes(number, dict(zip(values, around, strict=True)))
            changes = local[around]
            if changes is None:
                return None
            for use, exponent in changes.items():
                read = self._scales.graph.nodes[use.node].inputs[use.operand]
                shared.setdefault((read, exponent), []).append(use)
        held = frozenset(value for value, k in exponents.items() if k)
        key = frozenset(map(tuple, shared.values())), held & self._scales._overflowing
        if key not in self._known:
            worst = next(iter(self._scales._measured.values()))
            scaled = {value: k for value, k in exponents.items() if k}
            self._trials._costs.clear()  # by identity, which a later repair may have
            self._known[key] = self._trials.cost([Repair(Component(scaled), 1, worst)] if scaled else [])
        return self._known[key]

    def _changes(self, number: int, exponents: Mapping[int, int]) -> Changes:
        scales, node = self._scales, self._nodes[number][0]
        try:
            shifts = scales.scaled.shifts(node, exponents)[0]
        except ValueError:
            return None
        if scales.lacks_room(node, exponents):
            return None
        return {Use(node.id, index): shift for index, shift in shifts.items()}


def cost(scales: RepairScales, trials: _Trials, exponents: Mapping[int, int]) -> int:
    found = Costs(scales, trials).of(exponents)
    assert found is not None, "mezzo chose it"
    return found


def least_of_sets(problem: Problem) -> int | None:
    """The least cost over all sets of components and all their scales; None if there are too many."""
    scales, costs = problem.scales, Costs(problem.scales, problem.trials)
    choices = [[{}, *scales_of(component, scales)] for component in movable(scales)]
    if np.prod([len(each) for each in choices], dtype=float) > _MOST:
        return None
    tried = (costs.of({v: k for part in parts for v, k in part.items()}) for parts in itertools.product(*choices))
    return min(each for each in tried if each is not None)


def scales_of(component: Component, scales: RepairScales) -> list[dict[int, int]]:
    """The exponents of a component's values, for each integer with which all of them are in range."""
    found = []
    for scale in range(-_REACH, _REACH + 1):
        if scale and scales.holds(component, scale):
            found.append(component.exponents(scale))
    return found


def least_of_all(problem: Problem) -> int | None:
    """The least cost over all exponents of all values; None if there are too many.

    Of each value, exponents are tried that some overflowing value needs at least, by the row of an operator that
    divides them or adds them up too, and 0.
    """
    scales, costs = problem.scales, Costs(problem.scales, problem.trials)
    needed = {scales._bits_over(scales._measured[value]) for value in scales._overflowing}
    free = [v for v in range(scales.scaled.count) if scales.scaled.is_scaled(v) and not scales.scaled.is_fixed(v)]
    choices = []
    for value in free:
        tried = {0, *needed, *(-k for k in needed)}
        if value in scales._measured:
            tried = {k for k in tried if k == 0 or scales._fits(scales._measured[value], k)}
        choices.append(sorted(tried))
    if np.prod([len(each) for each in choices], dtype=float) > _MOST:
        return None
    tried_costs = (costs.of(dict(zip(free, ks, strict=True))) for ks in itertools.product(*choices))
    return min(each for each in tried_costs if each is not None)


@dataclass(frozen=True, slots=True)
class Row:
    """Problems against one optimum. Gaps are of mezzo's cost over the least, by what scaling saves at best or by the
    size of the least cost, whichever is larger.
    """

    against: str
    problems: int
    left_out: int
    repaired: int
    least: int
    within_1_percent: int
    mean_gap: float
    worst_gap: float
    ms: float


def measure(against: str, count: int, sizes: Sequence[int]) -> tuple[Row, list[int]]:
    solve = least_of_sets if against == "sets and scales" else least_of_all
    gaps, left_out, repaired, begun, worse = list[float](), 0, 0, time.process_time(), list[int]()
    for seed, problem in problems(10**9, sizes):
        if len(gaps) == count:
            break
        least = solve(problem)
        if least is None:
            left_out += 1
            continue
        assert least <= problem.unscaled
        gaps.append((problem.chosen - least) / max(abs(least), problem.unscaled - least, 1))
        repaired += problem.chosen < problem.unscaled
        if problem.chosen > least:
            worse.append(seed)
            print(f"{against}: seed {seed}: {problem.unscaled} unscaled, {problem.chosen} chosen, {least} least",
                  file=sys.stderr, flush=True)  # fmt: skip
    ms = 1000 * (time.process_time() - begun) / max(len(gaps), 1)
    row = Row(
        against, len(gaps), left_out, repaired, sum(gap <= 0 for gap in gaps), sum(gap <= 0.01 for gap in gaps),
        statistics.fmean(gaps), max(gaps), ms,
    )  # fmt: skip
    return row, worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--free", type=int, default=100, help="problems with an exponent for every value")
    parser.add_argument("--json", type=Path, default=Path("out/ranges_and_levels.json"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    measured = [
        measure("sets and scales", args.problems, range(4, 13)),
        measure("all exponents", args.free, range(3, 6)),
    ]
    rows = [row for row, _ in measured]
    table = Table("against", "problems", "left out", "repaired", "least", "within 1 %", "mean gap", "worst", "ms each")
    for row in rows:
        table.add_row(
            row.against, f"{row.problems:,}", f"{row.left_out:,}", f"{row.repaired:,}", f"{row.least:,}",
            f"{row.within_1_percent:,}", f"{row.mean_gap:.3%}", f"{row.worst_gap:.1%}", f"{row.ms:.0f}",
        )  # fmt: skip
    Console().print(table)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    document = {"environment": describe_environment("mezzo"), "rows": [asdict(row) for row in rows]}
    args.json.write_text(json.dumps({**document, "worse": [seeds for _, seeds in measured]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
