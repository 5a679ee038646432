"""How the planner judges: which evidence beats which, what is said of it, and why each node has its precision."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import toy_dialect
from pairs import BF16_LINE, F16_LINE, pair_costs, side_of
from toy_options import TEXT, changed, choices, notes_of, planning, told, why

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Reason
from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Use
from mezzo.planner.choices.choosing import refusal_of
from mezzo.planner.plan_options import ErrorPrice
from mezzo.planner.planner import judge, matcher, rows_of
from mezzo.plugins.discovery import policy, target
from mezzo.tables.policy import GRANTED, Category, NamedFinding, NodeVerdict, Policy, rule
from mezzo.tables.target import Refusal, Target

F16, BF16 = DType.FLOAT16, DType.BFLOAT16


# -- verdicts and choices ---------------------------------------------------------------------------------------------


def test_facts_are_found_for_operators_alone() -> None:
    graph = toy_dialect.read(TEXT + "\nq = conjure p")
    rows = {node.name: row for node, row in zip(graph.nodes, rows_of(graph), strict=True)}
    assert rows["h"] is toy_dialect.FACTS["product"] and rows["p"] is toy_dialect.FACTS["plus"]
    assert [rows[name] for name in ("input x", "weight w", "q", "output p")] == [None] * 4


def test_what_is_no_operator_has_a_verdict_of_its_own() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\nt = move x\nc = move t\nh = product c w\ni = move h\nout i")
    kinds = {"t": Kind.TIE, "c": Kind.CAST}
    nodes = tuple(node._replace(kind=kinds.get(node.name, node.kind)) for node in graph.nodes)
    graph = changed(replace(graph, nodes=nodes), "i", dtype=None)
    found = told(judge(graph, planning()), graph)
    assert {name: (v.category, v.rule, v.because) for name, v in found.items() if name != "h"} == {
        "input x": (Category.CLEAR, "interface", "its type is part of the model's interface"),
        "output i": (Category.CLEAR, "interface", "its type is part of the model's interface"),
        "weight w": (Category.CLEAR, "source", "is stored or cast anew in each dtype that is read"),
        "t": (Category.CLEAR, "tie", "carries values across a body's border without arithmetic"),
        "c": (Category.CLEAR, "existing-cast", "rounds on purpose"),
        "i": (Category.CLEAR, "no-float", "computes no floats of its own"),
    }


def test_what_is_absent_has_no_category_and_denied_is_high() -> None:
    graph = changed(toy_dialect.read(TEXT), "m", dtype=None)
    side = side_of(judge(graph, planning()).problem)
    held = zip(side.choices, side.categories, strict=True)
    found = dict(zip((node.name for node in graph.nodes), held, strict=True))
    assert found["m"] == found["weight w"] == (Choice.ABSENT, None)
    assert found["e"] == (Choice.HIGH, Category.DENY)
    assert found["h"] == (Choice.FREE, Category.ALLOW)
    assert found["input x"] == (Choice.HIGH, Category.CLEAR)


def test_problem_has_what_the_wishes_say() -> None:
    graph, prices = toy_dialect.read(TEXT), {"h": ErrorPrice(5, "dear"), "nobody": ErrorPrice(9, "")}
    measured = pair_costs((1,) * 7, (2,) * 5)
    problem = judge(
        graph, planning(error_prices={F16: prices, BF16: {"m": ErrorPrice(7, "")}}, measured=measured)
    ).problem
    assert (problem.line, problem.prices) == (F16_LINE, target("any").costs)
    assert side_of(problem).penalties == (0, 0, 5, 0, 0, 0, 0)
    assert problem.measured is measured
    assert problem.costs_of == tuple(None if row is None else row.cost for row in rows_of(graph))
    plain = judge(graph, planning()).problem
    assert side_of(plain).penalties is None and plain.measured is None and plain.base_outputs == frozenset()


def test_rule_that_hands_on_high_is_in_the_problem() -> None:
    mixed = rule("mixed", Category.ALLOW, "", ops=["product"], output=HIGH, worth=GRANTED)
    graph = toy_dialect.read(TEXT)
    held = Policy(name="demo", summary="", rules=(mixed,), findings=None, otherwise=Category.INFER)
    assert judge(graph, planning(policy=held)).problem.base_outputs == {2}


def test_schema_decides_what_is_free_low_and_high() -> None:
    graph = toy_dialect.read("in x 8\na = move x\nb = move a\nc = move b\nout c")
    graph = changed(changed(graph, "a", dtype=F16), "b", legal=frozenset({HIGH, BF16}))
    assert choices(graph, planning()) == {
        "input x": Choice.HIGH, "a": Choice.LOW, "b": Choice.HIGH, "c": Choice.FREE, "output c": Choice.HIGH
    }  # fmt: skip


# -- the interface ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (Choice.HIGH, Choice.HIGH)),
        ({"io_default": F16}, (Choice.LOW, Choice.LOW)),
        ({"io_default": None}, (Choice.HIGH, Choice.FREE)),
        ({"io": {"x": F16}}, (Choice.LOW, Choice.HIGH)),
        ({"io": {"a": F16}}, (Choice.HIGH, Choice.LOW)),
        ({"io": {"a": HIGH}, "io_default": F16}, (Choice.LOW, Choice.HIGH)),
        ({"io": {"a": HIGH}, "io_default": None}, (Choice.HIGH, Choice.HIGH)),
    ],
)
def test_interface_is_what_the_caller_asks_for(asked: Mapping[str, object], expected: tuple[Choice, Choice]) -> None:
    found = choices(toy_dialect.read("in x 8\na = move x\nout a"), planning(**asked))
    assert (found["input x"], found["output a"]) == expected


def test_interface_that_holds_no_fp32_or_cannot_be_cast_stays_as_it_is() -> None:
    graph = toy_dialect.read("in x 8\na = move x\nout a")
    held_low = changed(graph, "input x", dtype=F16)
    assert choices(held_low, planning())["input x"] is Choice.LOW
    values = (graph.values[0]._replace(is_castable=False), graph.values[1])
    assert choices(replace(graph, values=values), planning(io_default=F16))["input x"] is Choice.HIGH
    narrow = changed(graph, "output a", legal=frozenset({HIGH}))
    assert choices(narrow, planning(io_default=F16))["output a"] is Choice.HIGH
    assert choices(narrow, planning(io_default=None))["output a"] is Choice.HIGH


def test_interface_that_cannot_be_had_is_refused() -> None:
    graph = toy_dialect.read("in x 8\na = move x\nout a")
    with pytest.raises(InputError) as caught:
        judge(graph, planning(io={"b": F16}))
    assert str(caught.value) == "io 'b' is no input or output of the model; choose one of a, x"
    with pytest.raises(InputError) as caught:
        judge(changed(graph, "input x", legal=frozenset({HIGH})), planning(io={"x": F16}))
    words = "io of 'x' is f16: 'x' holds f32, and cannot hold f16 at this opset; leave it out"
    assert str(caught.value) == words


def sequence(graph: Graph) -> Graph:
    values = (*graph.values[:-1], graph.values[-1]._replace(is_castable=False))
    return replace(graph, values=values)


def test_interface_of_a_sequence_is_asked_what_its_holders_allow() -> None:
    graph = sequence(toy_dialect.read("in x 8\ne = explode x\nout e"))
    with pytest.raises(InputError) as caught:
        judge(graph, planning(io={"e": F16}))
    assert str(caught.value) == (
        "io of 'e' is f16: 'e' is a sequence, which cannot be cast, and 'e' holds it in f32; ask the same of both, or "
        "leave it out"
    )
    assert judge(graph, planning(io={"e": HIGH})).problem.linked == ((0, 1, 1),)


def test_region_of_a_sequence_is_fixed_as_its_holders_are() -> None:
    graph = sequence(toy_dialect.read("in x 8\na = move x\nout a"))
    with pytest.raises(InputError) as caught:
        judge(graph, planning(fixed_regions=(("a", F16),)))
    assert str(caught.value) == (
        "the user asked so with --fix-region 'a': 'a' handles a sequence, which cannot be cast, and 'output a' holds "
        "it in f32; ask the same of both, or leave it out"
    )


# -- what the user says -----------------------------------------------------------------------------------------------


def test_patterns_are_names_globs_and_operators() -> None:
    graph = toy_dialect.read(TEXT)
    found = {
        pattern: [node.name for node in graph.nodes if matcher(pattern)(node)]
        for pattern in ("h", "[hm]", "*put*", "op:pl*", "op:in", "op:product", "H")
    }
    assert found == {
        "h": ["h"], "[hm]": ["h", "m"], "*put*": ["input x", "output p"], "op:pl*": ["p"], "op:in": [],
        "op:product": ["h"], "H": [],
    }  # fmt: skip
    odd = graph.nodes[2]._replace(name="a[0]")
    assert matcher("a[0]")(odd) and not matcher("b[0]")(odd)


def test_include_and_exclude_have_the_last_word() -> None:
    graph = toy_dialect.read(TEXT)
    asked = planning(include=("op:explode", "p"), exclude=("p",))
    found = told(judge(graph, asked), graph)
    assert found["e"] == NodeVerdict(
        category=Category.ALLOW,
        rule="include",
        because="the user asked so with --include 'op:explode'",
        cause=None,
        worth=4 * GRANTED,
    )
    assert found["p"] == NodeVerdict(
        category=Category.DENY, rule="exclude", because="the user asked so with --exclude 'p'", cause=None, worth=0
    )
    with pytest.raises(InputError) as caught:
        judge(graph, planning(exclude=("weight w",)))
    assert str(caught.value) == (
        "exclude 'weight w' matches no node; patterns are globs on node names, or 'op:' and an operator such as "
        "'op:product'"
    )
    with pytest.raises(InputError, match="such as 'op:Softmax'"):
        judge(toy_dialect.read("in x 8\nout x"), planning(include=("a",)))


def test_patterns_reach_ties() -> None:
    graph = toy_dialect.read(TEXT)
    nodes = tuple(node._replace(kind=Kind.TIE) if node.name == "m" else node for node in graph.nodes)
    graph = replace(graph, nodes=nodes)
    assert told(judge(graph, planning(exclude=("m",))), graph)["m"].rule == "exclude"


def test_regions_are_kept_or_fixed() -> None:
    graph = toy_dialect.read(TEXT)
    asked = planning(keep_regions=("h",), fixed_regions=(("m", F16), ("p", HIGH)))
    judged = judge(graph, asked)
    found, held = told(judged, graph), choices(graph, asked)
    words = "the user asked so with --{} {!r}"
    assert found["h"] == NodeVerdict(
        category=Category.DENY, rule="keep-region", because=words.format("keep-region", "h")
    )
    assert found["m"] == NodeVerdict(
        category=Category.ALLOW, rule="fix-region", because=words.format("fix-region", "m")
    )
    assert found["p"] == NodeVerdict(category=Category.DENY, rule="fix-region", because=words.format("fix-region", "p"))
    assert [held[name] for name in "hmp"] == [Choice.HIGH, Choice.LOW, Choice.HIGH]
    assert notes_of(judged) == ()


def test_region_that_cannot_run_low_is_told_and_one_that_is_low_is_left() -> None:
    graph = changed(changed(toy_dialect.read(TEXT), "p", legal=frozenset({HIGH})), "h", dtype=F16)
    judged = judge(graph, planning(fixed_regions=(("p", F16),), keep_regions=("h",)))
    assert notes_of(judged) == ("node 'p' cannot run in f16 here, so it stays f32",)
    found = side_of(judged.problem).choices
    assert (found[2], found[5]) == (Choice.LOW, Choice.HIGH)
    illegal = changed(toy_dialect.read(TEXT), "e", legal=frozenset({HIGH}))  # the policy denies it, too
    judged = judge(illegal, planning(fixed_regions=(("e", F16),)))
    assert notes_of(judged) == ("node 'e' cannot run in f16 here, so it stays f32",)
    assert told(judged, illegal)["e"].rule != "fix-region"
    denied = judge(toy_dialect.read(TEXT), planning(fixed_regions=(("e", F16),)))
    assert (side_of(denied.problem).choices[4], denied.verdicts()[4].rule) == (Choice.LOW, "fix-region")
    assert notes_of(denied) == ()


def test_region_that_is_not_there_is_refused() -> None:
    for option, asked in (("keep_region", {"keep_regions": ("z",)}), ("fix_region", {"fixed_regions": (("z", F16),)})):
        with pytest.raises(InputError) as caught:
            judge(toy_dialect.read(TEXT), planning(**asked))
        assert str(caught.value) == (
            f"{option} 'z' matches no node; regions are paths of scopes such as 'encoder/layer.3', and "
            "'mezzo.plan(model).nodes' lists every node by its path"
        )


def test_what_data_has_shown_denies_by_name() -> None:
    graph = changed(toy_dialect.read(TEXT), "p", dtype=None)
    found = (
        NamedFinding(node="h", rule="data-overflow", because="too large", cause="m"),
        NamedFinding(node="m", rule="data-vanishes", because="too small", cause="gone"),
        NamedFinding(node="p", rule="data-overflow", because="no float"),
        NamedFinding(node="nobody", rule="data-overflow", because=""),
    )
    verdicts = told(judge(graph, planning(found=found)), graph)
    assert verdicts["h"] == NodeVerdict(category=Category.DENY, rule="data-overflow", because="too large", cause=3)
    assert verdicts["m"] == NodeVerdict(category=Category.DENY, rule="data-vanishes", because="too small", cause=None)
    assert verdicts["p"].rule == "no-float"


def test_constant_past_the_range_is_clamped_where_that_is_asked_for() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8 65520\nconst u 8 65519\nh = product x w\nk = product h u\nout k")
    assert judge(graph, planning()).limits == {}
    assert told(judge(graph, planning()), graph)["h"].rule == "constant-out-of-range"
    clamped = judge(graph, planning(clamps_constants=True))
    assert clamped.limits == {1: 65504.0}
    assert told(clamped, graph)["h"].rule == "linear"


# -- targets ----------------------------------------------------------------------------------------------------------


def test_what_the_target_refuses_stays_and_says_so() -> None:
    row = Refusal(
        dialect=toy_dialect.DIALECT, op="product", because="no kernel", source="a book", dtypes=frozenset({F16})
    )
    graph, held = toy_dialect.read(TEXT), planning(target=Target(name="demo", summary="", refusals=(row,)))
    assert refusal_of(graph.nodes[2], held, F16) is row and refusal_of(graph.nodes[3], held, F16) is None
    assert choices(graph, held)["h"] is Choice.HIGH
    assert why(graph, held, set())["h"] == Reason("target", "demo: no kernel (a book)")
    assert choices(graph, replace(held, line=BF16_LINE))["h"] is Choice.FREE


# -- second names -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_widened", "io", "expected"),
    [(True, HIGH, Choice.HIGH), (False, HIGH, Choice.FREE), (True, F16, Choice.FREE)],
)
def test_identity_that_names_what_a_cast_made_fp32_follows_the_output(
    is_widened: bool, io: DType, expected: Choice, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = toy_dialect.facts("same", toy_dialect.Cost.MOVEMENT, function=toy_dialect.Function.IDENTITY)
    monkeypatch.setitem(toy_dialect.FACTS, "same", same)
    graph = toy_dialect.read("in x 8\na = move x\ny = same a\nout y")
    use = frozenset({Use(2, 0)}) if is_widened else frozenset()
    graph = replace(graph, widened=use, aliased=use)
    assert choices(graph, planning(policy=policy("aggressive"), io_default=io))["y"] is expected
