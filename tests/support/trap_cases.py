"""Models that a careless conversion to FP16 ruins, each a few lines of ONNX text with data that springs the trap.

FP32 computes every one of them well. Each says what breaks in FP16; a few look broken and are not: FP16 has infinities,
and what tends to a limit still reaches it, so keeping those in FP32 would only cost.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from trap_models import Random, Trap


def normal(name: str, *shape: int, scale: float = 1.0, offset: float = 0.0) -> Callable[[Random], dict[str, Any]]:
    """One input of normal numbers."""
    return lambda random: {name: (offset + scale * random.standard_normal(shape)).astype(np.float32)}


def _weight(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


_POINTS = _weight(5, 32, 8) + 40
_DEAD = np.where(np.arange(64) == 5, 1e-8, 1).astype(np.float32)


def _constant_rows(random: Random) -> dict[str, Any]:
    """Rows of one number each, exact in FP16, among rows that vary: padding looks so."""
    x = random.standard_normal((8, 64))
    x[::2] = 3.5
    return {"x": x.astype(np.float32)}


def _zero_rows(random: Random) -> dict[str, Any]:
    x = random.standard_normal((8, 64))
    x[::2] = 0
    return {"x": x.astype(np.float32)}


def _masked(random: Random) -> dict[str, Any]:
    """Attention logits well below 0 and a mask of what to read, some rows of which are empty."""
    keep = random.random((32, 8, 16)) < 0.7
    keep[0, 3] = keep[2, 5] = False
    keep[1] = True
    return {"s": random.uniform(-60, -20, (32, 8, 16)).astype(np.float32), "m": keep}


def _probabilities(random: Random) -> dict[str, Any]:
    p = random.dirichlet(np.full(32, 0.05), 8)
    p[p < 1e-4] = 0
    return {"p": p.astype(np.float32)}


def _tokens(random: Random) -> dict[str, Any]:
    mask = np.ones((2, 5000), np.float32)
    mask[1, random.integers(10, 100) :: 97] = 0
    return {"m": mask}


# The normalizations, in both exports: up to opset 17 the axes of a reduction are an attribute, from 18 on an input.
_MEAN = {17: "ReduceMean<axes=[-1]>({0})", 18: "ReduceMean({0}, last)"}
_SUM = "ReduceSum({0}, last)"


def _layer_norm(opset: int, eps: str, square: str) -> str:
    mean = _MEAN[opset]
    return f"""(float[N,64] x) => (float[N,64] y) <int64[1] last = {{-1}}, float two = {{2}}, float eps = {{{eps}}}> {{
        u = {mean.format("x")}  d = Sub(x, u)  q = {square}  v = {mean.format("q")}
        e = Add(v, eps)  s = Sqrt(e)  n = Div(d, s)  g = Mul(n, gamma)  y = Add(g, beta) }}"""


_GAIN = {"gamma": _weight(1, 64, scale=0.2) + 1, "beta": _weight(2, 64, scale=0.1)}
_SCORES = "(float[B,8,16] s, bool[B,8,16] m) => (float[B,8,16] y)"
_IN_A_BRANCH = """(float[8,64] x, bool c) => (float[8,64] y) <int64[1] last = {-1}, float eps = {1e-5}> {
    y = If(c) <
        then_branch = t () => (float[8,64] a) {
            q = Mul(x, x)  v = ReduceMean(q, last)  e = Add(v, eps)  r = Sqrt(e)  a = Div(x, r) },
        else_branch = o () => (float[8,64] b) { b = Identity(x) }> }"""
_IN_A_LOOP = """(float[8,64] x) => (float[8,64] y) <int64 n = {24}, bool go = {1}, float g = {1.6}, float h = {1e-5}> {
    z = Loop(n, go, x) <
        body = b (int64 i, bool c, float[8,64] w) => (bool k, float[8,64] o) { k = Identity(c)  o = Mul(w, g) }>
    y = Mul(z, h) }"""
_FUNCTION = """<domain: "local", opset_import: ["": 18]> rms (a) => (b) {
    l = Constant<value_ints=[-1]>()  e = Constant<value_float=1e-5>()
    q = Mul(a, a)  v = ReduceMean(q, l)  p = Add(v, e)  r = Sqrt(p)  b = Div(a, r) }"""


def _deep(layers: int) -> str:
    """A residual stream that doubles or so in every layer, normalized at the end."""
    lines = [f"h{i} = MatMul(x{i}, w)  r{i} = Relu(h{i})  x{i + 1} = Add(x{i}, r{i})" for i in range(layers)]
    return f"""(float[N,32] x0) => (float[N,32] y) {{ {" ".join(lines)}
        y = LayerNormalization<axis=-1>(x{layers}, gamma, beta) }}"""


NORMALIZATIONS = (
    Trap("layer norm at 1e3, axes as attribute", "squares pass 65504: all zeros",
         _layer_norm(17, "1e-5", "Mul(d, d)"), normal("x", 8, 64, scale=1e3), _GAIN, opset=17),
    Trap("layer norm at 1e3, axes as input", "squares pass 65504: all zeros",
         _layer_norm(18, "1e-5", "Pow(d, two)"), normal("x", 8, 64, scale=1e3), _GAIN),
    Trap("layer norm at 1e3, epsilon 1e-12", "squares pass 65504: all zeros",
         _layer_norm(18, "1e-12", "Pow(d, two)"), normal("x", 8, 64, scale=1e3), _GAIN),
    Trap("layer norm of constant rows", "1e-12 becomes 0: 0/0",
         _layer_norm(18, "1e-12", "Mul(d, d)"), _constant_rows, _GAIN),
    Trap("layer norm of small numbers", "squares vanish: division by 0",
         _layer_norm(18, "1e-12", "Mul(d, d)"), normal("x", 8, 64, scale=1e-5), _GAIN),
    Trap("RMS norm at 1e3", "squares pass 65504: all zeros",
         f"""(float[N,64] x) => (float[N,64] y) <int64[1] last = {{-1}}, float eps = {{1e-6}}> {{
             q = Mul(x, x)  v = {_MEAN[18].format("q")}  e = Add(v, eps)  s = Sqrt(e)  r = Reciprocal(s)
             n = Mul(x, r)  y = Mul(n, gamma) }}""", normal("x", 8, 64, scale=1e3), {"gamma": _GAIN["gamma"]}),
    Trap("L2 normalization at 1e3", "squares pass 65504: all zeros",
         f"""(float[N,64] x) => (float[N,64] y) <int64[1] last = {{-1}}> {{
             q = Mul(x, x)  v = {_SUM.format("q")}  s = Sqrt(v)  y = Div(x, s) }}""", normal("x", 8, 64, scale=1e3)),
    Trap("x / (norm + 1e-12) of empty rows", "1e-12 becomes 0: 0/0",
         """(float[N,64] x) => (float[N,64] y) <float eps = {1e-12}> {
             n = ReduceL2<axes=[1]>(x)  e = Add(n, eps)  y = Div(x, e) }""", _zero_rows, opset=17),
    Trap("cosine similarity at 1e3", "dot products pass 65504: inf/inf",
         f"""(float[N,64] x) => (float[N,1] y) <int64[1] last = {{-1}}> {{
             p = Mul(x, w)  d = {_SUM.format("p")}  q = Mul(x, x)  v = {_SUM.format("q")}  s = Sqrt(v)
             y = Div(d, s) }}""",
         normal("x", 8, 64, scale=1e3), {"w": _weight(3, 64) + 1}),
    Trap("variance as E[x^2] - E[x]^2", "the difference of two large numbers is all rounding",
         """(float[N,64] x) => (float[N,64] y) <float eps = {1e-5}> {
             u = ReduceMean<axes=[1]>(x)  q = Mul(x, x)  a = ReduceMean<axes=[1]>(q)  b = Mul(u, u)  v = Sub(a, b)
             e = Add(v, eps)  s = Sqrt(e)  d = Sub(x, u)  y = Div(d, s) }""",
         normal("x", 8, 64, offset=50), opset=17),
    Trap("z-score of a narrow feature", "the offset hides what varies",
         """(float[N,64] x) => (float[N,64] y) <float u = {300}, float s = {0.1}> {
             d = Sub(x, u)  z = Div(d, s)  y = Tanh(z) }""", normal("x", 8, 64, offset=300, scale=0.1)),
)  # fmt: skip

SOFTMAXES = (
    Trap("mask of -65504, empty rows", "the sum passes -65504: NaN",
         _SCORES + """ <float fill = {-65504}, float zero = {0}> {
             a = Where(m, zero, fill)  z = Add(s, a)  y = Softmax<axis=-1>(z) }""", _masked),
    Trap("mask of -3.4e38, empty rows", "the mask becomes -inf: NaN",
         _SCORES + """ <float fill = {-3.4e38}, float zero = {0}> {
             a = Where(m, zero, fill)  z = Add(s, a)  y = Softmax<axis=-1>(z) }""", _masked),
    Trap("mask of -1e9, empty rows", "the mask becomes -inf: NaN",
         _SCORES + " <float fill = {-1e9}> { z = Where(m, s, fill)  y = Softmax<axis=-1>(z) }", _masked),
    Trap("(1 - m) * -1e9", "the factor becomes -inf, and 0 times it NaN",
         _SCORES + """ <float fill = {-1e9}, float one = {1}> {
             f = Cast<to=1>(m)  o = Sub(one, f)  a = Mul(o, fill)  z = Add(s, a)
             y = Softmax<axis=-1>(z) }""", _masked),
    Trap("(1 - m) * -3.4e38", "the factor becomes -inf, and 0 times it NaN",
         _SCORES + """ <float fill = {-3.4028234663852886e38}, float one = {1}> {
             f = Cast<to=1>(m)  o = Sub(one, f)  a = Mul(o, fill)  z = Add(s, a)
             y = Softmax<axis=-1>(z) }""", _masked),
    Trap("mask of -inf, guarded", "nothing: FP16 has -inf, and the guard catches empty rows",
         _SCORES + """ <float zero = {0}> {
             z = Where(m, s, fill)  p = Softmax<axis=-1>(z)  b = IsNaN(p)  y = Where(b, zero, p) }""",
         _masked, {"fill": np.float32(-np.inf)}, is_harmless=True),
    Trap("softmax of large logits", "near 3000 the gap between FP16 numbers is 2",
         """(float[N,64] x) => (float[N,16] y) <float big = {3000}> {
             h = MatMul(x, w)  z = Add(h, big)  y = Softmax<axis=-1>(z) }""",
         normal("x", 8, 64), {"w": _weight(4, 64, 16, scale=0.2)}),
    Trap("scale after the product", "the product passes 65504",
         """(float[N,8,64] q, float[N,8,64] k) => (float[N,8,8] y) <float scale = {1e-3}> {
             t = Transpose<perm=[0,2,1]>(k)  z = MatMul(q, t)  l = Mul(z, scale)  y = Softmax<axis=-1>(l) }""",
         lambda random: {n: (45 + 5 * random.standard_normal((2, 8, 64))).astype(np.float32) for n in "qk"}),
    Trap("softmax by hand", "exp passes 65504: inf/inf",
         f"""(float[N,16] x) => (float[N,16] y) <int64[1] last = {{-1}}> {{
             e = Exp(x)  s = {_SUM.format("e")}  y = Div(e, s) }}""", normal("x", 8, 16, offset=12, scale=2)),
    Trap("log-sum-exp by hand", "exp passes 65504",
         f"""(float[N,16] x) => (float[N,1] y) <int64[1] last = {{-1}}> {{
             e = Exp(x)  s = {_SUM.format("e")}  y = Log(s) }}""", normal("x", 8, 16, offset=12, scale=2)),
    Trap("softplus by hand", "exp passes 65504",
         "(float[N,16] x) => (float[N,16] y) <float one = {1}> { e = Exp(x)  s = Add(e, one)  y = Log(s) }",
         normal("x", 8, 16, offset=10, scale=4)),
    Trap("log(p + 1e-12)", "1e-12 becomes 0: -inf",
         "(float[N,32] p) => (float[N,32] y) <float eps = {1e-12}> { e = Add(p, eps)  y = Log(e) }", _probabilities),
    Trap("entropy", "0 times log(0)",
         f"""(float[N,32] p) => (float[N,1] y) <float eps = {{1e-12}}, int64[1] last = {{-1}}> {{
             e = Add(p, eps)  l = Log(e)  t = Mul(p, l)  s = {_SUM.format("t")}  y = Neg(s) }}""", _probabilities),
    Trap("sigmoid by hand", "nothing: 1/(1 + inf) is 0",
         """(float[N,16] x) => (float[N,16] y) <float one = {1}> {
             n = Neg(x)  e = Exp(n)  s = Add(e, one)  y = Div(one, s) }""",
         normal("x", 8, 16, scale=8), is_harmless=True),
)  # fmt: skip

ARITHMETIC = (
    Trap("x * 900 * 900 * 1e-5", "the product passes 65504",
         """(float[N,16] x) => (float[N,16] y) <float a = {900}, float b = {1e-5}> {
             p = Mul(x, a)  q = Mul(p, a)  y = Mul(q, b) }""", normal("x", 8, 16)),
    Trap("x * 1e-5 * 1e-5 * 1e10", "the product vanishes",
         """(float[N,16] x) => (float[N,16] y) <float a = {1e-5}, float b = {1e10}> {
             p = Mul(x, a)  q = Mul(p, a)  y = Mul(q, b) }""", normal("x", 8, 16)),
    Trap("(x + 1e4) - 1e4", "the offset takes the last bits",
         "(float[N,16] x) => (float[N,16] y) <float a = {1e4}> { p = Add(x, a)  y = Sub(p, a) }", normal("x", 8, 16)),
    Trap("1 / tiny", "the inverse passes 65504",
         "(float[N,16] x) => (float[N,16] y) <float a = {1e-6}> { t = Mul(x, a)  r = Reciprocal(t)  y = Mul(r, a) }",
         lambda random: {"x": random.uniform(0.5, 2, (8, 16)).astype(np.float32)}),
    Trap("mean of 1e5 numbers as a sum", "the sum passes 65504",
         """(float[N,100000] x) => (float[N] y) <float n = {1e5}> {
             s = ReduceSum<keepdims=0>(x, one)  y = Div(s, n) }""",
         normal("x", 2, 100_000, offset=1), {"one": np.array([1])}),
    Trap("squared distances", "|x|^2 + |y|^2 - 2xy: the difference of large numbers",
         """(float[N,32] x) => (float[N,8] y) <float two = {2}> {
             q = Mul(x, x)  a = ReduceSum(q, one)  p = MatMul(x, w)  d = Mul(p, two)  s = Sub(a, d)  t = Add(s, b)
             y = Sqrt(t) }""",
         normal("x", 8, 32, offset=40), {"one": np.array([1]), "w": _POINTS, "b": (_POINTS**2).sum(0)}),
    Trap("kurtosis", "fourth powers pass 65504",
         """(float[N,64] x) => (float[N,1] y) <float four = {4}> {
             q = Mul(x, x)  a = ReduceMean<axes=[1]>(q)  c = Mul(a, a)  p = Pow(x, four)  m = ReduceMean<axes=[1]>(p)
             y = Div(m, c) }""", normal("x", 8, 64, scale=20), opset=17),
    Trap("GELU's cube past 40", "nothing: tanh(inf) is 1",
         """(float[N,16] x) => (float[N,16] y)
             <float three = {3}, float c = {0.044715}, float k = {0.79788456}, float one = {1}, float half = {0.5}> {
             p = Pow(x, three)  a = Mul(p, c)  b = Add(x, a)  d = Mul(b, k)  t = Tanh(d)  o = Add(t, one)
             h = Mul(x, half)  y = Mul(h, o) }""", normal("x", 8, 16, scale=60), is_harmless=True),
    Trap("products of 8192 terms", "the sum passes 65504, and LayerNormalization makes NaN of it",
         "(float[N,8192] x) => (float[N,32] y) { h = MatMul(x, w)  y = LayerNormalization<axis=-1>(h, gamma, beta) }",
         normal("x", 4, 8192, offset=3), {"w": _weight(6, 8192, 32) + 4, "gamma": np.ones(32, np.float32),
                                          "beta": np.zeros(32, np.float32)}),
    Trap("convolution of loud pictures", "the sum passes 65504",
         "(float[N,16,8,8] x) => (float[N,4,6,6] y) <float s = {1e-5}> { c = Conv(x, w)  r = Relu(c)  y = Mul(r, s) }",
         normal("x", 2, 16, 8, 8, scale=100, offset=900), {"w": _weight(7, 4, 16, 3, 3) + 1}),
    Trap("heavy tails", "cubes of rare numbers pass 65504",
         "(float[N,64] x) => (float[N,16] y) { q = Mul(x, x)  r = Mul(q, x)  y = MatMul(r, w) }",
         normal("x", 8, 64, scale=9), {"w": _weight(10, 64, 16)}),
    Trap("differences of logarithms", "the difference of two large numbers is all rounding",
         """(float[N,16] x) => (float[N,16] y) <float d = {1e-3}> {
             a = Add(x, d)  l = Log(a)  m = Log(x)  y = Sub(l, m) }""",
         lambda random: {"x": random.uniform(1, 9, (8, 16)).astype(np.float32)}),
    Trap("weights below FP16", "they vanish, and LayerNormalization raises what is left",
         "(float[N,64] x) => (float[N,16] y) { h = MatMul(x, w)  y = LayerNormalization<axis=-1>(h, gamma, beta) }",
         normal("x", 8, 64), {"w": _weight(11, 64, 16, scale=1e-8), "gamma": np.ones(16, np.float32),
                              "beta": np.zeros(16, np.float32)}),
    Trap("a channel down and up again", "1e-8 vanishes, 1e8 becomes inf",
         "(float[N,64] x) => (float[N,16] y) { h = MatMul(x, v)  y = MatMul(h, w) }", normal("x", 8, 64),
         {"v": _weight(12, 64, 64) * _DEAD, "w": _weight(13, 64, 16) / _DEAD[:, None]}),
    Trap("weights that cancel an offset", "rounded weights no longer sum to 0",
         "(float[N,512] x) => (float[N,8] y) { h = MatMul(x, w)  y = Identity(h) }", normal("x", 4, 512, offset=100),
         {"w": (lambda w: w - w.mean(0))(_weight(14, 512, 8))}),
    Trap("instance normalization of an offset", "the offset takes the last bits",
         """(float[N,4,64] x) => (float[N,4,64] y)
             <float[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}, float o = {1e3}> {
             p = Add(x, o)  y = InstanceNormalization<epsilon=1e-5>(p, s, b) }""", normal("x", 4, 4, 64)),
    Trap("log-mel floor", "squares and the floor vanish: log(0)",
         "(float[N,64] x) => (float[N,64] y) <float e = {1e-10}> { q = Mul(x, x)  m = Max(q, e)  y = Log(m) }",
         lambda random: {"x": (10 ** random.uniform(-6, 0, (8, 64))).astype(np.float32)}),
    Trap("GELU of large numbers", "x * 2 passes 65504 before it is halved",
         """(float[N,64] x) => (float[N,64] y) <float h = {0.5}, float one = {1}, float s = {1.4142135}> {
             d = Div(x, s)  e = Erf(d)  a = Add(e, one)  m = Mul(x, a)  y = Mul(m, h) }""",
         normal("x", 8, 64, scale=15_000)),
    Trap("BatchNormalization with variances of 1e10", "the sums and the variances pass 65504",
         "(float[N,3,8,8] x) => (float[N,4,6,6] y) { c = Conv(x, w)  y = BatchNormalization(c, one, zero, zero, v) }",
         normal("x", 2, 3, 8, 8, scale=255), {"w": _weight(15, 4, 3, 3, 3, scale=200), "one": np.ones(4, np.float32),
                                              "zero": np.zeros(4, np.float32), "v": np.full(4, 6.5e10, np.float32)}),
    Trap("24 layers of residuals", "the stream passes 65504", _deep(24), normal("x0", 8, 32),
         {"w": np.abs(_weight(8, 32, 32, scale=0.05)), "gamma": np.ones(32, np.float32),
          "beta": np.zeros(32, np.float32)}),
)  # fmt: skip

POSITIONS = (
    Trap("remainders of large numbers", "FP16 has no odd numbers past 2048",
         "(float[N,16] x) => (float[N,16] y) <float k = {7}> { p = Mod<fmod=1>(x, k)  y = Identity(p) }",
         lambda random: {"x": random.integers(2000, 9000, (8, 16)).astype(np.float32)}),
    Trap("the larger of near twins", "rounding makes them equal",
         """(float[N,64] x) => (float[N,1] y) {
             h = MatMul(x, w)  i = ArgMax<axis=-1>(h)  y = Cast<to=1>(i) }""", normal("x", 8, 64),
         {"w": np.repeat(_weight(16, 64, 16), 2, axis=1) + _weight(17, 64, 32, scale=1e-4)}),
    Trap("positions summed past 2048", "FP16 has no odd numbers there",
         "(float[N,5000] m) => (float[N,5000] y) <int64 axis = {1}> { p = CumSum(m, axis)  y = Sin(p) }", _tokens),
    Trap("angles of late time steps", "a step of FP16 near 1000 is half a radian",
         "(float[N,1] t) => (float[N,8] y) { a = Mul(t, f)  y = Sin(a) }",
         lambda random: {"t": (random.integers(500, 1000, (8, 1)) + 0.3).astype(np.float32)},
         {"f": np.geomspace(1, 1e-3, 8).astype(np.float32)}),
    Trap("rotary positions past 2048", "FP16 has no odd numbers there",
         """(int64[N] i, float[N,16] x) => (float[N,16] y) <int64[2] column = {-1, 1}> {
             f = Cast<to=1>(i)  c = Reshape(f, column)  a = MatMul(c, w)  s = Cos(a)  y = Mul(x, s) }""",
         lambda random: {"i": random.integers(2048, 8000, 16),
                         "x": random.standard_normal((16, 16)).astype(np.float32)},
         {"w": np.geomspace(1, 1e-3, 16).astype(np.float32)[None]}),
    Trap("rows looked up by computed number", "FP16 has no odd numbers past 2048",
         """(float[N] x) => (float[N,4] y) <float n = {3999}> {
             p = Mul(x, n)  r = Floor(p)  i = Cast<to=7>(r)  y = Gather(table, i) }""",
         lambda random: {"x": (np.floor(random.uniform(0.6, 1, 32) * 3999) / 3999 + 1e-4).astype(np.float32)},
         {"table": _weight(9, 4000, 4)}),
)  # fmt: skip

_UP_TO_5000 = """(float[5000,2] x) => (float[5000,2] y) <float[2] z = {0, 0}> {
    f, p = Scan<num_scan_inputs=1, body = b (float[2] s, float[2] e) => (float[2] n, float[2] o) {
        n = Add(s, e)  o = Identity(n) }>(z, x)
    y = Sin(p) }"""
_UP_TO_3000 = """(float[4] x) => (float[4] y) <int64 n = {3000}, bool go = {1}, float one = {1}> {
    z = Loop(n, go, x) <
        body = b (int64 i, bool c, float[4] w) => (bool k, float[4] o) { k = Identity(c)  o = Add(w, one) }>
    y = Sin(z) }"""
_RARE_BRANCH = """(float[8,64] x, bool c) => (float[8,64] y) <float a = {900}, float b = {1e-5}> {
    y = If(c) <
        then_branch = t () => (float[8,64] p) { q = Mul(x, a)  r = Mul(q, a)  p = Mul(r, b) },
        else_branch = e () => (float[8,64] s) { s = Relu(x) }> }"""


def _alternating(random: Random) -> dict[str, Any]:
    """The branch of the products is taken by about half of the batches, by the first of every seed in use."""
    return {"x": random.standard_normal((8, 64)).astype(np.float32), "c": np.array(random.random() < 0.5)}


BODIES = (
    Trap("RMS norm in a branch", "squares pass 65504: all zeros", _IN_A_BRANCH,
         lambda random: {"x": (1e3 * random.standard_normal((8, 64))).astype(np.float32), "c": np.array(True)}),
    Trap("growth in a loop", "the state passes 65504", _IN_A_LOOP, normal("x", 8, 64, scale=4)),
    Trap("positions summed by a scan", "FP16 has no odd numbers past 2048", _UP_TO_5000,
         lambda random: {"x": np.ones((5000, 2), np.float32)}),
    Trap("steps counted by a loop", "FP16 has no odd numbers past 2048", _UP_TO_3000, normal("x", 4)),
    Trap("a branch that some batches take", "the product passes 65504", _RARE_BRANCH, _alternating),
    Trap("RMS norm in a function", "squares pass 65504: all zeros",
         "(float[N,64] x) => (float[N,64] y) { y = local.rms(x) }", normal("x", 8, 64, scale=1e3), functions=_FUNCTION),
)  # fmt: skip

TRAPS = (*NORMALIZATIONS, *SOFTMAXES, *ARITHMETIC, *POSITIONS, *BODIES)
