"""Rows of facts and rules of policies: what they hold, when they fire, and which of them decides."""

from dataclasses import fields

import pytest

from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.selectors import ByAttribute, ByName, ByRegion, Tier
from mezzo.tables.facts import Cost, Function, OpFacts, Risk, facts
from mezzo.tables.policy import GRANTED, Category, Lifting, Missing, NodeVerdict, Policy, Rule, rule

F16, BF16 = DType.FLOAT16, DType.BFLOAT16
KEY = "onnx", "Exp"
ROW = facts("Exp", Cost.POINTWISE, Risk.EXPONENTIAL, function=Function.EXP)


def test_row_holds_what_it_is_written_with() -> None:
    """What keeps its values keeps their scale."""
    row = facts(
        "Op", Cost.LINEAR, Risk.SUM, Risk.STEP, function=Function.MATMUL, keeps_values=True, is_bounded=True,
        source="a book", numbers=("alpha",),
    )  # fmt: skip
    risks = frozenset({Risk.SUM, Risk.STEP})
    assert row == OpFacts(
        op="Op",
        cost=Cost.LINEAR,
        function=Function.MATMUL,
        risks=risks,
        keeps_values=True,
        is_bounded=True,
        source="a book",
        numbers=("alpha",),
        scaling="x... -> x...",
    )


def test_row_says_nothing_that_is_not_written() -> None:
    assert facts("Op", Cost.OTHER) == OpFacts(
        op="Op",
        cost=Cost.OTHER,
        function=Function.NONE,
        risks=frozenset(),
        keeps_values=False,
        is_bounded=False,
        source="",
        numbers=(),
    )


def test_rule_holds_what_it_is_written_with() -> None:
    where = ByName("a"), ByRegion("b")
    written = rule(
        "name", Category.DENY, "why", costs=[Cost.LINEAR], risks=[Risk.SUM], formats=[F16], worth=3, ops=["Exp"],
        where=where, accumulate=HIGH, output=BF16,
    )  # fmt: skip
    expected = Rule(
        name="name", category=Category.DENY, because="why", costs=frozenset({Cost.LINEAR}),
        risks=frozenset({Risk.SUM}), formats=frozenset({F16}), worth=3, ops=frozenset({"Exp"}), where=where,
        accumulate=HIGH, output=BF16,
    )  # fmt: skip
    assert written == expected
    assert written.verdict() == NodeVerdict(
        category=Category.DENY, rule="name", because="why", cause=None, worth=3, accumulate=HIGH, output=BF16
    )


def test_rule_is_about_everything_that_it_does_not_limit() -> None:
    plain = rule("name", Category.ALLOW, "why")
    assert plain == Rule(name="name", category=Category.ALLOW, because="why")
    assert {field.name for field in fields(Rule) if getattr(plain, field.name)} == {
        "name", "category", "because", "lifting"
    }  # fmt: skip
    assert plain.lifting is Lifting.NEVER
    assert plain.fires(KEY, None, F16) and plain.fires(KEY, ROW, BF16)


@pytest.mark.parametrize(
    ("written", "low", "fires"),
    [
        ({"costs": [Cost.POINTWISE]}, F16, True),
        ({"costs": [Cost.LINEAR]}, F16, False),
        ({"risks": [Risk.EXPONENTIAL, Risk.SUM]}, F16, True),
        ({"risks": [Risk.SUM]}, F16, False),
        ({"costs": [Cost.LINEAR], "risks": [Risk.EXPONENTIAL]}, F16, True),  # any of both
        ({"costs": [Cost.LINEAR], "ops": ["Exp"]}, F16, True),
        ({"ops": ["Exp"]}, F16, True),
        ({"ops": ["onnx:Exp"]}, F16, True),
        ({"ops": ["com.microsoft:Exp", "Log"]}, F16, False),
        ({"formats": [BF16]}, F16, False),
        ({"formats": [BF16]}, BF16, True),
        ({"formats": [BF16], "ops": ["Exp"]}, F16, False),
    ],
)
def test_rule_fires_for_what_it_names(written: dict[str, list[object]], low: DType, fires: bool) -> None:
    assert rule("name", Category.ALLOW, "why", **written).fires(KEY, ROW, low) is fires  # type: ignore[arg-type]


def test_rule_about_costs_says_nothing_of_operators_without_facts() -> None:
    assert not rule("name", Category.ALLOW, "why", costs=[Cost.POINTWISE]).fires(KEY, None, F16)
    assert rule("name", Category.ALLOW, "why", ops=["Exp"]).fires(KEY, None, F16)


@pytest.mark.parametrize(
    ("written", "tier"),
    [
        ({}, Tier.PRESET),
        ({"costs": [Cost.LINEAR]}, Tier.PRESET),
        ({"ops": ["Exp"]}, Tier.TYPE),
        ({"ops": ["Exp"], "where": [ByAttribute("axis", (1,))]}, Tier.ATTRIBUTE),
        ({"where": [ByName("a"), ByAttribute("axis", (1,))]}, Tier.NAME),
        ({"where": [ByAttribute("axis", (1,)), ByRegion("a")]}, Tier.REGION),
    ],
)
def test_rule_is_as_specific_as_its_most_specific_part(written: dict[str, list[object]], tier: Tier) -> None:
    assert rule("name", Category.ALLOW, "why", **written).tier is tier  # type: ignore[arg-type]


ABOUT_COSTS = rule("costs", Category.ALLOW, "cheap", costs=[Cost.POINTWISE])
ABOUT_EXP = rule("exp", Category.DENY, "steep", ops=["Exp"], worth=2)
ABOUT_A = rule("a", Category.CLEAR, "told", where=[ByName("a")])


def policy(*rules: Rule, otherwise: Category = Category.INFER, unlisted: Category = Category.DENY) -> Policy:
    return Policy(name="demo", summary="", rules=rules, findings=None, otherwise=otherwise, unlisted=unlisted)


def test_more_specific_rule_decides_and_the_first_among_equals() -> None:
    assert policy(ABOUT_COSTS, ABOUT_EXP).judge(KEY, ROW, F16) == ABOUT_EXP.verdict()
    later = rule("later", Category.ALLOW, "", ops=["Exp"])
    assert policy(ABOUT_EXP, later).judge(KEY, ROW, F16) == ABOUT_EXP.verdict()
    assert policy(ABOUT_EXP, ABOUT_COSTS).judge(("onnx", "Relu"), ROW, F16) == ABOUT_COSTS.verdict()


def test_rules_about_single_nodes_judge_no_operator() -> None:
    assert policy(ABOUT_A).judge(KEY, ROW, F16).rule == "otherwise"
    assert policy(ABOUT_COSTS, ABOUT_A).local_rules(Tier.NAME) == (ABOUT_A,)
    assert policy(ABOUT_COSTS, ABOUT_A).local_rules(Tier.PRESET) == ()
    assert policy(ABOUT_COSTS, ABOUT_A).local_rules(Tier.REGION) == ()


def test_operator_of_which_nothing_is_known_gets_what_the_policy_says() -> None:
    words = "no facts are known of this operator"
    assert policy().judge(KEY, None, F16) == NodeVerdict(category=Category.DENY, rule="unlisted", because=words)
    assert policy(unlisted=Category.INFER).judge(KEY, None, F16) == NodeVerdict(
        category=Category.INFER, rule="unlisted", because=words
    )


@pytest.mark.parametrize(("otherwise", "worth"), [(Category.ALLOW, GRANTED), (Category.INFER, 0), (Category.DENY, 0)])
def test_operator_of_which_no_rule_speaks_is_granted_where_that_means_allow(otherwise: Category, worth: int) -> None:
    words = "no rule of the policy speaks of this operator"
    assert policy(otherwise=otherwise).judge(KEY, ROW, F16) == NodeVerdict(
        category=otherwise, rule="otherwise", because=words, cause=None, worth=worth
    )


def test_policy_is_silent_strict_and_ours_unless_it_says_otherwise() -> None:
    plain = Policy(name="demo", summary="", rules=(), findings=None)
    told = plain.otherwise, plain.promotes_untroubled, plain.limits_masks, plain.unlisted, plain.missing, plain.source
    assert told == (Category.INFER, True, False, Category.DENY, Missing.SILENT, "")
    assert not plain.trusts_exact_masks
    assert GRANTED == 16
