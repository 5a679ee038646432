"""25 small models with the magnitudes of reports of FP16 that went wrong: overflow, NaN, and finite wrong answers.

Weights are random, sizes tiny; numbers in the models are those of the reports. Each is written as its exporter writes
it, at an opset that was usual there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper
from spot_layers import (
    Array,
    Net,
    attend,
    encoder_layer,
    gelu,
    heads_of,
    layer_norm,
    linear,
    ones,
    rms_norm,
    self_attention,
    silu,
    swiglu,
    zeros,
)

Feeds = dict[str, Array]
Random = np.random.Generator
WIDTH, LENGTH, VOCABULARY = 32, 12, 50
SEEN, UNSEEN = 2, 3
TOKENS = 16384  # of the loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A model, batches that a converter may see, and others to judge it by."""

    name: str
    model: onnx.ModelProto
    seen: tuple[Feeds, ...]
    unseen: tuple[Feeds, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """How to make a model: its opset, its inputs from a generator, and its outputs from inputs and a net."""

    opset: int
    draw: Callable[[Random], Feeds]
    build: Callable[[Net], tuple[str, ...]]


def make_spot(name: str) -> Spot:
    row, seed = ROWS[name], sorted(ROWS).index(name)
    random = np.random.default_rng(1000 + seed)
    batches = tuple(row.draw(random) for _ in range(SEEN + UNSEEN))
    net = Net(row.opset, seed)
    outputs = row.build(net)
    return Spot(name=name, model=net.finish(batches[0], *outputs), seen=batches[:SEEN], unseen=batches[SEEN:])


def _tokens(random: Random) -> Feeds:
    ids = random.integers(3, VOCABULARY, (2, LENGTH))
    ids[:, 0] = 1
    return {"ids": ids}


def _masked_tokens(random: Random) -> Feeds:
    mask = np.ones((2, LENGTH), np.int64)
    mask[0, -int(random.integers(2, 5)) :] = 0
    return _tokens(random) | {"mask": mask}


def _hidden(random: Random) -> Feeds:
    return {"x": random.standard_normal((2, LENGTH, WIDTH)).astype(np.float32)}


def _image(random: Random) -> Feeds:
    return {"x": random.uniform(-1, 1, (1, 3, 16, 16)).astype(np.float32)}


def _embed(net: Net, ids: str = "ids") -> str:
    return net("Gather", net.normal(VOCABULARY, WIDTH, scale=1.0), ids)


def _classify(net: Net, x: str) -> tuple[str]:
    return (linear(net, x, net.normal(WIDTH, VOCABULARY)),)


def _channel(number: int, value: float, width: int = WIDTH) -> Array:
    """A bias that adds a large number to one channel."""
    bias = zeros(width)
    bias[number] = value
    return bias


def _whisper(net: Net) -> tuple[str, ...]:
    """LayerNorm written out whose |x - mean| comes to 795: the squares pass 65,504, and x / inf is a finite 0."""
    x = encoder_layer(net, "x", WIDTH)
    x = net("Add", x, _channel(3, 820.0))
    gains = ones(WIDTH) * 100
    gains[3] = 0.2
    x = net("Add", x, self_attention(net, layer_norm(net, x, gains, zeros(WIDTH)), WIDTH))
    return _classify(net, layer_norm(net, x, gains, zeros(WIDTH)))


def _gemma(net: Net) -> tuple[str, ...]:
    """Gains of norms behind attention and feed-forward layers in the thousands: the stream passes 65,504."""
    x = net("Mul", _embed(net), WIDTH**0.5)
    for gain in (300.0, 4000.0, 24000.0):
        gains = np.abs(net.normal(WIDTH, scale=gain)) + 1
        x = net("Add", x, rms_norm(net, self_attention(net, rms_norm(net, x, ones(WIDTH)), WIDTH), gains))
        x = net("Add", x, rms_norm(net, swiglu(net, rms_norm(net, x, ones(WIDTH)), WIDTH), gains))
    return _classify(net, rms_norm(net, x, ones(WIDTH)))


def _gpt_oss(net: Net) -> tuple[str, ...]:
    """A channel of the residual stream grows from 35 to 45,344 over layers, and past 65,504 in the next."""
    x, gains = _embed(net), ones(WIDTH)
    for step in (35.0, 1200.0, 44109.0, 30000.0):
        x = net("Add", x, self_attention(net, rms_norm(net, x, gains), WIDTH))
        forward = swiglu(net, rms_norm(net, x, gains), WIDTH)
        x = net("Add", x, net("Add", forward, _channel(7, step)))
        gains = np.full(WIDTH, step / 10, np.float32)
        gains[7] = 0.05
    return _classify(net, rms_norm(net, x, gains))


def _qwen_vl(net: Net) -> tuple[str, ...]:
    """A SwiGLU product of 4e3 into down_proj, whose sums pass 65,504."""
    x = encoder_layer(net, "x", WIDTH)
    x = net("Add", x, swiglu(net, rms_norm(net, x, ones(WIDTH)), WIDTH, up=30.0, gate=30.0, down=25.0))
    return _classify(net, rms_norm(net, x, ones(WIDTH)))


def _t5(net: Net) -> tuple[str, ...]:
    """`wo` gives 66,246 in one channel; T5's norm squares it and divides."""
    x = _embed(net)
    for peak in (20.0, 66246.0):
        x = net("Add", x, self_attention(net, rms_norm(net, x, ones(WIDTH)), WIDTH))
        inner = net("Relu", net("MatMul", rms_norm(net, x, ones(WIDTH)), net.normal(WIDTH, 2 * WIDTH)))
        down = net.normal(2 * WIDTH, WIDTH)
        down[:, 5] = np.float32(peak / 25) * np.abs(down[:, 5]) / np.abs(down[:, 5]).mean()
        x = net("Add", x, net("MatMul", inner, down))
    gains = ones(WIDTH) * 900
    gains[5] = 1
    return _classify(net, rms_norm(net, x, gains))


def _qwen2(net: Net) -> tuple[str, ...]:
    """The first token gets activations of 1.5e4 after the first layer, which stay in the residual stream."""
    x = encoder_layer(net, _embed(net), WIDTH)
    table = np.zeros((VOCABULARY, WIDTH), np.float32)
    table[1, 4], table[1, 9] = 15000.0, -6200.0
    x = net("Add", x, net("Gather", table, "ids"))
    for _ in range(2):
        x = net("Add", x, self_attention(net, rms_norm(net, x, ones(WIDTH)), WIDTH))
        x = net("Add", x, swiglu(net, rms_norm(net, x, ones(WIDTH)), WIDTH))
    return _classify(net, rms_norm(net, x, ones(WIDTH)))


def _group_norm(net: Net, x: str, channels: int) -> str:
    """As PyTorch exports it below opset 21."""
    groups = net.reshape(x, 0, 4, -1)
    normed = net("InstanceNormalization", groups, ones(4), zeros(4), epsilon=1e-6)
    whole = net("Reshape", normed, net("Shape", x))
    gain = np.abs(net.normal(channels, 1, 1, scale=1.0)) + np.float32(0.5)
    return net("Add", net("Mul", whole, gain), net.normal(channels, 1, 1, scale=0.1))


def _conv(net: Net, x: str, before: int, after: int, size: float = 1.0) -> str:
    weight = net.normal(after, before, 3, 3) * np.float32(size)
    return net("Conv", x, weight, net.normal(after, scale=0.1 * size), pads=[1, 1, 1, 1], kernel_shape=[3, 3])


def _vae(net: Net) -> tuple[str, ...]:
    """Convolutions between GroupNorms pass 65,504."""
    x = _conv(net, "x", 3, 8)
    for size in (300.0, 30000.0):
        inner = _conv(net, silu(net, _group_norm(net, x, 8)), 8, 8)
        x = net("Add", x, _conv(net, silu(net, _group_norm(net, inner, 8)), 8, 8, size))
    return (_conv(net, silu(net, _group_norm(net, x, 8)), 8, 3),)


def _z_image(net: Net) -> tuple[str, ...]:
    """A product stores 63,000, and its partial sums pass 65,504 on the way."""
    x = rms_norm(net, encoder_layer(net, "x", WIDTH), ones(WIDTH))
    inner = silu(net, net("MatMul", x, net.normal(WIDTH, 2 * WIDTH)))
    product = net("Mul", inner, net("MatMul", x, net.normal(WIDTH, 2 * WIDTH) * 100))
    wide = net("Concat", product, net("Add", product, 50.0), axis=-1)
    down = net.normal(2 * WIDTH, WIDTH, scale=50.0)
    x = net("Add", "x", net("MatMul", wide, np.concatenate([down, -0.8 * down])))
    return _classify(net, rms_norm(net, x, ones(WIDTH)))


def _detr(net: Net) -> tuple[str, ...]:
    """Boxes through inverse sigmoids with epsilon 1e-5 from layer to layer, and as coordinates of GridSample."""
    queries = net("Add", net.normal(1, 6, WIDTH, scale=1.0), net.reduce("ReduceMean", "x", [1]))
    reference = net("Sigmoid", linear(net, queries, net.normal(WIDTH, 2) * 2))
    memory = net.reshape(net("Transpose", "x", perm=[0, 2, 1]), 0, WIDTH, 3, 4)
    for _ in range(2):
        grid = net.reshape(net("Sub", net("Mul", reference, 2.0), 1.0), 0, 1, 6, 2)
        sampled = net("GridSample", memory, grid, mode="bilinear", padding_mode="zeros", align_corners=0)
        sampled = net("Transpose", net.reshape(sampled, 0, WIDTH, 6), perm=[0, 2, 1])
        queries = net("Add", queries, linear(net, sampled, net.normal(WIDTH, WIDTH)))
        queries = net("Add", queries, self_attention(net, layer_norm(net, queries, ones(WIDTH), zeros(WIDTH)), WIDTH))
        bounded = net("Clip", reference, 0.0, 1.0)
        odds = net("Div", net("Clip", bounded, 1e-5), net("Clip", net("Sub", 1.0, bounded), 1e-5))
        change = linear(net, net("Relu", linear(net, queries, net.normal(WIDTH, WIDTH))), net.normal(WIDTH, 2))
        reference = net("Sigmoid", net("Add", net("Log", odds), change))
    return (reference, linear(net, queries, net.normal(WIDTH, 5)))


def _pitch(random: Random) -> Feeds:
    f0 = np.repeat(random.uniform(90, 400, (1, 16, 1)), 32, axis=1).astype(np.float32)
    return {"f0": f0}


def _vocoder(net: Net) -> tuple[str, ...]:
    """The sine of 2 pi CumSum(f0 / rate) of harmonics, a Loop over frames, and convolutions with x + sin^2(ax)/a."""
    harmonics = net("Mul", "f0", np.arange(1, 5, dtype=np.float32))
    phase = net("CumSum", net("Div", harmonics, 24000.0), np.array(1, np.int64))
    wave = net("Sin", net("Mul", phase, 2 * np.pi))
    source = net("Tanh", linear(net, wave, net.normal(4, 1)))
    frames = net.reshape(source, 1, 16, 32)
    encoded = net("Tanh", linear(net, frames, net.normal(32, WIDTH), zeros(WIDTH)))
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Gather", [encoded, "step"], ["frame"], axis=1),
            helper.make_node("MatMul", ["state", net.store(net.normal(WIDTH, WIDTH))], ["moved"]),
            helper.make_node("Add", ["moved", "frame"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Identity", ["next"], ["kept"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, WIDTH]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [1, WIDTH]),
            helper.make_tensor_value_info("kept", TensorProto.FLOAT, [1, WIDTH]),
        ],
    )
    loop = net("Loop", np.array(16), np.array(True), np.zeros((1, WIDTH), np.float32), count=2, body=body)
    x = net.reshape(f"{loop}.1", 1, WIDTH, 16)
    for _ in range(3):
        inner = x
        for _ in range(2):
            alpha = np.abs(net.normal(1, WIDTH, 1, scale=1.0)) + np.float32(0.2)
            sine = net("Pow", net("Sin", net("Mul", inner, alpha)), 2.0)
            inner = net("Add", inner, net("Mul", sine, 1 / alpha))
            weight = net.normal(WIDTH, WIDTH, 3, scale=0.1)
            inner = net("Conv", inner, weight, net.normal(WIDTH, scale=0.1), pads=[1, 1], kernel_shape=[3])
        x = net("Add", x, inner)
    return (net("Tanh", net("Conv", x, net.normal(32, WIDTH, 3, scale=0.1), pads=[1, 1], kernel_shape=[3])), source)


def _mamba(net: Net) -> tuple[str, ...]:
    """A state that decays by exp(softplus(dt) A), A to -16, over steps of a Scan."""
    x = layer_norm(net, encoder_layer(net, "x", WIDTH), ones(WIDTH), zeros(WIDTH))
    step = net("Softplus", linear(net, x, net.normal(WIDTH, WIDTH), np.full(WIDTH, -4.0, np.float32)))
    rates = -np.exp(np.log(np.arange(1, 9, dtype=np.float32)) * 1.33)
    decay = net("Exp", net("Mul", net("Unsqueeze", step, np.array([-1])), rates))
    reads, writes = (net("Unsqueeze", linear(net, x, net.normal(WIDTH, 8)), np.array([2])) for _ in range(2))
    change = net("Mul", net("Unsqueeze", net("Mul", step, x), np.array([-1])), writes)
    shape = [2, WIDTH, 8]
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "a"], ["kept"]),
            helper.make_node("Add", ["kept", "b"], ["next"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("state", "a", "b")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("next", "row")],
    )
    scan = net(
        "Scan", np.zeros(shape, np.float32), decay, change, count=2, body=body, num_scan_inputs=2,
        scan_input_axes=[1, 1], scan_output_axes=[1],
    )  # fmt: skip
    mixed = net.reduce("ReduceSum", net("Mul", f"{scan}.1", reads), [-1], keepdims=0)
    return _classify(net, net("Mul", net("Add", mixed, x), silu(net, linear(net, x, net.normal(WIDTH, WIDTH)))))


def _deltanet(net: Net) -> tuple[str, ...]:
    """Linear attention in a chunk: logits decay by exp of differences of a cumulated -exp(A) softplus(a)."""
    x = rms_norm(net, encoder_layer(net, "x", WIDTH), ones(WIDTH))
    query, key = (rms_norm(net, linear(net, x, net.normal(WIDTH, WIDTH)), ones(WIDTH)) for _ in range(2))
    gate = net("Mul", net("Softplus", linear(net, x, net.normal(WIDTH, 1), np.array([1.0], np.float32))), -8.0)
    total = net("CumSum", gate, np.array(1, np.int64))
    apart = net("Sub", total, net("Transpose", total, perm=[0, 2, 1]))
    causal = np.tril(np.ones((LENGTH, LENGTH), np.float32))
    decay = net("Mul", net("Exp", net("Mul", apart, causal)), causal)
    logits = net("MatMul", query, net("Transpose", key, perm=[0, 2, 1]))
    value = linear(net, x, net.normal(WIDTH, WIDTH))
    mixed = net("MatMul", net("Mul", net("Mul", logits, decay), WIDTH**-0.5), value)
    return _classify(net, rms_norm(net, mixed, ones(WIDTH)))


def _yolo(net: Net) -> tuple[str, ...]:
    """Boxes of 0 to 640 beside scores of 0 to 1 in one Concat, boxes by a softmax over 16 bins (DFL)."""
    x = silu(net, _conv(net, "x", 3, 16))
    for _ in range(2):
        x = net("Add", x, silu(net, _conv(net, silu(net, _conv(net, x, 16, 16)), 16, 16)))
    bins = net("Transpose", net.reshape(net("Mul", _conv(net, x, 16, 64), 3.0), 1, 4, 16, 256), perm=[0, 2, 1, 3])
    weight = np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1)
    sides = net.reshape(net("Conv", net("Softmax", bins, axis=1), weight), 1, 4, 256)
    near = net("Slice", sides, np.array([0]), np.array([2]), np.array([1]))
    far = net("Slice", sides, np.array([2]), np.array([4]), np.array([1]))
    rows, columns = np.divmod(np.arange(256), 16)
    anchors = (np.stack([columns, rows])[None] + 0.5).astype(np.float32)
    first, last = net("Sub", anchors, near), net("Add", far, anchors)
    centre, size = net("Div", net("Add", first, last), 2.0), net("Sub", last, first)
    boxes = net("Mul", net("Concat", centre, size, axis=1), 40.0)
    scores = net("Sigmoid", net.reshape(net("Sub", _conv(net, x, 16, 8), 3.0), 1, 8, 256))
    return (net("Concat", boxes, scores, axis=1),)


def _points(random: Random) -> Feeds:
    return {"x": random.standard_normal((1, LENGTH, WIDTH)).astype(np.float32)} | {
        "points": random.standard_normal((1, 65536, 8)).astype(np.float32)
    }


def _ptv3(net: Net) -> tuple[str, ...]:
    """A softmax over 65,536 nearly equal keys: its normalizer passes 65,504, its probabilities are subnormal."""
    x = encoder_layer(net, "x", WIDTH)
    query = net(
        "Transpose", net.reshape(linear(net, x, net.normal(WIDTH, 8) * 0.2), 1, LENGTH, 1, 8), perm=[0, 2, 1, 3]
    )
    key, value = (heads_of(net, "points", net.normal(8, 8) * scale, heads=1) for scale in (0.2, 2))
    value = net("Add", value, net.normal(8, scale=3.0))
    mixed = linear(net, attend(net, query, key, value, scale=8**-0.5), net.normal(8, WIDTH))
    return _classify(net, layer_norm(net, net("Add", x, mixed), ones(WIDTH), zeros(WIDTH)))


def _bright(random: Random) -> Feeds:
    return {"x": random.uniform(10, 30, (1, 3, 64, 64)).astype(np.float32)}


def _nafnet(net: Net) -> tuple[str, ...]:
    """Channels pooled by a mean of large values over 64 x 64: the sum passes 65,504, the mean is ordinary."""
    x = _conv(net, "x", 3, 8)
    gates = [net("Slice", _conv(net, x, 8, 16), np.array([at]), np.array([at + 8]), np.array([1])) for at in (0, 8)]
    product = net("Mul", *gates)
    pooled = net("GlobalAveragePool", product)
    weight = net.normal(8, 8, 1, 1) * np.float32(0.02)
    attended = net("Mul", product, net("Conv", pooled, weight))
    return (net("Add", "x", net("Conv", net("Mul", attended, 0.01), net.normal(3, 8, 1, 1))),)


def _ppocr(net: Net) -> tuple[str, ...]:
    """HardSigmoid behind GlobalAveragePool of 64 x 64 (squeeze and excite), on features of a few hundred."""
    x = net("HardSwish", _conv(net, "x", 3, 8, 10.0))
    for _ in range(2):
        pooled = net("GlobalAveragePool", x)
        squeezed = net("Relu", net("Conv", pooled, net.normal(4, 8, 1, 1) * np.float32(0.02)))
        gate = net("HardSigmoid", net("Conv", squeezed, net.normal(8, 4, 1, 1)), alpha=1 / 6, beta=0.5)
        x = net("HardSwish", _conv(net, net("Mul", x, gate), 8, 8, 2.0))
    return (net("Conv", x, net.normal(2, 8, 1, 1)),)


def _bert_mask(net: Net) -> tuple[str, ...]:
    """A mask of (1 - mask) x -3.4e38, added to the logits."""
    mask = net("Cast", net("Unsqueeze", "mask", np.array([1, 2])), to=TensorProto.FLOAT)
    mask = net("Mul", net("Sub", 1.0, mask), float(np.finfo(np.float32).min))
    x = _embed(net)
    for _ in range(2):
        x = encoder_layer(net, x, WIDTH, mask)
    return _classify(net, x)


def _gpt_mask(net: Net) -> tuple[str, ...]:
    """A causal mask by Where of -1e9, to which a padding mask of -1e9 is added."""
    causal = np.tril(np.ones((1, 1, LENGTH, LENGTH), bool))
    padding = net("Cast", net("Unsqueeze", "mask", np.array([1, 2])), to=TensorProto.FLOAT)
    padding = net("Mul", net("Sub", 1.0, padding), -1e9)
    mask = net("Add", net("Where", causal, 0.0, -1e9), padding)
    x = _embed(net)
    for _ in range(2):
        x = encoder_layer(net, x, WIDTH, mask)
    return _classify(net, x)


def _gate(net: Net) -> tuple[str, ...]:
    """A SwiGLU whose gate passes 65,504 before its sigmoid."""
    x = encoder_layer(net, "x", WIDTH)
    forward = swiglu(net, rms_norm(net, x, ones(WIDTH)), WIDTH, gate=40000.0, down=1 / 40000)
    return _classify(net, rms_norm(net, net("Add", x, forward), ones(WIDTH)))


def _labelled(random: Random) -> Feeds:
    return {
        "x": random.standard_normal((1, TOKENS, WIDTH)).astype(np.float32),
        "labels": random.integers(0, VOCABULARY, (1, TOKENS, 1)),
    }


def _loss(net: Net) -> tuple[str, ...]:
    """A log-softmax loss summed over 16,384 tokens, past 65,504, before it is divided by their number."""
    x = layer_norm(net, gelu(net, linear(net, "x", net.normal(WIDTH, WIDTH))), ones(WIDTH), zeros(WIDTH))
    logits = linear(net, x, net.normal(WIDTH, VOCABULARY) * np.float32(2))
    chosen = net("GatherElements", net("LogSoftmax", logits, axis=-1), "labels", axis=-1)
    total = net.reduce("ReduceSum", net("Neg", chosen), [0, 1, 2], keepdims=0)
    return (net("Div", total, float(TOKENS)), logits)


def _unit_rows(random: Random) -> Feeds:
    x = random.standard_normal((4, LENGTH, WIDTH)).astype(np.float32)
    x[1] *= 1e-4
    x[3] = 0
    return {"x": x}


def _embedding(net: Net) -> tuple[str, ...]:
    """An embedding divided by its norm, at least 1e-12; one row is zero, another tiny."""
    x = net.reduce("ReduceMean", net("Tanh", linear(net, "x", net.normal(WIDTH, WIDTH))), [1], keepdims=0)
    x = linear(net, x, net.normal(WIDTH, WIDTH))
    norm = net("Clip", net("ReduceL2", x, axes=[-1], keepdims=1), 1e-12)
    unit = net("Div", x, net("Expand", norm, net("Shape", x)))
    return (unit, net("MatMul", unit, net.normal(WIDTH, 16)))


def _loud_logits(net: Net) -> tuple[str, ...]:
    """Attention logits of the first token with itself pass 65,504 before they are scaled (Stable Diffusion 2.1)."""
    x = encoder_layer(net, _embed(net), WIDTH)
    normed = layer_norm(net, x, ones(WIDTH), zeros(WIDTH))
    loud = np.zeros((VOCABULARY, 1, WIDTH // 2), np.float32)
    loud[1, :, 0] = 300.0
    alone = ones(WIDTH)
    alone[[0, WIDTH // 2]] = 0  # what makes the first token loud is zero in all others
    sides = []
    for _ in range(2):
        side = heads_of(net, normed, net.normal(WIDTH, WIDTH) * alone)
        sides.append(net("Add", side, net("Transpose", net("Gather", loud, "ids"), perm=[0, 2, 1, 3])))
    (query, key), value = sides, heads_of(net, normed, net.normal(WIDTH, WIDTH))
    mixed = linear(net, attend(net, query, key, value, scale=(WIDTH / 2) ** -0.5), net.normal(WIDTH, WIDTH))
    return _classify(net, layer_norm(net, net("Add", x, mixed), ones(WIDTH), zeros(WIDTH)))


def _positions(random: Random) -> Feeds:
    start = int(random.integers(60000, 130000))
    return _tokens(random) | {"positions": np.arange(start, start + LENGTH)[None].repeat(2, axis=0)}


def _rotate(net: Net, x: str, cosine: str, sine: str) -> str:
    half = WIDTH // 4
    first = net("Slice", x, np.array([0]), np.array([half]), np.array([-1]))
    last = net("Slice", x, np.array([half]), np.array([2 * half]), np.array([-1]))
    turned = net("Concat", net("Neg", last), first, axis=-1)
    return net("Add", net("Mul", x, cosine), net("Mul", turned, sine))


def _rope(net: Net) -> tuple[str, ...]:
    """Rotary positions to 130,000, past FP16, whose angles are turned into sines."""
    frequencies = (1e4 ** -(np.arange(WIDTH // 4) * 4 / WIDTH)).astype(np.float32)[None, None]
    positions = net("Cast", net("Unsqueeze", "positions", np.array([-1])), to=TensorProto.FLOAT)
    angles = net("MatMul", positions, frequencies)
    angles = net("Unsqueeze", net("Concat", angles, angles, axis=-1), np.array([1]))
    cosine, sine = net("Cos", angles), net("Sin", angles)
    x = _embed(net)
    for _ in range(2):
        normed = rms_norm(net, x, ones(WIDTH))
        query, key, value = (heads_of(net, normed, net.normal(WIDTH, WIDTH)) for _ in range(3))
        query, key = _rotate(net, query, cosine, sine), _rotate(net, key, cosine, sine)
        mixed = attend(net, query, key, value, scale=(WIDTH / 2) ** -0.5)
        x = net("Add", x, linear(net, mixed, net.normal(WIDTH, WIDTH)))
        x = net("Add", x, swiglu(net, rms_norm(net, x, ones(WIDTH)), WIDTH))
    return _classify(net, rms_norm(net, x, ones(WIDTH)))


def _timed(random: Random) -> Feeds:
    return _hidden(random) | {"step": random.uniform(0, 1000, (2,)).astype(np.float32)}


def _timestep(net: Net) -> tuple[str, ...]:
    """A diffusion step of 0 to 1,000 as sines and cosines, modulating a transformer's layer."""
    frequencies = np.exp(-np.log(1e4) * np.arange(16) / 16).astype(np.float32)[None]
    angles = net("Mul", net("Unsqueeze", "step", np.array([-1])), frequencies)
    encoded = net("Concat", net("Cos", angles), net("Sin", angles), axis=-1)
    encoded = linear(net, silu(net, linear(net, encoded, net.normal(32, WIDTH))), net.normal(WIDTH, WIDTH))
    factor = net("Add", net("Unsqueeze", linear(net, silu(net, encoded), net.normal(WIDTH, WIDTH)), np.array([1])), 1.0)
    x = net("Mul", layer_norm(net, "x", ones(WIDTH), zeros(WIDTH)), factor)
    return _classify(net, layer_norm(net, encoder_layer(net, x, WIDTH), ones(WIDTH), zeros(WIDTH)))


def _sound(random: Random) -> Feeds:
    loudness = np.exp(random.uniform(-6, 1, (1, 16, 1)))
    return {"frames": (random.standard_normal((1, 16, 64)) * loudness).astype(np.float32)}


def _log_mel(net: Net) -> tuple[str, ...]:
    """A power spectrum of 1e-6 to 1e5, at least 1e-10, through a logarithm into an encoder."""
    angles = 2 * np.pi * np.outer(np.arange(64), np.arange(33)) / 64
    window = np.hanning(64)[:, None]
    real, imaginary = (net("MatMul", "frames", 12 * window * wave(angles)) for wave in (np.cos, np.sin))
    power = net("Add", net("Pow", real, 2.0), net("Pow", imaginary, 2.0))
    mel = net("MatMul", power, np.abs(net.normal(33, WIDTH)) * 0.1)
    decibels = net("Div", net("Log", net("Clip", mel, 1e-10)), float(np.log(10)))
    x = net("Div", net("Add", net("Max", decibels, net("Sub", net("ReduceMax", decibels, keepdims=0), 8.0)), 4.0), 4.0)
    for _ in range(2):
        x = encoder_layer(net, x, WIDTH)
    return _classify(net, x)


ROWS: Mapping[str, Row] = {
    "whisper: LayerNorm of 795": Row(14, _hidden, _whisper),
    "gemma: post-norm gains": Row(18, _tokens, _gemma),
    "gpt-oss: residual past 65,504": Row(18, _tokens, _gpt_oss),
    "qwen2.5-vl: down_proj": Row(17, _hidden, _qwen_vl),
    "t5: wo": Row(13, _tokens, _t5),
    "qwen2: massive activations": Row(17, _tokens, _qwen2),
    "sdxl: VAE": Row(17, _image, _vae),
    "z-image: partial sums": Row(18, _hidden, _z_image),
    "detr: inverse sigmoid": Row(16, _hidden, _detr),
    "kokoro: phase, Loop": Row(17, _pitch, _vocoder),
    "mamba: state": Row(17, _hidden, _mamba),
    "deltanet: decay": Row(18, _hidden, _deltanet),
    "yolo: boxes and scores": Row(17, _image, _yolo),
    "ptv3: 65,536 keys": Row(17, _points, _ptv3),
    "nafnet: pooled channels": Row(17, _bright, _nafnet),
    "pp-ocr: HardSigmoid": Row(14, _bright, _ppocr),
    "bert: mask of -3.4e38": Row(14, _masked_tokens, _bert_mask),
    "gpt2: masks of -1e9": Row(13, _masked_tokens, _gpt_mask),
    "swiglu: gate": Row(18, _hidden, _gate),
    "loss: log-softmax": Row(17, _labelled, _loss),
    "embedding: epsilon 1e-12": Row(14, _unit_rows, _embedding),
    "sd 2.1: attention logits": Row(17, _tokens, _loud_logits),
    "rope: long positions": Row(18, _positions, _rope),
    "diffusion: timestep": Row(17, _timed, _timestep),
    "whisper: log-mel": Row(17, _sound, _log_mel),
}
