"""A third and a fourth level come as rows alone: the toy dialect's FP8 and its four-bit format."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import toy_dialect
from toy_dialect import BF16, F16, FP4, FP8, LINES, POLICY, TARGET

import mezzo.formats.dtypes
import mezzo.planner.planner
from mezzo.common.errors import InputError
from mezzo.contracts.plans import AddCast, AddCopy, Edit, Plan, PlannedNode, Reason, Retype
from mezzo.contracts.problem import Choice
from mezzo.contracts.strategy import cost
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import PrecisionLine
from mezzo.io.planfile import load_plan, save_plan, to_json
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.planner.options import check_levels
from mezzo.planner.plan_options import ErrorPrice, PlanningOptions
from mezzo.planner.planner import Judged, judge
from mezzo.planner.reasons import reasons
from mezzo.planner.recording import category_of, precision_of
from mezzo.plugins.discovery import strategies
from mezzo.report.views.picture import draw
from mezzo.tables.ops import op_facts
from mezzo.tables.policy import Category, rule
from mezzo.tables.target import Refusal

PROGRAM = """
in x 4194304
const w 4194304
h = product x w
b = blur h
k = product b w
m = move k
e = explode m
j = join e e
out j
"""
# A weight past FP8, in which nothing but FP16 or BF16 is left.
LARGE = "in x 4194304\nconst w 4194304 1e3\nh = product x w\nb = blur h\nout b"
EVERY_STRATEGY = pytest.mark.parametrize("strategy", strategies())
EVERY_LINE = pytest.mark.parametrize("line", LINES.values(), ids=map(str, LINES))


@pytest.fixture(autouse=True)
def _toy_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {toy_dialect.DIALECT: toy_dialect.FACTS}
    monkeypatch.setattr(mezzo.planner.planner, "op_facts", lambda dialect: tables.get(dialect) or op_facts(dialect))
    for dtype, held in toy_dialect.FORMATS.items():
        monkeypatch.setitem(mezzo.formats.dtypes.FORMATS, dtype, held)


def asked(line: PrecisionLine, strategy: str = "mincut", **changes: object) -> PlanningOptions:
    planning = PlanningOptions(line=line, policy=POLICY, strategy=strategies()[strategy], target=TARGET)
    return replace(planning, **changes)  # type: ignore[arg-type]  # fields by name


class Planned:
    """A program judged, assigned, lowered and checked; everything by name."""

    def __init__(self, text: str, planning: PlanningOptions) -> None:
        self.graph: Graph = toy_dialect.read(text)
        self.judged: Judged = judge(self.graph, planning)
        self.levels: Sequence[int] = planning.strategy.assign(self.judged.problem)
        self.edits: tuple[Edit, ...] = lower(self.judged.problem, self.levels)
        assert check(self.judged.problem, self.levels, self.edits) == []
        dtypes, names = planning.line.dtypes, [node.name for node in self.graph.nodes]
        self.runs: dict[str, DType] = {name: dtypes[level] for name, level in zip(names, self.levels, strict=True)}
        self.why: dict[str, Reason] = dict(zip(names, reasons(self.judged, self.levels, planning), strict=True))

    def casts(self) -> list[tuple[str, DType, DType | None]]:
        """What is cast: the value, the form that is made, and the form that is read if not the value itself."""
        names = [value.name for value in self.graph.values]
        return [(names[edit.value], edit.dtype, edit.reads) for edit in self.edits if isinstance(edit, AddCast)]


# -- verdicts ---------------------------------------------------------------------------------------------------------


@EVERY_LINE
def test_each_level_has_verdicts_of_its_own(line: PrecisionLine) -> None:
    judged = judge(toy_dialect.read(PROGRAM), asked(line))
    blur = [node.name for node in judged.problem.graph.nodes].index("b")
    found = {line.dtypes[level]: judged.verdicts(level)[blur].rule for level in line.others}
    expected = {F16: "statistics", BF16: "statistics", FP8: "coarse", FP4: "coarser"}
    assert found == {dtype: expected[dtype] for dtype in line.dtypes if dtype is not HIGH}


@EVERY_LINE
def test_schema_and_target_speak_of_each_level(line: PrecisionLine) -> None:
    judged = judge(toy_dialect.read(PROGRAM), asked(line))
    names = [node.name for node in judged.problem.graph.nodes]
    may_run = {
        name: {line.dtypes[level] for level in line.others if judged.problem.allowed[level, names.index(name)]}
        for name in ("h", "b", "m", "e", "j")
    }
    beside = set(line.dtypes) - {HIGH}
    assert may_run == {
        "h": beside, "b": beside & {F16, BF16}, "m": beside - {FP4}, "e": set(), "j": beside & {F16, BF16}
    }  # fmt: skip


# -- strategies -------------------------------------------------------------------------------------------------------


@EVERY_LINE
@EVERY_STRATEGY
def test_every_strategy_plans_every_line(line: PrecisionLine, strategy: str) -> None:
    found = Planned(PROGRAM, asked(line, strategy))
    assert found.runs["h"] is not HIGH and found.runs["e"] is HIGH
    assert {found.runs["input x"], found.runs["output j"]} == {HIGH}
    assert found.runs["b"] in (HIGH, F16, BF16)
    best = Planned(PROGRAM, asked(line))
    assert cost(best.judged.problem, best.levels) <= cost(best.judged.problem, found.levels)


def test_node_denied_in_the_furthest_level_runs_in_the_one_before() -> None:
    runs = Planned(PROGRAM, asked(LINES[4])).runs
    assert [runs[name] for name in "hbk"] == [FP4, F16, FP4]
    assert [Planned(LARGE, asked(LINES[4])).runs[name] for name in "hb"] == [F16, F16]
    assert [Planned(LARGE, asked(LINES[3])).runs[name] for name in "hb"] == [BF16, BF16]


def test_values_are_cast_through_neighbours_and_constants_stored() -> None:
    found = Planned(PROGRAM, asked(LINES[4]))
    assert found.casts()[:5] == [
        ("x", F16, None), ("x", FP8, F16), ("x", FP4, FP8), ("h", FP8, None), ("h", F16, FP8)
    ]  # fmt: skip
    names = [value.name for value in found.graph.values]
    assert [edit.dtype for edit in found.edits if isinstance(edit, Retype) and names[edit.value] == "w"] == [FP4]
    assert not [edit for edit in found.edits if isinstance(edit, AddCopy)]


def test_constant_read_at_three_levels_has_three_forms() -> None:
    text = "in x 4194304\nconst w 4194304\nh = product x w\nb = blur w\ne = explode w\np = join b e\nout h\nout p"
    found = Planned(text, asked(LINES[4], fixed_regions=(("b", F16),)))
    assert [edit.dtype for edit in found.edits if isinstance(edit, AddCopy)] == [F16, FP4]
    assert not [cast for cast in found.casts() if cast[0] == "w"]


def test_constant_past_the_range_of_one_level_goes_to_another() -> None:
    """1,000 is past FP8 (448), and past the four-bit format (6), and well inside FP16."""
    found = Planned("in x 4194304\nconst w 4194304 1e3\nh = product x w\nout h", asked(LINES[4]))
    assert found.runs["h"] is F16
    assert found.judged.verdicts(2)[2].rule == "constant-out-of-range"


# -- reasons ----------------------------------------------------------------------------------------------------------


@EVERY_LINE
def test_node_beside_the_base_has_the_rule_of_its_level(line: PrecisionLine) -> None:
    assert Planned(PROGRAM, asked(line)).why["h"].rule == "linear"
    found = Planned(LARGE, asked(line))
    assert found.why["b"] == Reason("statistics", "has kernels")


def test_node_at_the_base_is_told_why_it_has_none_of_the_levels() -> None:
    found = Planned("in x 4194304\nb = blur x\nj = join b b\nout j", asked(LINES[4], exclude=("b",)))
    assert found.runs["b"] is HIGH and found.why["b"].rule == "exclude"
    one_each = rule("own", Category.DENY, "wanted finer", costs=(), ops=["blur"], formats=[F16])
    policy = replace(POLICY, rules=(one_each, *POLICY.rules))
    found = Planned("in x 4194304\nb = blur x\nout b", asked(LINES[4], policy=policy))
    assert found.why["b"] == Reason(
        "own",
        "in f16: wanted finer; in f8e4m3fn: two mantissa bits are too few for statistics; "
        "in f4e2m1: one mantissa bit is too few",
    )


def test_node_at_the_base_that_may_run_at_some_level_was_not_decided() -> None:
    """`j` may run in FP16, so what FP8's schema says is not why it stands in FP32."""
    found = Planned("in x 8\nj = join x x\nout j", asked(LINES[4]))
    assert found.runs["j"] is HIGH and found.why["j"].rule == "follows"
    number = [node.name for node in found.graph.nodes].index("j")
    assert found.judged.verdict_of(number, LINES[4].base).category is Category.INFER


# -- what users ask for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "dtype"), [(n, d) for n, line in LINES.items() for d in line.dtypes])
def test_interface_can_be_any_level(count: int, dtype: DType) -> None:
    found = Planned(PROGRAM, asked(LINES[count], io={"x": dtype, "j": HIGH if dtype in (FP8, FP4) else dtype}))
    assert found.runs["input x"] is dtype
    judged = judge(toy_dialect.read(PROGRAM), asked(LINES[count], io_default=dtype))
    level = LINES[count].level_of(dtype)
    assert level is not None and judged.problem.allowed[level, 0]


@pytest.mark.parametrize(("count", "dtype"), [(n, d) for n, line in LINES.items() for d in line.dtypes])
def test_region_can_be_fixed_to_any_level(count: int, dtype: DType) -> None:
    found = Planned(PROGRAM, asked(LINES[count], fixed_regions=(("[hb]", dtype),)))
    assert (found.runs["h"], found.runs["b"]) == (dtype, dtype)
    assert found.why["b"].rule == "fix-region"


def test_region_fixed_to_what_its_target_refuses_stays_and_says_so() -> None:
    refuses = replace(
        TARGET,
        refusals=(
            Refusal(dialect=toy_dialect.DIALECT, op="blur", because="none", source="table", dtypes=frozenset({FP8})),
        ),
    )
    planning = asked(LINES[4], target=refuses, policy=replace(POLICY, rules=()), fixed_regions=(("b", FP8),))
    found = Planned(PROGRAM, planning)
    assert found.runs["b"] is HIGH
    assert "node 'b' cannot run in f8e4m3fn here, so it stays f32" in found.judged.notes


@pytest.mark.parametrize("dtype", [F16, FP8, FP4])
def test_error_prices_hold_for_their_level_alone(dtype: DType) -> None:
    plain = Planned(PROGRAM, asked(LINES[4]))
    price = ErrorPrice(1 << 50, "too dear")
    found = Planned(PROGRAM, asked(LINES[4], error_prices={dtype: {"h": price, "k": price}}))
    assert plain.runs["h"] is FP4
    assert found.runs["h"] is (FP8 if dtype is FP4 else FP4)
    number = [node.name for node in found.graph.nodes].index("h")
    problem = found.judged.problem
    held = {LINES[4].dtypes[level]: (problem.side(level).penalties or [0] * 9)[number] for level in LINES[4].others}
    assert held == {**dict.fromkeys((F16, FP8, FP4), 0), dtype: 1 << 50}


def test_node_too_dear_at_every_level_says_so_of_each() -> None:
    prices = {dtype: {"h": ErrorPrice(1 << 50, f"dear in {dtype}")} for dtype in (F16, FP8, FP4)}
    found = Planned(PROGRAM, asked(LINES[4], error_prices=prices))
    assert found.runs["h"] is HIGH
    assert found.why["h"] == Reason(
        "error-budget", "in f16: dear in f16; in f8e4m3fn: dear in f8e4m3fn; in f4e2m1: dear in f4e2m1"
    )


@EVERY_LINE
def test_format_that_no_row_names_lets_nothing_run(line: PrecisionLine) -> None:
    """Of a policy, or a target, that knows the half formats only, the new levels hold nothing."""
    names = [node.name for node in toy_dialect.read(PROGRAM).nodes if node.kind is Kind.OP]
    halves = frozenset({F16, BF16})
    kept = replace(POLICY, formats=halves, rules=tuple(one for one in POLICY.rules if not one.formats & {FP8, FP4}))
    for changes in ({"policy": kept}, {"target": replace(TARGET, formats=halves)}):
        found = Planned(PROGRAM, asked(line, **changes))
        assert {found.runs[name] for name in names} <= {HIGH, *halves}
        for dtype in {FP8, FP4} & {*line.dtypes}:
            choices = found.judged.problem.sides[[d for d in line.dtypes if d is not HIGH].index(dtype)].choices
            assert {choices[node.id] for node in found.graph.nodes if node.kind is Kind.OP} == {Choice.HIGH}


# -- plan files -------------------------------------------------------------------------------------------------------


@EVERY_LINE
def test_plan_of_the_toy_dialect_is_saved_and_read_back(line: PrecisionLine, tmp_path: Path) -> None:
    found = Planned(PROGRAM, asked(line))
    why = list(found.why.values())
    nodes = tuple(
        PlannedNode(
            node.name, node.op, node.kind.value, precision_of(found.judged, node.id, found.levels[node.id]),
            category_of(found.judged, node.id, found.levels[node.id]), reason.rule, reason.because,
            None if reason.cause is None else found.graph.nodes[reason.cause].name,
        )
        for node, reason in zip(found.graph.nodes, why, strict=True)
    )  # fmt: skip
    plan = Plan(
        line=line,
        dialect="toy",
        version=None,
        settings=(),
        edits=(),
        limits=(),
        notes=(),
        make_nodes=lambda: nodes,
        make_fingerprint=lambda: "toy",
    )
    save_plan(plan, tmp_path / "plan.json")
    loaded = load_plan(tmp_path / "plan.json")
    assert (loaded.line, loaded.nodes, loaded.lows) == (line, nodes, line.other_dtypes)
    assert to_json(loaded) == to_json(plan)
    said = ", ".join(map(str, line.dtypes))
    with pytest.raises(InputError, match=f"^the plan has levels {said}, and a model takes f32 with one of fp16, bf16"):
        check_levels(loaded)
    picture = draw(found.judged.problem, found.levels, plan)
    assert picture.levels == len(line.levels)
    assert [share.dtype for share in picture.shares] == [*line.other_dtypes, HIGH]
    runs = [found.runs[node.name] for node in found.graph.nodes if node.kind is Kind.OP]
    assert [share.nodes for share in picture.shares] == [runs.count(dtype) for dtype in (*line.other_dtypes, HIGH)]
