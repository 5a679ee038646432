"""Findings at work on verdicts: who denies first, what data lifts, and what stays in the verdict of what was lifted."""

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from test_structure_rules import view

from mezzo.analysis.structure import StructureView
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType
from mezzo.planner.verdicts.findings import check_assumed, deny_measured, deny_suspected, notes_on_estimates
from mezzo.plugins.discovery import policy
from mezzo.tables.policy import Category, Evidence, Lift, NamedFinding, NodeVerdict, Policy

_PLAIN = NodeVerdict(category=Category.ALLOW, rule="otherwise", because="nothing said")
_SOFTMAX = "in x 8\na = add x x\ne = exp a\nt = sum e\ny = div e t\nz = log y\nout z"
# An exponential's constant beside it is out of range, which no data lifts.
_RANGE = "in x 8\nconst w 8\na = add x w\nb = exp a\nout b"
_ALL = policy("balanced")


def judged(
    seen: StructureView, policy: Policy = _ALL, before: NodeVerdict = _PLAIN, **lifted: Evidence
) -> Mapping[str, NodeVerdict]:
    """Verdicts of a graph's nodes by name, all of them the same before."""
    verdicts = [before] * len(seen.graph.nodes)
    deny_suspected(seen, verdicts, policy, lifted)
    return {node.name: verdict for node, verdict in zip(seen.graph.nodes, verdicts, strict=True)}


def test_a_finding_denies_its_node_with_its_words_and_its_cause() -> None:
    seen = view(_SOFTMAX)
    verdicts = judged(seen)
    assert {name for name, verdict in verdicts.items() if verdict.category is Category.DENY} == {"e", "t", "y"}
    assert verdicts["e"].rule == "softmax-decomposed" and verdicts["e"].cause is None
    assert verdicts["t"].cause == seen.graph.by_name["e"] and verdicts["t"].because
    assert verdicts["z"] is verdicts["a"] is _PLAIN


def test_a_policy_heeds_the_findings_that_it_names() -> None:
    for names, count in ((frozenset(), 0), (frozenset({"softmax-decomposed"}), 3), (frozenset({"log-sum-exp"}), 0)):
        verdicts = judged(view(_SOFTMAX), replace(_ALL, findings=names))
        assert sum(verdict.category is Category.DENY for verdict in verdicts.values()) == count


def test_the_first_finding_of_a_node_is_kept_and_beats_its_operators_own_rule() -> None:
    before = NodeVerdict(category=Category.DENY, rule="exponential", because="grows fast")
    assert judged(view(_SOFTMAX), before=before)["e"].rule == "softmax-decomposed"
    kept = NodeVerdict(category=Category.DENY, rule="tiny-constant", because="found before")
    assert judged(view(_SOFTMAX), before=kept)["e"] is kept


def test_data_lifts_what_ranges_answer_where_they_fit_and_the_verdict_says_so() -> None:
    fits, tight = Evidence("holds 0 to 2", fits=True), Evidence("holds 0 to 1e6", fits=False)
    verdicts = judged(view(_SOFTMAX), e=fits, t=tight)
    assert verdicts["e"] == replace(_PLAIN, lift=Lift("softmax-decomposed", "holds 0 to 2"))
    assert verdicts["t"].category is Category.DENY and verdicts["t"].lift is None
    assert verdicts["y"].category is Category.DENY


def test_no_data_lifts_what_no_data_answers() -> None:
    seen = view(_RANGE, w=(1e6,))
    verdicts = judged(seen, a=Evidence("holds 0 to 2", fits=True), b=Evidence("holds 0 to 2", fits=True))
    assert verdicts["a"].rule == "constant-out-of-range" and verdicts["a"].category is Category.DENY


def test_what_is_denied_anyway_or_was_lifted_before_is_left_as_it_is() -> None:
    denied = NodeVerdict(category=Category.DENY, rule="exponential", because="grows fast")
    lifted = replace(_PLAIN, lift=Lift("exponential", "before"))
    for before in (denied, lifted):
        assert judged(view(_SOFTMAX), before=before, e=Evidence("fits", fits=True))["e"] is before


def test_what_was_measured_denies_whatever_was_said() -> None:
    seen = view(_SOFTMAX)
    verdicts = [_PLAIN] * len(seen.graph.nodes)
    numbers = seen.graph.by_name
    findings = [
        NamedFinding(node="e", rule="overflow", because="reaches 7e4", cause="a"),
        NamedFinding(node="t", rule="overflow", because="reaches 8e4"),
        NamedFinding(node="y", rule="overflow", because="reads it", cause="gone"),
        NamedFinding(node="gone", rule="overflow", because="is not there"),
    ]
    deny_measured(seen.graph, verdicts, findings, DType.FLOAT16)
    assert verdicts[numbers["e"]] == NodeVerdict(
        category=Category.DENY, rule="overflow", because="reaches 7e4", cause=numbers["a"]
    )
    assert verdicts[numbers["t"]] == NodeVerdict(
        category=Category.DENY, rule="overflow", because="reaches 8e4", cause=None
    )
    assert verdicts[numbers["y"]].cause is None
    assert sum(verdict is not _PLAIN for verdict in verdicts) == 3


@pytest.mark.parametrize("names", [("x",), ("x", "m")])
def test_an_assumption_is_about_an_input(names: tuple[str, ...]) -> None:
    graph = view("in x 8\nin m 8\na = add x m\nout a").graph
    check_assumed(graph, dict.fromkeys(names, (0.0, 1.0)))
    with pytest.raises(InputError, match=re.escape("assume 'a' is no input of the model; choose one of m, x")):
        check_assumed(graph, {**dict.fromkeys(names, (0.0, 1.0)), "a": (0.0, 1.0)})


def test_assumptions_are_told_where_findings_rest_on_them() -> None:
    seen = view("in x 8\na = add x x\nout a")
    told = notes_on_estimates(seen, _ALL)
    assert "'x' unit scale (-4 to 4)" in told[0]
    assert notes_on_estimates(seen, replace(_ALL, findings=frozenset({"too-coarse"}))) == told
    assert notes_on_estimates(seen, replace(_ALL, findings=frozenset({"may-overflow", "layer-norm"}))) == told
    assert notes_on_estimates(seen, replace(_ALL, findings=frozenset({"layer-norm"}))) == ()
    assert notes_on_estimates(seen, replace(_ALL, findings=frozenset())) == ()
