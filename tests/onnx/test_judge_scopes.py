"""The judge keeps apart the values that a body and the graphs around it give the same name.

Most numbers here are small integers, which both formats hold, so plain arithmetic is the oracle.
"""

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from judge_models import EACH_LOW, LOW, assert_same_bits, judge, read, rounded
from onnx import helper, numpy_helper

from mezzo.onnx.emulate.fp32_simulation import twin
from mezzo.onnx.run.session import Engine, native_session

# Every model adds the outer x, which is 3, at the end: it must come through what the body calls x.
FEEDS = {"c": True, "n": 1, "x": np.float32([3]), "z": np.float32([10])}
_HEAD = "g (bool c, int64 n, LOW[1] x, LOW[1] z) => (LOW[1] y)"
_ELSE = "else_branch = e () => (LOW[1] o) { o = Identity(x) }"
SHADOWS = {
    "formal of a loop": ("""{ w = Loop(n, c, z) <body = b (int64 i, bool ci, LOW[1] x) => (bool co, LOW[1] t)
        { co = Identity(ci)  t = Add(x, x) }>  y = Add(w, x) }""", 23),
    "formal that the body passes on": ("""{ w, k = Loop(n, c, z, x) <body = b (int64 i, bool ci, LOW[1] x, LOW[1] s) =>
        (bool co, LOW[1] t, LOW[1] x) { co = Identity(ci)  t = Add(x, s) }>  y = Add(k, x) }""", 13),
    "formal of another type": ("""{ w = Loop(n, c, z) <body = b (int64 x, bool ci, LOW[1] s) => (bool co, LOW[1] t)
        { co = Identity(ci)  l = CastLike(x, s)  t = Add(l, s) }>  y = Add(w, x) }""", 13),
    "formal that an inner body reads": ("""{ w = Loop(n, c, z) <body = b (int64 i, bool ci, LOW[1] x) =>
        (bool co, LOW[1] t) { co = Identity(ci)  t = If(ci) <
            then_branch = t2 () => (LOW[1] q) { q = Add(x, x) }, else_branch = e () => (LOW[1] o) { o = Identity(x) }>
        }>  y = Add(w, x) }""", 23),
    "formal named as a node's output": ("""{ s = Mul(x, z)  w = Loop(n, c, z) <body = b (int64 i, bool ci, LOW[1] s) =>
        (bool co, LOW[1] t) { co = Identity(ci)  t = Add(s, x) }>  v = Add(w, s)  y = Add(v, x) }""", 46),
    "formal of a scan": ("""{ e = Unsqueeze(z, zero)  w = Scan<num_scan_inputs=1, body = b (LOW[1] s, LOW[1] x) =>
        (LOW[1] t) { t = Add(s, x) }>(x, e)  y = Add(w, x) }""", 16),
    "formal of a sequence map": ("""{ q = SequenceConstruct(z)  m = SequenceMap(q) <body = b (LOW[1] x) => (LOW[1] t)
        { t = Add(x, x) }>  w = SequenceAt(m, n0)  y = Add(w, x) }""", 23),
    "initializer of another type": (f"""{{ w = If(c) <then_branch = t () => (LOW[1] a) <float[1] x = {{100}}>
        {{ l = CastLike(x, z)  a = Add(l, z) }}, {_ELSE}>  y = Add(w, x) }}""", 113),
    # By ONNX's rules no body may do the rest, and ONNX Runtime refuses such models, but not their twins.
    "output of a node": (f"""{{ w = If(c) <then_branch = t () => (LOW[1] a) {{ x = Mul(z, z)  a = Add(x, z) }}, {_ELSE}>
        y = Add(w, x) }}""", 113),
    "output of a node, read before it is made": (f"""{{ w = If(c) <then_branch = t () => (LOW[1] a)
        {{ k = Add(x, z)  x = Mul(z, z)  a = Add(x, k) }}, {_ELSE}>  y = Add(w, x) }}""", 116),
    "output of a node, made from what it shadows": (f"""{{ w = If(c) <then_branch = t () => (LOW[1] x)
        {{ x = Mul(x, z) }}, {_ELSE}>  y = Add(w, x) }}""", 33),
    "output of a cast": (f"""{{ w = If(c) <then_branch = t () => (LOW[1] a) {{ k = Cast<to=1>(z)  x = CastLike(k, z)
        a = Add(x, z) }}, {_ELSE}>  y = Add(w, x) }}""", 23),
}  # fmt: skip


@EACH_LOW
@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("shadow", list(SHADOWS))
def test_a_name_of_a_body_is_not_the_value_outside(shadow: str, engine: Engine, low: str) -> None:
    text, expected = SHADOWS[shadow]
    model = read(f"{_HEAD} <int64[1] zero = {{0}}, int64 n0 = {{0}}> {text}".replace("LOW", low))
    assert judge(model, engine, **FEEDS).tolist() == [expected]


def branch_with_a_constant(low: str, form: str) -> onnx.ModelProto:
    """x + z in a branch whose own x is 100."""
    text = f"{_HEAD} {{ w = If(c) <then_branch = t () => (LOW[1] a) {{ a = Add(x, z) }}, {_ELSE}>  y = Add(w, x) }}"
    model = read(text.replace("LOW", low))
    branch = next(one.g for one in model.graph.node[0].attribute if one.name == "then_branch")
    constant = numpy_helper.from_array(np.array([100], LOW[low]), "x")
    if form == "dense":
        branch.initializer.append(constant)
    else:
        branch.sparse_initializer.append(one_number(constant))
    return model


def one_number(constant: onnx.TensorProto) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(constant, numpy_helper.from_array(np.zeros(1, int)), [1])


@EACH_LOW
@pytest.mark.parametrize(
    ("form", "engine"),
    [("dense", Engine.ONNXRUNTIME), ("dense", Engine.REFERENCE), ("sparse", Engine.ONNXRUNTIME)],  # the other has none
)
def test_an_initializer_of_a_branch_is_not_the_value_outside(form: str, engine: Engine, low: str) -> None:
    assert judge(branch_with_a_constant(low, form), engine, **FEEDS).tolist() == [113]


@EACH_LOW
def test_what_a_body_captures_is_rounded_and_what_shadows_it_is_not_the_feed(low: str) -> None:
    model = read(f"""g (int64 n, bool c, {low}[1] x, {low}[1] z) => ({low}[1] y) {{
        y = Loop(n, c, x) <body = b (int64 i, bool ci, {low}[1] x) => (bool co, {low}[1] t)
            {{ co = Identity(ci)  t = Sub(x, z) }}> }}""")
    third = np.float32([1 / 3])
    bare = native_session(twin(model), Engine.ONNXRUNTIME)  # without the session that would round the feeds first
    assert_same_bits(bare.run({"n": 2, "c": True, "x": third, "z": third})["y"], -rounded(third, low))


@EACH_LOW
def test_no_name_of_a_body_of_a_twin_has_two_meanings(low: str) -> None:
    for text, _ in SHADOWS.values():
        model = twin(read(f"{_HEAD} <int64[1] zero = {{0}}, int64 n0 = {{0}}> {text}".replace("LOW", low)))
        onnx.checker.check_model(model, full_check=True)
        names = list(_defined_names(model.graph))
        assert sorted(set(names)) == sorted(names)


def _defined_names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (given.name for given in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _defined_names(attribute.g)


@EACH_LOW
def test_sparse_initializers_are_dense_values_whose_names_are_taken(low: str) -> None:
    model = read(f"g ({low}[1] x) => ({low}[1] y) {{ y = Add(twin_1, x) }}")
    values = numpy_helper.from_array(np.array([256], LOW[low]), "twin_1")
    model.graph.sparse_initializer.append(one_number(values))
    gap = {"float16": 0.25, "bfloat16": 2}[low]  # of the format, from 256 on
    assert judge(model, x=np.float32([gap * 0.75])).tolist() == [256 + gap]
