"""Conversion by lists, as people who come from MXNet write them."""

import warnings

import onnx
import onnx.parser
import pytest

import mezzo

_SEED = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[4] data, float[4] data2, float[4] data3) => (float[4] result)
{
   [exp]  x = Exp(data)
   [sin]  x2 = Sin(data)
   [cos]  x3 = Cos(data)
   [add0] s0 = Add(x, x2)
   [add1] s1 = Add(s0, x3)
   [sum]  result = Sum(s1, data2, data3)
}
"""
_ELU = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[2,2] x) => (float[2,2] y)
<float[2,2] w = {1,2,3,4}>
{
   [mm]  a = MatMul(x, w)
   [elu] b = Elu(a)
   [out] y = MatMul(b, w)
}
"""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def precisions(text: str, **lists: object) -> dict[str, str]:
    plan = mezzo.convert_lists(parse(text), **lists).plan  # type: ignore[arg-type]
    return {node.name: str(node.precision.compute) for node in plan.nodes if node.kind == "op"}


def test_example_of_the_amp_document_gets_one_shared_cast() -> None:
    result = mezzo.convert_lists(
        parse(_SEED), target_dtype_ops=["Sin", "Cos", "Exp"], fp32_ops=["Add"], widest_dtype_ops=["Sum"]
    )
    assert mezzo.show(result.model) == (
        "input  data: f32[4]\n"
        "input  data2: f32[4]\n"
        "input  data3: f32[4]\n"
        "data_f16: f16[4] = Cast(data){to=f16}\n"
        "x: f16[4] = Exp(data_f16)\n"
        "x_f32: f32[4] = Cast(x){to=f32}\n"
        "x2: f16[4] = Sin(data_f16)\n"
        "x2_f32: f32[4] = Cast(x2){to=f32}\n"
        "x3: f16[4] = Cos(data_f16)\n"
        "x3_f32: f32[4] = Cast(x3){to=f32}\n"
        "s0: f32[4] = Add(x_f32, x2_f32)\n"
        "s1: f32[4] = Add(s0, x3_f32)\n"
        "result: f32[4] = Sum(s1, data2, data3)\n"
        "output result\n"
    )


def test_list_left_out_is_the_default_one() -> None:
    assert precisions(_ELU)["mm"] == "f16"
    assert precisions(_ELU, target_dtype_ops=[])["mm"] == "f32"


def test_what_a_list_names_leaves_the_default_lists() -> None:
    assert precisions(_ELU, fp32_ops=["MatMul"])["mm"] == "f32"


def test_condition_counts_a_default_that_is_not_written() -> None:
    for values in ([1.0], ["1.0"], [1], (2.0, 1.0)):
        assert precisions(_ELU, conditional_fp32_ops=[("Elu", "alpha", values)])["elu"] == "f32"
    assert precisions(_ELU, conditional_fp32_ops=[("Elu", "alpha", [2.0])])["elu"] == "f16"


def test_excluded_name_stays_in_fp32_with_its_reason() -> None:
    plan = mezzo.convert_lists(parse(_ELU), excluded_names=["out"]).plan
    assert str(plan.by_name["out"].precision.compute) == "f32"
    assert plan.by_name["out"].because == "excluded_names has 'out'"


def test_inputs_and_outputs_keep_their_types_and_the_model_its_own() -> None:
    model = parse(_ELU)
    before = model.SerializeToString(deterministic=True)
    text = mezzo.show(mezzo.convert_lists(model, target_dtype="bfloat16").model)
    assert text.startswith("input  x: f32[2,2]\n") and "\ny: f32[2,2] = " in text
    assert model.SerializeToString(deterministic=True) == before


def test_one_call_leaves_nothing_for_the_next() -> None:
    mezzo.convert_lists(parse(_ELU), excluded_names=["mm", "out"])
    assert precisions(_ELU)["mm"] == "f16"


REFUSED = [
    (
        {"target_dtype": "float64"},
        "target_dtype is 'float64'; that is wider than FP32, and a low format is asked for; choose one of fp16, bf16",
    ),
    ({"target_dtype": None}, "target_dtype is None; write its name, or give a dtype; choose one of fp16, bf16"),
    (
        {"target_dtype_ops": ["MatMul"], "fp32_ops": ["MatMul"]},
        "operator 'MatMul' is in target_dtype_ops and in fp32_ops; take it out of one",
    ),
    (
        {"fp32_ops": ["Elu"], "conditional_fp32_ops": [("Elu", "alpha", [1.0])]},
        "operator 'Elu' is in fp32_ops and in conditional_fp32_ops; take it out of one",
    ),
    (
        {"conditional_fp32_ops": [("Elu", "slope", [1.0])]},
        "conditional_fp32_ops: operator 'Elu' has no attribute 'slope'; it has alpha",
    ),
    (
        {"conditional_fp32_ops": [("Elu", "alpha")]},
        "conditional_fp32_ops has ('Elu', 'alpha'); write each as (operator, attribute, [values]), such as "
        "('Elu', 'alpha', [1.0])",
    ),
    ({"fp32_ops": "Softmax"}, "fp32_ops is 'Softmax'; write a list of names"),
    ({"excluded_names": [3]}, "excluded_names is [3]; write a list of names"),
]


@pytest.mark.parametrize(("lists", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_lists_that_cannot_be_are_refused(lists: dict[str, object], message: str) -> None:
    with pytest.raises(mezzo.InputError) as caught:
        mezzo.convert_lists(parse(_ELU), **lists)  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


def test_unknown_operator_and_name_are_told() -> None:
    with pytest.warns(UserWarning, match="fp32_ops names operator 'Sofmax', which no table knows"):
        mezzo.convert_lists(parse(_ELU), fp32_ops=["Sofmax"])
    with pytest.warns(UserWarning, match="excluded_names has 'nobody', which is no node's name"):
        mezzo.convert_lists(parse(_ELU), excluded_names=["nobody"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mezzo.convert_lists(parse(_ELU), fp32_ops=["Softmax"], excluded_names=["mm"])
