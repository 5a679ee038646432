"""A small decoder as onnxruntime-genai's builder writes it: a folder with a cache of open head size, and its text."""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
WORDS, WIDTH, HIDDEN, HEADS = 128, 64, 1024, 2
CONFIG = {"model": {"decoder": {"filename": "model.onnx"}}, "search": {"past_present_share_buffer": True}}


def make_decoder(seed: int = 0, *, is_rotary: bool = False, **attention: float) -> onnx.ModelProto:
    """A layer of attention and one of products; weights are a table, a head and what the layers multiply with.

    `is_rotary`: with rotary embedding, and a head that is the table. `attention`: further attributes of that node.
    """
    if is_rotary:
        attention["do_rotary"] = 1
    make, port = helper.make_node, helper.make_tensor_value_info
    past, present = ([f"{word}.0.{part}" for part in ("key", "value")] for word in ("past_key_values", "present"))
    nodes = [
        make("ReduceSum", ["attention_mask", "one"], ["count"], keepdims=0),
        make("Sub", ["count", "one"], ["last"]),
        make("Cast", ["last"], ["ends"], to=TensorProto.INT32),
        make("Shape", ["attention_mask"], ["lengths"]),
        make("Gather", ["lengths", "one_"], ["length"]),
        make("Cast", ["length"], ["total"], to=TensorProto.INT32),
        make("Gather", ["table", "input_ids"], ["x"], "embed"),
        make("MatMul", ["x", "qkv"], ["q"], "qkv"),
        make("GroupQueryAttention", ["q", "", "", *past, "ends", "total", *(["cos", "sin"] if is_rotary else [])],
             ["a", *present], "gqa", domain=MS, num_heads=HEADS, kv_num_heads=1, **attention),
        make("Add", ["x", "a"], ["r"]),
        make("MatMul", ["r", "up"], ["h"], "up"),
        make("Relu", ["h"], ["p"]),
        make("MatMul", ["p", "down"], ["d"], "down"),
        make("Add", ["r", "d"], ["s"]),
        *([make("Transpose", ["table"], ["head"], "turn")] if is_rotary else []),
        make("MatMul", ["s", "head"], ["logits"], "head"),
    ]  # fmt: skip
    inputs = [port("input_ids", TensorProto.INT64, ["B", "S"]), port("attention_mask", TensorProto.INT64, ["B", "T"])]
    inputs += [port(name, TensorProto.FLOAT, ["B", 1, "past", "D"]) for name in past]
    outputs = [port("logits", TensorProto.FLOAT, ["B", "S", WORDS])]
    outputs += [port(name, TensorProto.FLOAT, ["B", 1, "T", "D"]) for name in present]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=10)
    rng = np.random.default_rng(seed)
    head = WIDTH // HEADS
    shapes = {
        "table": (WORDS, WIDTH), "qkv": (WIDTH, WIDTH + 2 * head), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
        "head": (WIDTH, WORDS),
    }  # fmt: skip
    weights = {name: rng.normal(size=shape) * (shape[0] ** -0.5) for name, shape in shapes.items()}
    if is_rotary:
        del weights["head"]
        weights["down"] *= 16.0  # else the head's answer is the token itself
        angles = np.arange(512)[:, None] / 100.0 ** (np.arange(head // 2) / (head // 2))
        weights |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    for name, weight in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(weight.astype(np.float32), name))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "one_"))
    return model


def save_decoder(root: Path, model: onnx.ModelProto | None = None) -> Path:
    """A folder of onnxruntime-genai in FP32, with a tokenizer of words."""
    root.mkdir(parents=True)
    onnx.save(
        model or make_decoder(), root / "model.onnx", save_as_external_data=True, location="model.onnx.data",
        size_threshold=64,
    )  # fmt: skip
    (root / "genai_config.json").write_text(json.dumps(CONFIG))
    save_tokenizer(root)
    return root


def save_tokenizer(root: Path) -> None:
    """tokenizer.json of the words w0, w1, ..., without the package that reads it."""
    vocabulary = {f"w{number}": number for number in range(WORDS)}
    tokenizer = {
        "version": "1.0",
        "truncation": {"max_length": 16, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    }  # fmt: skip
    (root / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_prose(path: Path, rows: int = 40) -> Path:
    """Text of the decoder's words."""
    words = np.random.default_rng(3).integers(0, WORDS, 16 * rows)
    path.write_text(" ".join(f"w{word}" for word in words))
    return path
