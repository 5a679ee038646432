"""Outputs that become inputs of the next call, as names show them."""

import pytest

from mezzo.analysis.feedback import find_feedback
from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import DType

# Inputs, outputs, and the pairs that names show; exporters and model zoos name states so.
NAMES = {
    "transformers": ("input_ids past_key_values.0.key past_key_values.0.value",
                     "logits present.0.key present.0.value",
                     "present.0.key=past_key_values.0.key present.0.value=past_key_values.0.value"),
    "optimum, merged": ("past_key_values.0.key", "present_key_values.0.key",
                        "present_key_values.0.key=past_key_values.0.key"),
    "genai": ("past_conv.0 past_0_value", "present_conv.0 present_0_value",
              "present_conv.0=past_conv.0 present_0_value=past_0_value"),
    "torch": ("x h0 c0", "y hn cn", "hn=h0 cn=c0"),
    "onnx": ("X initial_h", "Y Y_h", ""),
    "silero": ("input state", "output new_state", "new_state=state"),
    "in and out": ("x state_in cache_in", "y state_out cache_out", "state_out=state_in cache_out=cache_in"),
    "h": ("x h", "new_h", "new_h=h"),
    "next": ("prev_h/0", "next_h/0", "next_h/0=prev_h/0"),
    "no states": ("input", "output", ""),
    "two of one stem": ("h past_h", "new_h", ""),
}  # fmt: skip


def graph_of(inputs: str, outputs: str):
    from onnx import TensorProto, helper

    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in names.split()]
             for names in (inputs, outputs)]  # fmt: skip
    nodes = [helper.make_node("Neg", [inputs.split()[0]], [name]) for name in outputs.split()]
    model = helper.make_model(helper.make_graph(nodes, "g", *ports), opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    return open_source(model, False, None).read(DType.FLOAT16).graph


@pytest.mark.parametrize("name", NAMES)
def test_names_show_states(name: str) -> None:
    inputs, outputs, pairs = NAMES[name]
    graph = graph_of(inputs, outputs)
    if not pairs:
        with pytest.raises(Exception, match="no output is named as the next value of an input"):
            find_feedback(graph, ["guess"])
    else:
        assert " ".join("=".join(pair) for pair in find_feedback(graph, ["guess"])) == pairs


def test_named_pairs_come_before_guessed_ones() -> None:
    assert find_feedback(graph_of("a h0", "b hn"), ["guess", "b=a"]) == (("b", "a"), ("hn", "h0"))
