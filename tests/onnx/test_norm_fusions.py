"""ONNX Runtime's CUDA joins a norm with the Casts around it, and has kernels where what it reads and what it scales by
have one type: files for it make no other, whatever stands beside the norm.
"""

import random
from collections.abc import Iterator

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from norm_fusions import fused_norms
from sweeps import swept

import mezzo
from mezzo.plugins.discovery import policies, strategies

_WIDTH = 4


class _Drawn:
    """A random chain of norms and what stands around them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.nodes, self.tensors = rng, list[onnx.NodeProto](), list[onnx.TensorProto]()
        self.outputs = list[str]()
        self.opset = rng.choice([13, 16, 17, 18, 21])

    def constant(self, numbers: list[float] | float | list[int], kind: type = np.float32) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(onnx.numpy_helper.from_array(np.array(numbers, kind), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **attributes))
        return name

    def product(self, value: str) -> str:
        weights = (np.random.default_rng(self.rng.randrange(2**32)).standard_normal((_WIDTH, _WIDTH)) / 2).tolist()
        return self.add("MatMul", value, self.constant(weights))

    def mean(self, value: str) -> str:
        if self.opset >= 18:
            return self.add("ReduceMean", value, self.constant([-1], np.int64), keepdims=1)
        return self.add("ReduceMean", value, axes=[-1], keepdims=1)

    def vector(self) -> str:
        held = self.constant([1.0, 0.5, -1.0, 2.0])
        return self.add("Add", held, self.constant(1.0)) if self.rng.random() < 0.2 else held

    def norm(self, value: str) -> str:
        rng, base = self.rng, value
        if rng.random() < 0.6:
            centre = self.mean(value)
            base = other = self.add("Sub", value, centre)
            if rng.random() < 0.2:
                other = self.add("Sub", value, centre)
        else:
            other = base
        power = self.add("Pow", other, self.constant(2.0))
        root = self.add("Sqrt", self.add("Add", self.mean(power), self.constant(1e-5)))
        match rng.choice(["/", "/", "1/", "reciprocal"]):
            case "/":
                result = self.add("Div", base, root)
            case "1/":
                result = self.add("Mul", base, self.add("Div", self.constant(1.0), root))
            case _:
                result = self.add("Mul", base, self.add("Reciprocal", root))
        if rng.random() < 0.9:
            operands = [result, self.vector() if rng.random() < 0.9 else self.constant(0.5)]
            result = self.add("Mul", *rng.sample(operands, 2))
        if rng.random() < 0.7:
            result = self.add("Add", *rng.sample([result, self.vector()], 2))
        return result

    def model(self) -> onnx.ModelProto:
        rng, value = self.rng, "x"
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.8:
                value = self.product(value)
            if rng.random() < 0.2:
                value = self.add("Identity", value)
            if rng.random() < 0.2:
                self.outputs.append(value)
            branch = self.norm(value)
            if rng.random() < 0.3:
                branch = self.add("Add", branch, self.norm(value))
            if rng.random() < 0.3:
                branch = self.add("Add", branch, self.add(rng.choice(["Exp", "Relu", "Softmax"]), value))
            branch = self.product(branch) if rng.random() < 0.8 else branch
            value = self.add("Add", value, branch) if rng.random() < 0.6 else branch
        self.outputs.append(value)
        names = [name for name in dict.fromkeys(self.outputs) if name != "x"]
        shape = [2, 3, _WIDTH]
        ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in ("x", *names)]
        graph = onnx.helper.make_graph(self.nodes, "norms", ports[:1], ports[1:], self.tensors)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)])
        model.ir_version = 10
        return model


def _ways(rng: random.Random) -> Iterator[dict[str, str]]:
    """Formats, policies, strategies. Low inputs only where scales may be low: the caller's contract stands above."""
    for to in ("bf16", "fp16"):
        yield {"to": to, "io": rng.choice(["keep", "low"])}
        yield {"to": to, "policy": rng.choice(sorted(policies())), "strategy": rng.choice(sorted(strategies()))}


@pytest.mark.parametrize("seed", range(swept(120)))
def test_a_norm_that_cuda_fuses_reads_and_scales_by_one_type(seed: int) -> None:
    rng = random.Random(seed)
    model = _Drawn(rng).model()
    for way in _ways(rng):
        converted = mezzo.convert(model, target="onnxruntime-cuda", fuse="none", **way).model  # type: ignore[arg-type]
        mixed = [norm for norm in fused_norms(converted) if norm.read != norm.scale]
        assert not mixed, f"seed {seed}, {way}"


def test_norms_are_met_in_every_type() -> None:
    """The law above is about something: norms are fused, with both types."""
    met = set()
    for seed in range(swept(40)):
        model = _Drawn(random.Random(seed)).model()
        converted = mezzo.convert(model, to="bf16", target="onnxruntime-cuda", fuse="none").model
        met |= {norm.read for norm in fused_norms(converted)}
    assert met == {onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16}
