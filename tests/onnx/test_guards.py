"""A law of guards: what an epsilon keeps finite in FP32 on a row of zeros is finite in FP16, however it gets there."""

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mezzo
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import native_session

ROWS, WIDTH = 4, 8


class _Chain:
    """One column per row, from its size through a guard and what is made of it to a quotient."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, kind: str, *operands: str, **attributes: object) -> str:
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, operands, [result], f"{kind}_{len(self.nodes)}", **attributes))
        return result

    def constant(self, number: object) -> str:
        array = np.asarray(number, np.int64 if isinstance(number, list) else np.float32)
        self.weights.append(numpy_helper.from_array(array, f"c{len(self.weights)}"))
        name = self.weights[-1].name
        return self.op("Identity", name) if array.ndim == 0 and self.rng.random() < 0.3 else name

    def size(self, x: str) -> str:
        match self.rng.randrange(3):
            case 0:
                return self.op("ReduceL2", x, self.constant([1]))
            case 1:
                return self.op("ReduceMax", self.op("Abs", x), self.constant([1]))
            case _:
                return self.op("ReduceMean", self.op("Mul", x, x), self.constant([1]))

    def guarded(self, value: str) -> str:
        bound = self.constant(10.0 ** -self.rng.uniform(3, 16))
        match self.rng.randrange(5):
            case 0:
                return self.op("Add", value, bound)
            case 1:
                return self.op("Max", bound, value)
            case 2:
                return self.op("Clip", value, bound) if bound.startswith("c") else self.op("Max", value, bound)
            case 3:
                return self.op("Sub", value, self.op("Neg", bound))
            case _:
                return self.op("Where", self.op("Less", value, bound), bound, value)

    def step(self, value: str) -> str:
        match self.rng.randrange(13):
            case 0:
                return self.op("Sqrt", value)
            case 1:
                return self.op("Pow", value, self.constant(self.rng.choice((0.5, 2.0))))
            case 2:
                return self.op("Min", value, self.constant(100.0))
            case 3:
                return self.op("Mul", value, self.constant(self.rng.choice((0.01, 0.5, 8.0))))
            case 4:
                return self.op("Abs", value)
            case 5:
                return self.op("Max", value, self.constant(0.0))
            case 6:
                return self.op("Reshape", self.op("Unsqueeze", value, self.constant([0])), self.constant([-1, 1]))
            case 7:
                return self.op("Transpose", self.op("Transpose", value))
            case 8:
                return self.op("Identity", value)
            case 9:
                return self.op("Slice", self.op("Concat", value, value, axis=1), self.constant([0]),
                               self.constant([1]), self.constant([1]))  # fmt: skip
            case 10:
                return self.op("Gather", value, self.constant([0, 1, 2, 3]))
            case 11:
                return self.op("Mul", value, value)
            case _:
                return self.op("Tile", value, self.constant([1, 1]))

    def quotient(self, x: str, value: str) -> str:
        match self.rng.randrange(6):
            case 0:
                return self.op("Log", value)
            case 1:
                return self.op("Mul", x, self.op("Reciprocal", value))
            case 2:
                return self.op("Mul", self.op("Pow", value, self.constant(self.rng.choice((-0.5, -1.0)))), x)
            case 3:
                return self.op("Div", x, self.op("Expand", value, self.constant([ROWS, WIDTH])))
            case 4:
                return self.op("Mul", x, self.op("Div", self.constant(1.0), value))
            case _:
                return self.op("Div", x, value)

    def model(self) -> onnx.ModelProto:
        x = self.op("MatMul", "x", self.constant(np.eye(WIDTH)))
        value = self.guarded(self.size(x))
        for _ in range(self.rng.randrange(5)):
            value = self.step(value)
        self.nodes.append(helper.make_node("Identity", [self.quotient(x, value)], ["y"]))
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "guarded", [info("x", TensorProto.FLOAT, [ROWS, WIDTH])],
            [info("y", TensorProto.FLOAT, [ROWS, None])], self.weights,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(("first", "has_data"), [(0, False), (20, False), (40, False), (0, True), (60, True)])
def test_zero_row_stays_finite(first: int, has_data: bool) -> None:
    zeros = {"x": np.zeros((ROWS, WIDTH), np.float32)}
    full = {"x": np.random.default_rng(first).standard_normal((ROWS, WIDTH)).astype(np.float32)}
    for seed in range(first, first + 20):
        model = _Chain(seed).model()
        onnx.checker.check_model(model, full_check=True)
        result = mezzo.convert(model, to="fp16", data=[full] if has_data else None).model
        want, got = native_session(model).run(zeros)["y"], emulated_session(result).run(zeros)["y"]
        lost = np.isfinite(want) & ~np.isfinite(got)
        assert not lost.any(), f"seed {seed}: {want.flat[0]} became {got.flat[0]}"
