"""Does the error of a model stay flat over 1,500 calls that feed its states back, and what does --feedback change?

    python benchmarks/feedback.py --steps 1500

Six kinds of state, each as a small model of one step: an exponential moving average, linear attention written out
(S = a S + k v, with a readout) and as an operator, GRU and LSTM as operators, and a decoder step with a windowed cache
of keys and values. Inputs are correlated noise, weights random. Each is converted to FP16 and BF16 by `balanced`,
without and with `feedback`, and compared over all steps, each model fed its own states.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
from conformance import describe_environment

import mezzo

Weights = dict[str, np.ndarray]
HIDDEN, WINDOW, HEADS = 64, 32, 4
COLUMNS = ("first", "last", "worst", "early", "late")
WAYS = {
    "without": {},
    "feedback": {"feedback": "guess"},
}


def model(text: str, weights: Weights) -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> {text}')
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.checker.check_model(parsed)
    return parsed


def matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)


def average(rng: np.random.Generator) -> onnx.ModelProto:
    text = f"""average (float[1,{HIDDEN}] x, float[1,{HIDDEN}] mean)
    => (float[1,{HIDDEN}] new_mean, float[1,{HIDDEN}] y)
    <float a = {{0.995}}, float b = {{0.005}}> {{
        p = MatMul(x, w)  kept = Mul(a, mean)  part = Mul(b, p)  new_mean = Add(kept, part)  y = MatMul(new_mean, v)
    }}"""
    return model(text, {"w": matrix(rng, HIDDEN, HIDDEN), "v": matrix(rng, HIDDEN, HIDDEN)})


def linear_attention(rng: np.random.Generator) -> onnx.ModelProto:
    text = f"""linear_attention (float[1,{HIDDEN}] x, float[{HIDDEN},{HIDDEN}] state)
    => (float[1,{HIDDEN}] y, float[{HIDDEN},{HIDDEN}] new_state) {{
        k = MatMul(x, wk)  v = MatMul(x, wv)  q = MatMul(x, wq)  kt = Transpose<perm=[1,0]>(k)  kv = MatMul(kt, v)
        kept = Mul(state, decay)  new_state = Add(kept, kv)  read = MatMul(q, new_state)  y = MatMul(read, wo)
    }}"""
    weights = {name: matrix(rng, HIDDEN, HIDDEN) for name in ("wk", "wv", "wq", "wo")}
    return model(text, {**weights, "decay": rng.uniform(0.98, 0.999, (HIDDEN, 1)).astype(np.float32)})


def linear_attention_operator(rng: np.random.Generator) -> onnx.ModelProto:
    size = HIDDEN // HEADS
    state = f"float[1,{HEADS},{size},{size}]"
    text = f"""linear_attention (float[1,1,{HIDDEN}] x, {state} past_state)
    => (float[1,1,{HIDDEN}] y, {state} present_state) {{
        q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
        y, present_state = com.microsoft.LinearAttention<q_num_heads={HEADS}, kv_num_heads={HEADS}, update_rule="gated">
            (q, k, v, past_state, decay)
    }}"""
    weights = {name: matrix(rng, HIDDEN, HIDDEN) for name in ("wq", "wk", "wv")}
    return model(text, {**weights, "decay": np.full((1, 1, HEADS), -0.002, np.float32)})


def gru(rng: np.random.Generator) -> onnx.ModelProto:
    text = f"""gru (float[1,1,{HIDDEN}] x, float[1,1,{HIDDEN}] h_0)
    => (float[1,1,1,{HIDDEN}] y, float[1,1,{HIDDEN}] h_n) {{
        y, h_n = GRU<hidden_size={HIDDEN}>(x, w, r, , , h_0)
    }}"""
    return model(text, {name: matrix(rng, 1, 3 * HIDDEN, HIDDEN) for name in "wr"})


def lstm(rng: np.random.Generator) -> onnx.ModelProto:
    state = f"float[1,1,{HIDDEN}]"
    text = f"""lstm ({state} x, {state} h_0, {state} c_0) => (float[1,1,1,{HIDDEN}] y, {state} h_n, {state} c_n) {{
        y, h_n, c_n = LSTM<hidden_size={HIDDEN}>(x, w, r, , , h_0, c_0)
    }}"""
    return model(text, {name: matrix(rng, 1, 4 * HIDDEN, HIDDEN) for name in "wr"})


def windowed_cache(rng: np.random.Generator) -> onnx.ModelProto:
    size = HIDDEN // HEADS
    cache = f"float[1,{HEADS},{WINDOW},{size}]"
    text = f"""decoder (float[1,1,{HIDDEN}] x, {cache} past.key, {cache} past.value)
    => (float[1,1,{HIDDEN}] y, {cache} present.key, {cache} present.value)
    <int64[4] split = {{1, 1, {HEADS}, {size}}}, int64[3] join = {{1, 1, {HIDDEN}}}, int64[1] one = {{1}},
     int64[1] end = {{{WINDOW + 1}}}, int64[1] axis = {{2}}, float scale = {{{size**-0.5}}}> {{
        q0 = MatMul(x, wq)  q1 = Reshape(q0, split)  q = Transpose<perm=[0,2,1,3]>(q1)
        k0 = MatMul(x, wk)  k1 = Reshape(k0, split)  k = Transpose<perm=[0,2,1,3]>(k1)
        v0 = MatMul(x, wv)  v1 = Reshape(v0, split)  v = Transpose<perm=[0,2,1,3]>(v1)
        keys = Concat<axis=2>(past.key, k)  present.key = Slice(keys, one, end, axis)
        values = Concat<axis=2>(past.value, v)  present.value = Slice(values, one, end, axis)
        kt = Transpose<perm=[0,1,3,2]>(present.key)  s0 = MatMul(q, kt)  s = Mul(s0, scale)  p = Softmax<axis=-1>(s)
        o0 = MatMul(p, present.value)  o1 = Transpose<perm=[0,2,1,3]>(o0)  o = Reshape(o1, join)  y = MatMul(o, wo)
    }}"""
    text = text.replace("past.", "past_").replace("present.", "present_")  # the parser knows no dots
    return model(text, {name: matrix(rng, HIDDEN, HIDDEN) for name in ("wq", "wk", "wv", "wo")})


KINDS: dict[str, Callable[[np.random.Generator], onnx.ModelProto]] = {
    "moving average": average,
    "linear attention": linear_attention,
    "LinearAttention": linear_attention_operator,
    "GRU": gru,
    "LSTM": lstm,
    "windowed cache": windowed_cache,
}


def inputs(rng: np.random.Generator, shape: tuple[int, ...], steps: int) -> list[dict[str, np.ndarray]]:
    """Correlated noise around a mean of its own for each number."""
    x, mean = np.zeros(shape), rng.standard_normal(shape)
    rows = []
    for _ in range(steps):
        x = 0.9 * x + rng.standard_normal(shape) * 0.44
        rows.append({"x": (mean + x).astype(np.float32)})
    return rows


def measure(kind: str, steps: int, to: str) -> list[dict[str, object]]:
    rng = np.random.default_rng(7)
    source = KINDS[kind](rng)
    shape = tuple(dim.dim_value for dim in source.graph.input[0].type.tensor_type.shape.dim)
    data = inputs(rng, shape, steps)
    found: list[dict[str, object]] = []
    for way, options in WAYS.items():
        converted = mezzo.convert(source, to=to, check=False, **options)
        comparison = mezzo.compare(source, converted.model, data, feedback="guess", layers=False)
        output = max(comparison.outputs, key=lambda each: each.steps.worst)
        steps = {name: getattr(output.steps, name) for name in (*COLUMNS, "grows", "curve")}
        ruling = comparison.verdict.ruling.value
        found.append({"kind": kind, "to": to, "way": way, "output": output.name, "ruling": ruling, **steps})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--json", type=Path, default=Path("out/feedback.json"))
    given = parser.parse_args()
    found = []
    print("| state | to | converted | first step | last step | worst step | first quarter | last quarter |")
    print("|---|---|---|---|---|---|---|---|")
    for to in ("fp16", "bf16"):
        for kind in KINDS:
            for row in measure(kind, given.steps, to):
                found.append(row)
                numbers = " | ".join(f"{row[name]:.1e}" for name in COLUMNS)
                print(f"| {kind} | {to} | {row['way']} | {numbers} |", flush=True)
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps({"environment": describe_environment("mezzo"), "found": found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
