"""A model of many alike blocks, as BERT is, made small: what repeats is the structure, no weight is shared."""

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx import TensorProto

_WIDTH, _HEADS, _LENGTH, _WORDS = 32, 2, 8, 97


class _Builder:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.path = ""

    def weight(self, name: str, values: object, dtype: type = np.float32) -> str:
        full = f"{self.path}{name}"
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(values, dtype), full))
        return full

    def op(self, kind: str, *inputs: str, name: str, **attributes: object) -> str:
        full = f"{self.path}{name}"
        node = onnx.helper.make_node(kind, list(inputs), [f"{full}_out"], name=full, **attributes)
        self.nodes.append(node)
        return f"{full}_out"

    def dense(self, name: str, given: str, rows: int, columns: int) -> str:
        weight = self.weight(f"{name}/weight", self.random.normal(0, rows**-0.5, (rows, columns)))
        bias = self.weight(f"{name}/bias", self.random.normal(0, 0.05, columns))
        product = self.op("MatMul", given, weight, name=f"{name}/MatMul")
        return self.op("Add", product, bias, name=f"{name}/Add")

    def norm(self, name: str, given: str) -> str:
        scale = self.weight(f"{name}/scale", self.random.normal(1, 0.1, _WIDTH))
        bias = self.weight(f"{name}/bias", self.random.normal(0, 0.1, _WIDTH))
        return self.op("LayerNormalization", given, scale, bias, name=f"{name}/Norm", axis=-1)

    def heads(self, name: str, given: str, order: list[int]) -> str:
        shape = self.weight(f"{name}/shape", [0, _LENGTH, _HEADS, _WIDTH // _HEADS], np.int64)
        shaped = self.op("Reshape", given, shape, name=f"{name}/Reshape")
        return self.op("Transpose", shaped, name=f"{name}/Transpose", perm=order)

    def block(self, number: int, given: str) -> str:
        self.path = f"/encoder/layer.{number}/"
        query = self.heads("query", self.dense("query", given, _WIDTH, _WIDTH), [0, 2, 1, 3])
        key = self.heads("key", self.dense("key", given, _WIDTH, _WIDTH), [0, 2, 3, 1])
        value = self.heads("value", self.dense("value", given, _WIDTH, _WIDTH), [0, 2, 1, 3])
        scores = self.op("MatMul", query, key, name="attention/MatMul")
        root = self.weight("attention/root", (_WIDTH // _HEADS) ** 0.5)
        shares = self.op("Softmax", self.op("Div", scores, root, name="attention/Div"), name="attention/Softmax")
        mixed = self.op("MatMul", shares, value, name="attention/MatMul_1")
        moved = self.op("Transpose", mixed, name="attention/Transpose", perm=[0, 2, 1, 3])
        shape = self.weight("attention/shape", [0, _LENGTH, _WIDTH], np.int64)
        joined = self.op("Reshape", moved, shape, name="attention/Reshape")
        residual = self.op("Add", self.dense("output", joined, _WIDTH, _WIDTH), given, name="output/Residual")
        first = self.norm("first", residual)
        wide = self.dense("up", first, _WIDTH, 4 * _WIDTH)
        tail = self.op(
            "Erf", self.op("Mul", wide, self.weight("gelu/root", 0.5**0.5), name="gelu/Mul"), name="gelu/Erf"
        )
        gate = self.op("Add", tail, self.weight("gelu/one", 1.0), name="gelu/Add")
        half = self.op("Mul", wide, self.weight("gelu/half", 0.5), name="gelu/Mul_1")
        active = self.op("Mul", half, gate, name="gelu/Mul_2")
        residual = self.op("Add", self.dense("down", active, 4 * _WIDTH, _WIDTH), first, name="down/Residual")
        return self.norm("second", residual)


def block_model(blocks: int = 36, seed: int = 0, *, loud: tuple[int, float] | None = None) -> onnx.ModelProto:
    """A BERT-like encoder, `ids` int64[N,8] to `logits` f32[N,5]. `loud`: a block whose first product is so many times
    as large, and its numbers taken back behind it, so that it alone costs more than its like."""
    made = _Builder(seed)
    table = made.weight("/embeddings/words", made.random.normal(0, 1, (_WORDS, _WIDTH)))
    places = made.weight("/embeddings/places", made.random.normal(0, 0.3, (_LENGTH, _WIDTH)))
    words = made.op("Gather", table, "ids", name="/embeddings/Gather")
    value = made.norm("/embeddings/norm", made.op("Add", words, places, name="/embeddings/Add"))
    for number in range(blocks):
        value = made.block(number, value)
    made.path = "/head/"
    first = made.op("Gather", value, made.weight("first", 0, np.int64), name="Gather", axis=1)
    pooled = made.op("Tanh", made.dense("pool", first, _WIDTH, _WIDTH), name="Tanh")
    logits = made.dense("classes", pooled, _WIDTH, 5)
    made.nodes[-1].output[0] = "logits"
    assert logits
    if loud is not None:
        _raise(made, *loud)
    graph = onnx.helper.make_graph(
        made.nodes, "blocks",
        [onnx.helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", _LENGTH])],
        [onnx.helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 5])],
        made.weights,
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 21)]
    return onnx.helper.make_model(graph, ir_version=10, opset_imports=opsets)


def _raise(made: _Builder, number: int, factor: float) -> None:
    """Let the value projection of a block add a large offset, which its attention's projection takes off again."""
    for tensor in made.weights:
        if tensor.name == f"/encoder/layer.{number}/query/bias":
            values = onnx.numpy_helper.to_array(tensor) + np.float32(factor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def block_feeds(samples: int = 32, seed: int = 1) -> dict[str, np.ndarray]:
    """Random words for `block_model`."""
    return {"ids": np.random.default_rng(seed).integers(0, _WORDS, (samples, _LENGTH))}
