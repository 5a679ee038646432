"""What `explain` takes: every word by which a node of a plan is known, in any model."""

from pathlib import Path

import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import models
from sweeps import swept

import mezzo
from mezzo.api.explain import NameKind, chain_of, find_meant
from mezzo.io.planfile import load_plan, save_plan

_TWO_BLOCKS = """
<ir_version: 10, opset_import: ["" : 21]>
g (int64[N,8] ids, float[N,8,4] x) => (float[N,8,4] y, int64[3] shape)
<float[16,4] table, float[4,4] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   [look] e = Gather(table, ids)
   [sum] a = Add(e, x)
   [first] h = MatMul(a, w)
   [soft] s = Softmax<axis=-1>(h)
   [second] y = MatMul(s, w)
   [size] shape = Shape(y)
}
"""


def _model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(_TWO_BLOCKS.replace("4] table", f"4] table = {{{','.join('1' * 64)}}}"))
    for node, path in zip(model.graph.node, ("emb", "emb", "enc.0", "enc.0", "enc.1", ""), strict=True):
        if path:
            scopes = repr(["", path.partition(".")[0], path, node.name])
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    return model


@pytest.fixture(scope="module")
def plan() -> mezzo.Plan:
    return mezzo.plan(_model())


@pytest.mark.parametrize(
    ("word", "known", "names"),
    [
        ("soft", NameKind.NODE, ["soft"]),
        ("s", NameKind.MADE, ["soft"]),
        ("y", NameKind.MADE, ["second"]),
        ("w", NameKind.READ, ["first", "second"]),
        ("table", NameKind.READ, ["look"]),
        ("ids", NameKind.READ, ["look"]),
        ("x", NameKind.MADE, ["input x"]),
        ("input x", NameKind.NODE, ["input x"]),
        ("MatMul", NameKind.OPERATOR, ["first", "second"]),
        ("matmul", NameKind.OPERATOR, ["first", "second"]),
        ("op:Mat*", NameKind.OPERATOR, ["first", "second"]),
        ("enc.0", NameKind.REGION, ["first", "soft"]),
        ("enc/0", NameKind.REGION, ["first", "soft"]),
        ("enc", NameKind.REGION, ["first", "soft", "second"]),
        ("s*", NameKind.PATTERN, ["sum", "soft", "second"]),
        ("input*", NameKind.PATTERN, ["input x"]),
    ],
)
def test_a_word_stands_for_nodes(plan: mezzo.Plan, word: str, known: NameKind, names: list[str]) -> None:
    meant = find_meant(plan, word)
    assert (meant.known, [node.name for node in meant.nodes]) == (known, names)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("shape", "'shape' holds i64, no floats, and nothing that reads it computes in floats; "),
        ("sofmax", "no node, value, operator or module 'sofmax' computes floats in this model; did you mean 'Softmax'"),
        ("secnd", "did you mean 'second'"),
        ("tabel", "did you mean 'table'"),
        ("encc.0", "did you mean 'enc.0'"),
        ("qqqq", "'mezzo.plan(model).nodes' lists what there is"),
        ("", "no node, value, operator or module '' computes floats"),
    ],
)
def test_a_word_that_stands_for_none_is_asked_back(plan: mezzo.Plan, word: str, said: str) -> None:
    with pytest.raises(mezzo.InputError) as caught:
        find_meant(plan, word)
    assert said in str(caught.value)


def test_a_name_of_a_node_wins_over_all_else() -> None:
    model = _model()
    model.graph.node[0].name = "Softmax"
    assert find_meant(mezzo.plan(model), "Softmax").known is NameKind.NODE


def test_python_explains_one_node_and_asks_for_one_of_several(plan: mezzo.Plan) -> None:
    assert mezzo.explain(plan, "s") == chain_of(plan, plan.by_name["soft"])
    with pytest.raises(mezzo.InputError, match=r"^'MatMul' is 2 nodes, 'first', 'second'; ask for one of them$"):
        mezzo.explain(plan, "MatMul")


def test_a_saved_plan_knows_nodes_and_operators_and_no_values(plan: mezzo.Plan, tmp_path: Path) -> None:
    save_plan(plan, tmp_path / "plan.json")
    saved = load_plan(tmp_path / "plan.json")
    assert [node.name for node in find_meant(saved, "MatMul").nodes] == ["first", "second"]
    with pytest.raises(mezzo.InputError, match="no node, value, operator or module 'ids'"):
        find_meant(saved, "ids")


def test_what_holds_no_floats_has_no_line(plan: mezzo.Plan) -> None:
    assert not {"input ids", "output shape", "size"} & plan.by_name.keys()
    assert {"input x", "output y"} <= plan.by_name.keys()


@settings(max_examples=swept(40), deadline=None)
@given(models(), st.data())
def test_every_node_value_and_operator_of_any_model_is_taken(model: onnx.ModelProto, data: st.DataObject) -> None:
    plan = mezzo.plan(model)
    if not plan.nodes:
        return
    node = data.draw(st.sampled_from(plan.nodes))
    assert node in find_meant(plan, node.name).nodes
    if node.kind == "op":
        assert node.name in {one.name for one in find_meant(plan, f"op:{node.op}").nodes}
    made = [(value, makers) for value, makers in plan.names.makers.items() if set(makers) & plan.by_name.keys()]
    for value, makers in made[:5]:
        found = find_meant(plan, value)
        assert found.known is NameKind.NODE or set(makers) & {one.name for one in found.nodes}
