"""The head size of a cache that leaves it open, as attention has it."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.evaluate.model_data import open_model_data
from mezzo.onnx.measure.input_roles import read_slots

WEIGHTS = {"w": (16, 32), "k": (16, 8), "v": (16, 8), "q": (16, 16)}


def decoder(projections: str, attention: str, opset: int = 21) -> onnx.ModelProto:
    """A layer over caches [batch, heads, past, head size], whose head size is open."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        g (float[B,S,16] x, float[B,H,past,D] past_key, float[B,H,past,D] past_value, int32[B] ends, int32[] total)
          => (float[B,S,E] y) {{ {projections}  {attention} }}""")
    for name, shape in WEIGHTS.items():
        if any(name in node.input for node in model.graph.node):
            weight = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(weight, name))
    return model


def head_sizes(model: onnx.ModelProto) -> list[object]:
    lengths = {slot.name: slot.lengths or () for slot in read_slots(model)}
    return [lengths["past_key"][3], lengths["past_value"][3]]


PACKED = "a = MatMul(x, w)"
APART = "qs = MatMul(x, q)  ks = MatMul(x, k)  vs = MatMul(x, v)"
GROUPS = "y, c, d = com.microsoft.GroupQueryAttention<num_heads = {}, kv_num_heads = {}>({})"


@pytest.mark.parametrize(
    ("projections", "attention", "sizes"),
    [
        (PACKED, GROUPS.format(2, 1, "a, , , past_key, past_value, ends, total"), [8, 8]),
        (APART, GROUPS.format(4, 2, "qs, ks, vs, past_key, past_value, ends, total"), [4, 4]),
        (  # com.microsoft's operators have no shapes that ONNX knows, and what follows them none
            "n = com.microsoft.Gelu(x)  b = MatMul(n, w)  a = Add(b, b)",
            GROUPS.format(2, 1, "a, , , past_key, past_value, ends, total"),
            ["D", "D"],
        ),
        (
            "n = com.microsoft.Gelu(x)  a = MatMul(n, w)",
            GROUPS.format(2, 1, "a, , , past_key, past_value, ends, total"),
            [8, 8],
        ),
        (
            "n = com.microsoft.Gelu(x)  a = com.microsoft.MatMulNBits<K = 16, N = 32>(n, n, n)",
            GROUPS.format(2, 1, "a, , , past_key, past_value, ends, total"),
            [8, 8],
        ),
        (
            f"{APART}  pk = Cast<to = 10>(past_key)  pv = Cast<to = 10>(past_value)",
            GROUPS.format(4, 2, "qs, ks, vs, pk, pv, ends, total"),
            [4, 4],
        ),
        (
            APART,
            "y, c, d = com.microsoft.MultiHeadAttention<num_heads = 2>(qs, ks, vs, , , , past_key, past_value)",
            [4, 4],
        ),
        # What says nothing is left open: heads that do not divide the width, none, or more than there are numbers.
        (PACKED, GROUPS.format(3, 1, "a, , , past_key, past_value, ends, total"), ["D", "D"]),
        (APART, GROUPS.format(2, 0, "qs, ks, vs, past_key, past_value, ends, total"), ["D", "D"]),
        (APART, GROUPS.format(2, -2, "qs, ks, vs, past_key, past_value, ends, total"), ["D", "D"]),
        (APART, GROUPS.format(2, 2**62, "qs, ks, vs, past_key, past_value, ends, total"), ["D", "D"]),
        ("a = Shape(x)", GROUPS.format(2, 1, "a"), ["D", "D"]),
    ],
)  # fmt: skip
def test_head_size_is_the_projections_width_over_its_heads(
    projections: str, attention: str, sizes: list[object]
) -> None:
    assert head_sizes(decoder(projections, attention)) == sizes


def test_head_size_of_standard_attention_is_that_of_its_heads() -> None:
    attention = "y, c, d = Attention<q_num_heads = 2, kv_num_heads = 1>(qs, ks, vs, , past_key, past_value)"
    assert head_sizes(decoder(APART, attention, 23)) == [8, 8]


def test_a_decoder_with_an_open_head_size_runs_on_random_inputs() -> None:
    attention = "y, c, d = com.microsoft.MultiHeadAttention<num_heads = 2>(qs, ks, vs, , , , past_key, past_value)"
    model = decoder(APART.replace(", k)", ", q)").replace(", v)", ", q)"), attention)
    for cache in model.graph.input[1:3]:
        cache.type.tensor_type.shape.dim[1].dim_value = 2
    batch = next(iter(open_model_data(open_source(model, False, None), "random")))
    assert batch.feeds["past_key"].shape[1:] == (2, 0, 8)
    answers = lab_of(open_source(model, False, None)).native()(batch.feeds)
    assert all(np.isfinite(answer).all() for answer in answers.values())
