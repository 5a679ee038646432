"""Laws of folding steps per channel and of cuts, on rows of operators drawn at random; single rules stand in
tests/golden/fused.
"""

import random
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx import TensorProto, helper
from quantized_cases import open_model
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.onnx.run.session import native_session

Array = npt.NDArray[np.float32]

# Sums of some hundred products in FP32, each of up to four steps behind them rounds by half an eps, and one that
# subtracts leaves up to ten times the relative error: 84 eps.
_TOLERANCE = 1e-5
_STEPS = ("Add", "Sub", "Mul", "Div", "BatchNormalization")


def _draw(seed: int) -> tuple[onnx.ModelProto, dict[str, Array], int]:
    """An operator with weights, steps behind it, then a Neg; inputs of it, and the number of steps."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    kind = rng.choice(("Conv", "ConvTranspose", "Gemm", "MatMul"))
    held: dict[str, Array] = {}
    channels = rng.choice((1, 3, 4))
    if kind in ("Conv", "ConvTranspose"):
        rank = rng.choice((3, 4, 5))
        feed = values.normal(size=(2, 2, *(5,) * (rank - 2)))
        sides = (channels, 2) if kind == "Conv" else (2, channels)
        held["w"] = values.normal(size=(*sides, *(2,) * (rank - 2)))
    else:
        rank = 2 if kind == "Gemm" else rng.choice((2, 3))
        feed = values.normal(size=(*(4,) * (rank - 1), 6))
        held["w"] = values.normal(size=(6, channels))
    behind = rank - 2 if kind in ("Conv", "ConvTranspose") else 0
    nodes, made = [helper.make_node(kind, ["x", "w"], ["a"], "linear")], "a"
    count = rng.randint(1, 4)
    for number in range(count):
        op = rng.choice(_STEPS if kind != "MatMul" or rank == 2 else _STEPS[:-1])
        name = f"s{number}"
        if op == "BatchNormalization":
            names = [f"{letter}{number}" for letter in "gbmv"]
            held |= {each: values.uniform(0.5, 2.0, channels) for each in names}
            operands = [made, *names]
        else:
            shapes = [(), (channels, *(1,) * behind)]
            if kind != "MatMul":
                shapes.append((1,) * (rank - behind - 1) + (channels, *(1,) * behind))
            constant = values.uniform(0.5, 2.0, rng.choice(shapes)) * rng.choice((1, -1))
            held[name] = np.asarray(constant)
            operands = [made, name] if op == "Div" or rng.random() < 0.5 else [name, made]
        nodes.append(helper.make_node(op, operands, [f"n{number}"], f"step{number}"))
        made = f"n{number}"
    nodes.append(helper.make_node("Neg", [made], ["y"], "neg"))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", feed.shape), ("y", [None] * rank))
    ]
    tensors = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return onnx.shape_inference.infer_shapes(proto), {"x": feed.astype(np.float32)}, count


def _fold(proto: onnx.ModelProto) -> onnx.ModelProto:
    model = open_model(proto)
    fused = model.fused(model.read(DType.FLOAT16), ())
    result: onnx.ModelProto = fused.materialize(fused.original)
    return result


def _error(one: onnx.ModelProto, other: onnx.ModelProto, feeds: dict[str, Array]) -> float:
    pairs = zip(*(native_session(each).run(feeds).values() for each in (one, other)), strict=True)
    return max(float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(a)), 1e-30) for a, b in pairs)


@pytest.mark.parametrize("seed", range(swept(60)))
def test_steps_go_and_answers_stay(seed: int) -> None:
    proto, feeds, _ = _draw(seed)

    result = _fold(proto)

    onnx.checker.check_model(result, full_check=True)
    ops = [node.op_type for node in result.graph.node]
    assert ops[0] == proto.graph.node[0].op_type and ops[-1] == "Neg"
    assert ops[1:-1] in ([], ["Add"] if ops[0] == "MatMul" else []), f"seed {seed}: {ops}"
    assert len(result.graph.initializer) <= 2, "constants of steps that are gone go"
    assert _error(proto, result, feeds) <= _TOLERANCE, f"seed {seed}"


@pytest.mark.parametrize("seed", range(swept(60)))
def test_a_side_consumer_keeps_what_it_reads(seed: int) -> None:
    proto, feeds, count = _draw(seed)
    read = random.Random(seed).choice(["a", *(f"n{number}" for number in range(count - 1))])
    proto.graph.node.append(helper.make_node("Abs", [read], ["z"], "side"))
    (info,) = (one for one in proto.graph.value_info if one.name == read)
    shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, shape))

    result = _fold(proto)

    assert read in {name for node in result.graph.node for name in node.output}, f"seed {seed}"
    assert _error(proto, result, feeds) <= _TOLERANCE, f"seed {seed}"


@pytest.mark.parametrize("seed", range(swept(40)))
def test_cuts_in_a_row_give_the_same_numbers(seed: int) -> None:
    rng, values = random.Random(seed), np.random.default_rng(seed)
    nodes, held, made = [], {}, "x"
    for number in range(rng.randint(1, 4)):
        op, operands = rng.choice(("Relu", "Max", "Min", "Clip")), [made]
        if op != "Relu":
            bounds = sorted(rng.choice((-1.0, 0.0, 0.5, 2.0)) for _ in range(2))
            names = [f"c{number}"] if op != "Clip" else [f"l{number}", f"h{number}"]
            held |= dict(zip(names, rng.choices((0.0, *bounds), k=1) if op != "Clip" else bounds, strict=True))
            operands += names
        nodes.append(helper.make_node(op, operands, [f"n{number}"], f"cut{number}"))
        made = f"n{number}"
    nodes.append(helper.make_node("Neg", [made], ["y"], "neg"))
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7]) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(np.array(held[name], np.float32), name) for name in held]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    feeds = {"x": values.normal(size=(5, 7)).astype(np.float32) * 2}

    result = _fold(proto)

    onnx.checker.check_model(result, full_check=True)
    assert _error(proto, result, feeds) == 0.0, f"seed {seed}"
    assert len(result.graph.node) <= len(proto.graph.node)


def _relu_by_max() -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    values = np.random.default_rng(7)
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,3,8,8] x) => (float[N,4,8,8] y)
        <float zero = {0}>
        {
           [c1] a = Conv<pads=[1,1,1,1]>(x, w1)
           [s1] b = Mul(a, k)
           [r1] c = Max(b, zero)
           [c2] d = Conv<pads=[1,1,1,1]>(c, w2)
           [r2] y = Relu(d)
        }
    """)
    held = {"w1": values.normal(size=(4, 3, 3, 3)), "w2": values.normal(size=(4, 4, 3, 3))}
    held["k"] = values.uniform(0.5, 2.0, (4, 1, 1))
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()
    )
    return proto, [{"x": values.normal(size=(4, 3, 8, 8)).astype(np.float32)} for _ in range(8)]


def test_relu_in_other_words_is_taken_into_its_kernel_and_replays() -> None:
    proto, data = _relu_by_max()

    result = mezzo.convert(proto, to="int8", target="onnxruntime-cpu", data=data)
    again = mezzo.convert(proto, plan=result.plan)

    assert [node.op for node in result.plan.nodes if node.kind == "op"] == ["Conv", "Relu", "Conv", "Relu"]
    assert {str(node.precision.compute) for node in result.plan.nodes if node.kind == "op"} == {"int8"}
    (note,) = (note for note in result.plan.notes if "other words" in note)
    assert note == (
        "1 operator (Mul) is folded into constants, or into neighbouring operators, whose names stand for both; "
        "1 operator (Max as Relu) is written in other words"
    )
    assert again.model.SerializeToString() == result.model.SerializeToString()


def test_nothing_is_fused_where_nothing_is_to_be_and_a_plan_says_so(tmp_path: Path) -> None:
    proto, data = _relu_by_max()

    result = mezzo.convert(proto, to="int8", target="onnxruntime-cpu", data=data, fuse="none")
    mezzo.save_plan(result.plan, tmp_path / "p.json")
    again = mezzo.convert(proto, plan=tmp_path / "p.json")

    assert {"Mul", "Max"} <= {node.op_type for node in result.model.graph.node}
    assert dict(result.plan.settings)["fuse"] == "none"
    assert again.model.SerializeToString() == result.model.SerializeToString()
    with pytest.raises(mezzo.InputError, match="fuse 'standard' contradicts the plan, which was made with 'none'"):
        mezzo.convert(proto, plan=tmp_path / "p.json", fuse="standard")
