"""Policies from TOML: what they mean, and that what they cannot mean is refused in one line."""

from pathlib import Path

import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.plugins import discovery
from mezzo.tables.files.policyfile import load_policy, read_policy
from mezzo.tables.policy import Category, Policy

_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x) => (float[4,4] y)
<float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}>
{
   [enc_a_mm]    a = MatMul(x, w)
   [enc_a_leaky] b = LeakyRelu(a)
   [enc_b_mm]    c = MatMul(b, w)
   [dec_mm]      y = MatMul(c, w)
}
"""


def model() -> onnx.ModelProto:
    """The model, its nodes named by path as exporters do, which ONNX text cannot spell."""
    found = onnx.parser.parse_model(_TEXT)
    for node in found.graph.node:
        node.name = node.name.replace("_", "/")
    return found


def policy(text: str) -> Policy:
    return read_policy(text, "mine", discovery.policy)


def precisions(text: str, **options: object) -> dict[str, str]:
    """Precision and rule of each operator under a policy and the forward strategy."""
    plan = mezzo.plan(model(), policy=policy(text), strategy="forward", **options)  # type: ignore[arg-type]
    return {node.name: f"{node.precision.compute} {node.rule}" for node in plan.nodes if node.kind == "op"}


def notes(text: str) -> tuple[str, ...]:
    return mezzo.plan(model(), policy=policy(text)).notes


# -- precedence -------------------------------------------------------------------------------------------------------

_NAME = '[[rule]]\nname = "by-name"\ngives = "{}"\nnode = "enc/a/mm"\n'
_REGION = '[[rule]]\nname = "by-region"\ngives = "{}"\nregion = "enc"\n'
_ATTRIBUTE = '[[rule]]\nname = "by-attribute"\ngives = "{}"\nop = "LeakyRelu"\nattribute = {{ alpha = 0.01 }}\n'


def test_name_beats_region_whatever_the_order() -> None:
    for rules in ((_NAME, _REGION), (_REGION, _NAME)):
        text = 'base = "balanced"\n' + rules[0].format("deny" if rules[0] is _NAME else "allow")
        text += rules[1].format("deny" if rules[1] is _NAME else "allow")
        assert precisions(text)["enc/a/mm"] == "f32 by-name"


def test_region_beats_attribute() -> None:
    text = 'base = "balanced"\n' + _ATTRIBUTE.format("deny") + _REGION.format("allow")
    assert precisions(text)["enc/a/leaky"] == "f16 by-region"


def test_attribute_beats_type_and_default_values_count() -> None:
    text = 'base = "balanced"\nallow = ["LeakyRelu"]\n' + _ATTRIBUTE.format("deny")
    assert precisions(text)["enc/a/leaky"] == "f32 by-attribute"


def test_type_beats_preset() -> None:
    assert precisions('base = "balanced"\ndeny = ["MatMul"]')["dec/mm"] == "f32 deny-list"


def test_first_rule_decides_among_equals() -> None:
    text = 'base = "balanced"\n' + _REGION.format("deny") + _REGION.replace("by-region", "second").format("allow")
    assert precisions(text)["enc/b/mm"] == "f32 by-region"


def test_command_line_beats_the_policy() -> None:
    text = 'base = "balanced"\n' + _NAME.format("deny")
    assert precisions(text, include=("enc/a/mm",))["enc/a/mm"] == "f16 include"
    assert precisions(text, fix_region={"enc/a": "fp16"})["enc/a/mm"] == "f16 fix-region"


def test_regular_expression_has_to_match_the_whole_name() -> None:
    text = 'base = "balanced"\n[[rule]]\nname = "some"\ngives = "deny"\nnode = "re:enc/./mm"\n'
    found = precisions(text)
    assert [name for name, told in found.items() if told == "f32 some"] == ["enc/a/mm", "enc/b/mm"]


# -- regions ----------------------------------------------------------------------------------------------------------


def test_kept_region_stays_and_the_rest_is_planned_around_it() -> None:
    plan = mezzo.plan(model(), keep_region=["enc/a"])
    found = {node.name: str(node.precision.compute) for node in plan.nodes if node.kind == "op"}
    assert found == {"enc/a/mm": "f32", "enc/a/leaky": "f32", "enc/b/mm": "f16", "dec/mm": "f16"}


def test_dots_and_slashes_both_separate_scopes() -> None:
    plan = mezzo.plan(model(), keep_region=["enc.a"])
    assert [n.name for n in plan.nodes if n.rule == "keep-region"] == ["enc/a/mm", "enc/a/leaky"]


def test_module_that_the_exporter_noted_is_a_region() -> None:
    noted = model()
    for node, scopes in zip(noted.graph.node, ("'', 'blocks.0', 'x'", "'', 'blocks.1', 'x'"), strict=False):
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=f"[{scopes}]")
    plan = mezzo.plan(noted, keep_region=["blocks/1"])
    assert [n.name for n in plan.nodes if n.rule == "keep-region"] == ["enc/a/leaky"]


def test_region_that_matches_nothing_is_refused() -> None:
    with pytest.raises(mezzo.InputError, match="keep_region 'decoder' matches no node; regions are paths of scopes"):
        mezzo.plan(model(), keep_region=["decoder"])


def test_region_cannot_be_fixed_to_another_low_format() -> None:
    with pytest.raises(mezzo.InputError, match="fix_region 'enc' is 'bf16'; this conversion goes to fp16"):
        mezzo.plan(model(), fix_region={"enc": "bf16"})


def test_region_that_shares_a_sequence_with_what_stays_is_refused() -> None:
    sequence = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[2] x, int64 i) => (float[2] y)
        {
           [a] s = SequenceConstruct(x)
           [b] t = SequenceInsert(s, x)
           [c] y = SequenceAt(t, i)
        }
    """)
    with pytest.raises(
        mezzo.InputError, match=r"'[ab]' handles a sequence, which cannot be cast, and '[ab]' holds it in f(16|32)"
    ):
        mezzo.plan(sequence, fix_region={"b": "fp16", "a": "fp32"})


# -- what is told -----------------------------------------------------------------------------------------------------


def test_unknown_operator_is_named_with_its_neighbour() -> None:
    assert "policy 'mine': 'deny-list' names operator 'Sofmax', which no table knows; did you mean 'Softmax'?" in notes(
        'base = "balanced"\ndeny = ["Sofmax"]'
    )


def test_rule_that_selects_nothing_is_named() -> None:
    text = 'base = "balanced"\n' + _REGION.replace('"enc"', '"head"').format("deny")
    assert "policy 'mine': 'by-region' selects no node of this model (region head)" in notes(text)


def test_missing_operators_are_told_with_their_nodes() -> None:
    told = "policy 'mine' speaks of none of these operators: LeakyRelu (1: 'enc/a/leaky')"
    assert told in notes('allow = ["MatMul"]')
    assert told not in notes('allow = ["MatMul"]\nmissing = "silent"')
    with pytest.raises(mezzo.InputError, match=r"LeakyRelu \(1: 'enc/a/leaky'\); add them to a list"):
        notes('allow = ["MatMul"]\nmissing = "error"')


def test_triple_is_in_the_plan_and_told_by_explain() -> None:
    text = 'infer = ["LeakyRelu"]\n[[rule]]\nname = "mixed"\ngives = "allow"\nop = "MatMul"\n'
    text += 'output = "fp32"\naccumulate = "fp32"'
    plan = mezzo.plan(model(), policy=policy(text), strategy="forward")
    assert [str(d) for d in plan.by_name["dec/mm"].precision] == ["f16", "f32", "f32"]
    assert [str(d) for d in plan.by_name["enc/a/leaky"].precision] == ["f32"] * 3  # it follows what is handed on


# -- refused ----------------------------------------------------------------------------------------------------------

REFUSED = [
    ("allow = [", "policy 'mine' is not TOML: "),
    ("allow = 3", "policy 'mine': allow is 3; write a list of texts"),
    ('alow = ["Conv"]', "policy 'mine': 'alow' is unknown; choose of allow, base, "),
    ('base = "bald"', "policy 'bald' is unknown; choose one of "),
    (
        'allow = ["Conv"]\ndeny = ["Gemm", "Conv"]',
        "policy 'mine': operator 'Conv' is in 'allow-list' (allow) and in 'deny-list' (deny); take it out of one",
    ),
    ("[rule]\n", "policy 'mine': 'rule' is dict; write each rule under [[rule]]"),
    ('[[rule]]\nop = "Conv"', "policy 'mine', rule 1 lacks 'gives'; write one of allow, infer, clear, deny"),
    ('[[rule]]\ngives = "maybe"\nop = "Conv"', "policy 'mine', rule 1: gives is 'maybe'; choose one of allow"),
    ('[[rule]]\ngives = "deny"', "policy 'mine', rule 1 says nothing of which nodes it is about; add op, node, "),
    ('[[rule]]\ngives = "deny"\nnode = "re:("', "policy 'mine', rule 1: node 're:(' is no regular expression: "),
    ('[[rule]]\ngives = "deny"\nop = "Conv"\nshape = 3', "policy 'mine', rule 1: shape is 3; write a table such as "),
    ('[[rule]]\ngives = "deny"\nshape = { operand = 1 }', "policy 'mine', rule 1: axis is None; write a whole"),
    ('[[rule]]\ngives = "deny"\nconstant = { operand = -1 }', "policy 'mine', rule 1: operand is -1; operands count "),
    ('[[rule]]\ngives = "deny"\nconstant = { operand = nan }', "policy 'mine', rule 1: operand is nan; write a whole"),
    ('[[rule]]\ngives = "allow"\nop = "Conv"\nworth = -1', "policy 'mine', rule 1: worth is -1; write for how many"),
    (
        '[[rule]]\ngives = "allow"\nop = "Conv"\noutput = "fp64"',
        "policy 'mine', rule 1: output is 'fp64'; that is ",
    ),
    ('missing = "loud"', "policy 'mine': missing is 'loud'; choose one of silent, warn, error"),
    ('promotes_untroubled = "yes"', "policy 'mine': promotes_untroubled is 'yes'; write true or false"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_a_policy_cannot_mean_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(mezzo.InputError) as caught:
        policy(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(mezzo.InputError, match=r"cannot read policy 'nowhere\.toml': No such file or directory"):
        mezzo.plan(model(), policy="nowhere.toml")


def test_file_gives_its_name_to_the_policy(tmp_path: Path) -> None:
    place = tmp_path / "mine.toml"
    place.write_text('deny = ["Softmax"]')
    read = load_policy(place, discovery.policy)
    assert (read.name, read.otherwise) == ("mine", Category.DENY)


@pytest.mark.parametrize("option", ["policy", "strategy", "target"])
def test_unknown_plug_in_is_refused_with_the_choices(option: str) -> None:
    table = getattr(discovery, {"policy": "policies", "strategy": "strategies", "target": "targets"}[option])()
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.plan(model(), **{option: "sorcery"})  # type: ignore[arg-type]
    more = "" if option == "strategy" else ", or write a .toml file of your own"
    assert str(caught.value) == f"{option} 'sorcery' is unknown; choose one of {', '.join(sorted(table))}{more}"
