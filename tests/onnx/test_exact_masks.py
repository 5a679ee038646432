"""Masks for which a softmax answers in BF16 as in FP32: every spelling, with rows that are masked in no, some and all
places, gives the same bits whether the mask, its sums and its selections run in BF16 or in FP32.
"""

import random
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.parser
import pytest
from sweeps import swept

import mezzo
from mezzo.contracts.plans import PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.tables.policy import Category

_SIZE = 8
_NUMBERS = (
    "float nought = {0}, float one = {1}, float lowest = {-3.4028234663852886e38}, float least = {-3.3895e38}, "
    "float highest = {3.4028234663852886e38}, float much = {1e9}, float few = {-1e9}, "
    "float small = {-10000}, float[8] graded = {0, -0.7, -1.3, -1.9, -3.4028234663852886e38, 0, 0, 0}, "
    "float[8] signed = {0, 1e9, 0, -1e9, 0, 0, 0, 0}, int64[2] size = {8, 8}, "
    "int64 above = {1}, int64[1] first = {4}, int64[1] last = {8}"
)
# From `m`, whole numbers of 0 and 1, `b`, the same as truths, and scores `s`, the masked scores `t`.
_SPELLINGS = {
    "chosen and added": "a = Where(b, nought, lowest) t = Add(s, a)",
    "added to": "a = Where(b, nought, lowest) t = Add(a, s)",
    "chosen": "t = Where(b, s, lowest)",
    "chosen, of BF16's least": "t = Where(b, s, least)",
    "rest of one": "f = Cast <to = 1> (m) r = Sub(one, f) a = Mul(r, lowest) t = Add(s, a)",
    "rest of one, 1e9": "f = Cast <to = 1> (m) r = Sub(one, f) a = Mul(few, r) t = Add(s, a)",
    "less one": "f = Cast <to = 1> (b) r = Sub(f, one) a = Mul(r, highest) t = Add(s, a)",
    "rest of truths": "f = Cast <to = 1> (b) r = Sub(one, f) a = Mul(r, lowest) t = Add(s, a)",
    "not": "n = Not(b) f = Cast <to = 1> (n) a = Mul(f, few) t = Add(s, a)",
    "taken off": "n = Not(b) f = Cast <to = 1> (n) a = Mul(f, much) t = Sub(s, a)",
    "negated": "n = Not(b) f = Cast <to = 1> (n) a = Mul(f, much) z = Neg(a) t = Add(s, z)",
    "outer product": "f = Cast <to = 1> (m) g = Transpose(f) o = Mul(f, g) r = Sub(one, o) a = Mul(r, lowest) "
    "t = Add(s, a)",
    "triangle": "l = Expand(lowest, size) a = Trilu <upper = 1> (l, above) t = Add(s, a)",
    "filled triangle": "l = ConstantOfShape <value = float[1] {-3.4028234663852886e38}> (size) "
    "a = Trilu <upper = 1> (l, above) t = Add(s, a)",
    "triangle times truths": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) f = Cast <to = 1> (b) "
    "a = Mul(u, f) t = Add(s, a)",
    "two masks": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) a = Where(b, nought, lowest) "
    "d = Add(u, a) t = Add(s, d)",
    "two masks, one after the other": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) c = Add(s, u) "
    "a = Where(b, nought, lowest) t = Add(c, a)",
    "two masks, held above the least": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) c = Add(s, u) "
    "a = Where(b, nought, lowest) d = Add(c, a) t = Max(d, lowest)",
    "two masks of two sizes": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) f = Cast <to = 1> (m) "
    "r = Sub(one, f) a = Mul(r, few) d = Add(u, a) t = Add(s, d)",
    "two masks, half": "h = Expand(few, size) u = Trilu <upper = 1> (h, above) a = Where(b, nought, few) "
    "d = Add(u, a) t = Add(s, d)",
    "three masks": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) w = Transpose(u) "
    "a = Where(b, nought, lowest) d = Add(u, a) e = Add(w, d) t = Add(s, e)",
    "a mask where a mask is": "l = Expand(lowest, size) u = Trilu <upper = 1> (l, above) a = Where(b, u, lowest) "
    "t = Add(s, a)",
    "moved": "a = Where(b, nought, lowest) c = Transpose(a) d = Slice(c, first, last) e = Concat <axis = 0> (d, d) "
    "t = Add(s, e)",
    "added in a row": "n = Not(b) f = Cast <to = 1> (n) a = Mul(f, few) c = Add(s, a) t = Add(c, a)",
}
_HEAD = (
    '<ir_version: 10, opset_import: ["" : 22]> g (int64[8,8] m, bool[8,8] b, float[8,8] q, float[8,8] k, float[8,8] v)'
    f" => (float[8,8] y) <{_NUMBERS}>"
)


def _model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"{_HEAD} {{ s = MatMul(q, k) {body} p = Softmax <axis = -1> (t) y = MatMul(p, v) }}"
    )


def _nodes(model: onnx.ModelProto) -> dict[str, PlannedNode]:
    plan = mezzo.plan(model, to="bf16", target="openvino-cpu")
    return {node.name: node for node in plan.nodes if node.kind == "op"}


def _feeds(seed: int) -> dict[str, np.ndarray]:
    """Scores below 32, as each is a sum of eight products, and rows of masks that hide nothing, all, or something."""
    draw = np.random.default_rng(seed)
    masks = draw.integers(0, 2, (_SIZE, _SIZE))
    masks[1], masks[2] = 0, 1
    most = 1.0 + seed % 3 / 2
    q, k, v = (draw.uniform(-most, most, (_SIZE, _SIZE)).astype(np.float32) for _ in range(3))
    return {"m": masks, "b": masks.astype(bool), "q": q, "k": k, "v": v}


def _assert_same_bits(model: onnx.ModelProto, exclude: Sequence[str] = ()) -> None:
    """What a plan answers in true BF16 is what it answers with all between the two products kept in FP32."""
    between = [name for name, node in _nodes(model).items() if node.op != "MatMul"]
    low = mezzo.convert(model, to="bf16", target="openvino-cpu", exclude=exclude).model
    high = mezzo.convert(model, to="bf16", target="openvino-cpu", exclude=between).model
    for seed in range(4):
        feeds = _feeds(seed)
        answer, expected = mezzo.emulate(low, feeds)["y"], mezzo.emulate(high, feeds)["y"]
        np.testing.assert_array_equal(answer, expected, err_msg=f"seed {seed}, {exclude} kept in FP32")


@pytest.mark.parametrize("body", _SPELLINGS.values(), ids=_SPELLINGS)
def test_softmax_answers_the_same_bits_with_its_mask_in_bf16(body: str) -> None:
    model = _model(body)
    nodes = _nodes(model)
    (softmax,) = [node for node in nodes.values() if node.op == "Softmax"]
    assert softmax.precision.compute is DType.BFLOAT16, softmax
    assert not [node for node in nodes.values() if node.category is Category.DENY]
    _assert_same_bits(model)


@pytest.mark.parametrize("seed", range(swept(24)))
def test_softmax_answers_the_same_bits_whatever_else_is_kept_in_fp32(seed: int) -> None:
    draw = random.Random(seed)
    body = draw.choice(list(_SPELLINGS.values()))
    model = _model(body)
    between = [name for name, node in _nodes(model).items() if node.op != "MatMul"]
    _assert_same_bits(model, draw.sample(between, draw.randint(1, len(between) - 1)))


def test_a_whole_number_that_no_one_takes_for_a_truth_is_exact_all_the_same() -> None:
    _assert_same_bits(_model("f = Cast <to = 1> (m) r = Sub(f, one) a = Mul(r, highest) t = Add(s, a)"))


@pytest.mark.parametrize(
    "body",
    [
        "h = Mul(few, s) t = Add(s, h)",  # a factor that is no truth
        "f = Cast <to = 1> (m) a = Mul(f, few) t = Add(s, a)",  # whole numbers of any size: the nearest, not a mask
        "f = Cast <to = 1> (b) a = Mul(f, small) t = Add(s, a)",  # FP32 tells scores apart beside -1e4
        "t = Add(s, graded)",  # numbers beside the mask that count
        "a = Where(b, nought, lowest) d = Relu(a) t = Add(s, d)",  # another operator reads it
        "a = Add(s, signed) t = Mul(a, one)",  # of two signs
    ],
)
def test_what_is_no_such_mask_is_kept_in_fp32(body: str) -> None:
    assert {"absorbing-constant", "constant-out-of-range"} & {node.rule for node in _nodes(_model(body)).values()}
    _assert_same_bits(_model(body))


def test_log_softmax_shows_the_mask_and_keeps_it_in_fp32() -> None:
    nodes = _nodes(_model("a = Where(b, nought, lowest) c = Add(s, a) d = LogSoftmax <axis = -1> (c) t = Identity(d)"))
    assert nodes["Where:a"].rule == nodes["Add:c"].rule == nodes["LogSoftmax:d"].rule == "constant-out-of-range"


def test_who_is_asked_to_run_low_reads_a_mask_that_another_keeps_in_fp32() -> None:
    model = _model("a = Where(b, nought, lowest) t = Add(s, a)")
    for node in model.graph.node:
        node.name = f"inside/{node.op_type}" if node.op_type == "Add" else f"outside/{node.op_type}_{node.output[0]}"
    plan = mezzo.plan(
        model, to="bf16", target="openvino-cpu", fix_region={"inside": "bf16"}, exclude=["outside/Where_a"]
    )
    held = {node.op: node.precision.compute for node in plan.nodes if node.kind == "op"}
    assert held["Where"] is DType.FLOAT32
    assert held["Add"] is DType.BFLOAT16
