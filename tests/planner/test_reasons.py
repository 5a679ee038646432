"""Why each node has its precision, and what a policy tells of its own rules."""

from dataclasses import replace

import pytest
import toy_dialect
from toy_options import TEXT, changed, notes_of, planning, told, why

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Reason
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Role
from mezzo.ir.selectors import ByAttribute, ByName, ByRegion
from mezzo.planner.plan_options import ErrorPrice
from mezzo.planner.planner import judge
from mezzo.plugins.discovery import strategies
from mezzo.tables.policy import Category, Missing, Policy, Rule, rule

F16, BF16 = DType.FLOAT16, DType.BFLOAT16


# -- reasons ----------------------------------------------------------------------------------------------------------


def test_decided_nodes_say_their_rule_and_followers_their_neighbour() -> None:
    graph = toy_dialect.read(TEXT)
    found = why(graph, planning(), {"h", "m"})
    assert found["h"].rule == "linear" and found["h"].cause is None
    assert found["e"].rule == judge(graph, planning()).verdicts()[4].rule
    assert found["input x"] == Reason("interface", "its type is part of the model's interface")
    assert found["weight w"] == Reason("source", "is stored or cast anew in each dtype that is read")
    because = strategies()["mincut"].because
    assert found["m"] == Reason("follows", f"follows 'h', its neighbour in f16: {because}", 2)
    assert found["p"] == Reason("follows", f"follows 'e', its neighbour in f32: {because}", 4)


def test_follower_of_a_follower_names_the_one_on_the_way() -> None:
    graph = toy_dialect.read("in x 8\nconst w 8\nh = product x w\na = move h\nb = move a\nc = move b\nout c")
    found = why(graph, planning(), {"h", "a", "b", "c"})
    assert [found[name].cause for name in "abc"] == [2, 3, 4]


def test_nearest_decided_node_is_followed() -> None:
    graph = toy_dialect.read("in x 8\ne = explode x\na = move e\nb = move a\nf = explode b\nout f")
    found = why(graph, planning(), set())
    assert [found[name].cause for name in "ab"] == [1, 4]


def test_node_with_nobody_to_follow_is_left_to_the_strategy() -> None:
    graph = toy_dialect.read("in x 8\na = move x\nout a")
    asked = planning(policy=Policy(name="demo", summary="", rules=(), findings=None, promotes_untroubled=False))
    assert why(graph, asked, {"a"})["a"] == Reason(*strategies()["mincut"].leaves)


def test_node_that_is_low_in_the_model_says_so() -> None:
    graph = changed(toy_dialect.read("in x 8\na = move x\nout a"), "a", dtype=F16)
    assert why(graph, planning(), {"a"})["a"] == Reason("typed", "is f16 in the model already")


def test_node_that_the_schema_keeps_says_so() -> None:
    graph = changed(toy_dialect.read("in x 8\na = move x\nout a"), "a", legal=frozenset({HIGH}))
    assert why(graph, planning(), set())["a"] == Reason("schema", "move version 1 does not allow f16")


def test_price_of_an_error_is_the_reason_only_where_it_outweighs_the_gain() -> None:
    graph = toy_dialect.read(TEXT)
    gain = int(judge(graph, planning()).problem.gains[1, 2])
    dear = planning(error_prices={F16: {"h": ErrorPrice(gain + 1, "too dear")}})
    assert why(graph, dear, set())["h"] == Reason("error-budget", "too dear")
    assert why(graph, dear, {"h"})["h"].rule == "linear"
    even = planning(error_prices={F16: {"h": ErrorPrice(gain, "fair")}})
    assert why(graph, even, set())["h"].rule != "error-budget"


def test_allowed_node_that_stays_high_is_no_reason_of_its_own() -> None:
    graph = toy_dialect.read(TEXT)
    assert why(graph, planning(), set())["h"].rule == "follows"


# -- rules of a policy ------------------------------------------------------------------------------------------------


def of_user(*rules: Rule, missing: Missing = Missing.SILENT) -> Policy:
    return Policy(
        name="mine",
        summary="",
        rules=rules,
        findings=None,
        otherwise=Category.INFER,
        missing=missing,
        source="mine.toml",
    )


def test_first_rule_that_selects_a_node_decides() -> None:
    first = rule("first", Category.DENY, "", where=[ByName("h")])
    second = rule("second", Category.ALLOW, "", where=[ByName("*")])
    graph = toy_dialect.read(TEXT)
    judged = judge(graph, planning(policy=of_user(first, second)))
    found = told(judged, graph)
    assert (found["h"].rule, found["m"].rule) == ("first", "second")
    assert (found["input x"].rule, found["weight w"].rule) == ("interface", "source")
    assert notes_of(judged) == ()


def test_all_of_a_rules_conditions_have_to_hold() -> None:
    both = rule("both", Category.DENY, "", where=[ByName("h"), ByName("m")])
    judged = judge(toy_dialect.read(TEXT), planning(policy=of_user(both)))
    assert "both" not in {verdict.rule for verdict in judged.verdicts()}
    assert notes_of(judged) == ("policy 'mine': 'both' selects no node of this model (node h, node m)",)


@pytest.mark.parametrize(("selector", "rules"), [(ByAttribute("axis", (1,)), ["on"]), (ByRegion("*"), ["on", "on"])])
def test_ties_have_names_and_regions_and_no_attributes(selector: ByAttribute | ByRegion, rules: list[str]) -> None:
    graph = toy_dialect.read("in x 8\na = move x\nt = move a\nout t")
    kinds = {"t": Kind.TIE}
    nodes = [
        node._replace(kind=kinds.get(node.name, node.kind), attributes={"axis": 1} if node.name in "at" else {})
        for node in graph.nodes
    ]
    held = of_user(rule("on", Category.DENY, "", where=[selector]))
    verdicts = judge(replace(graph, nodes=tuple(nodes)), planning(policy=held)).verdicts()
    assert [verdict.rule for verdict in verdicts if verdict.rule == "on"] == rules


def test_rules_of_mezzo_are_not_told_to_be_idle() -> None:
    idle = rule("idle", Category.DENY, "", where=[ByName("z")], ops=["Nowhere"])
    held = replace(of_user(idle), source="")
    assert notes_of(judge(toy_dialect.read(TEXT), planning(policy=held))) == ()


def test_operator_that_no_table_knows_is_told() -> None:
    held = of_user(rule("listed", Category.DENY, "", ops=["Sofmax", "ai.onnx:Zzzzz", "explode", "com.microsoft:Gelu"]))
    words = "policy 'mine': 'listed' names operator {}, which no table knows{}"
    assert notes_of(judge(toy_dialect.read(TEXT), planning(policy=held))) == (
        words.format("'Sofmax'", "; did you mean 'Softmax'?"),
        words.format("'ai.onnx:Zzzzz'", ""),
    )


def test_operators_that_nothing_speaks_of_are_told_as_the_policy_wants() -> None:
    graph = toy_dialect.read("in x 8\n" + "\n".join(f"c{n} = conjure x" for n in range(4)) + "\nm = move x\nout m")
    words = "policy 'mine' speaks of none of these operators: conjure (4: 'c0', 'c1', 'c2', ...), move (1: 'm')"
    assert notes_of(judge(graph, planning(policy=of_user(missing=Missing.WARN)))) == (words,)
    assert notes_of(judge(graph, planning(policy=of_user()))) == ()
    with pytest.raises(InputError) as caught:
        judge(graph, planning(policy=of_user(missing=Missing.ERROR)))
    assert str(caught.value) == f'{words}; add them to a list, or set missing = "warn"'
    three = toy_dialect.read("in x 8\n" + "\n".join(f"c{n} = conjure x" for n in range(3)) + "\nout x")
    told_of = notes_of(judge(three, planning(policy=of_user(missing=Missing.WARN))))
    assert told_of == ("policy 'mine' speaks of none of these operators: conjure (3: 'c0', 'c1', 'c2')",)
    covered = of_user(rule("all", Category.INFER, "", ops=["conjure", "move"]), missing=Missing.ERROR)
    assert notes_of(judge(graph, planning(policy=covered))) == ()


def test_operator_without_floats_is_not_missed() -> None:
    graph = changed(toy_dialect.read("in x 8\nm = move x\nout m"), "m", dtype=None, inputs=(Role.FIXED,))
    assert notes_of(judge(graph, planning(policy=of_user(missing=Missing.ERROR)))) == ()
