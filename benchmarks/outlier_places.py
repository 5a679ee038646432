"""Hides outliers in an FP32 ONNX model: a few channels grow 50 to 1,000 times, and what reads them is scaled down.

  ffn        channels of a linear operator or convolution are scaled up, and the weights that read them down by as much
  residual   one bias adds a large number to a channel of the residual stream and takes it from another; the gains of
             the normalizations after it are raised to what those numbers take away
  attention  the queries of one layer are scaled up and its keys down by as much

FP32 computes each about as well as before. Everything is drawn from one seed per model.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.onnx.run.session import native_session

Feeds = Mapping[str, np.ndarray]
LINEAR = ("MatMul", "Gemm", "Conv")
_ELEMENTWISE = (
    "Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Relu", "Gelu", "Erf", "Tanh", "Sigmoid", "Identity", "Clip",
    "HardSwish", "HardSigmoid",
)  # fmt: skip
_PER_CHANNEL = ("MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Pad")
_MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity")
# A layer's own size, the factor of its outliers, and what an outlier adds to the residual stream: drawn between these.
_SIZES, _FACTORS, _STEPS = (1.0, 100.0), (50.0, 1000.0), (500.0, 30000.0)
_CHANNELS = 2
_SHARE_OF_PAIRS = 1 / 3


@dataclass
class Source:
    """A model under change: its constants as arrays, and who makes and reads each value."""

    model: onnx.ModelProto
    random: np.random.Generator
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    maker: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, list[onnx.NodeProto]] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.model = _unshared(self.model)
        graph = self.model.graph
        self.arrays = {tensor.name: numpy_helper.to_array(tensor).copy() for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self.arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            self.maker.update(dict.fromkeys(node.output, node))
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)

    def is_own(self, name: str) -> bool:
        """Whether a constant belongs to one operator alone, holds FP32 and was not changed yet."""
        array = self.arrays.get(name)
        return (
            array is not None
            and array.dtype == np.float32
            and len(self.readers.get(name, ())) == 1
            and name not in self.changed
        )

    def draw(self, bounds: tuple[float, float]) -> float:
        return float(math.exp(self.random.uniform(math.log(bounds[0]), math.log(bounds[1]))))

    def put(self, name: str, array: np.ndarray) -> None:
        self.arrays[name] = array.astype(np.float32)
        self.changed.add(name)

    def finished(self) -> onnx.ModelProto:
        """The model with its arrays as they are now."""
        result = onnx.ModelProto()
        result.CopyFrom(self.model)
        for tensor in result.graph.initializer:
            if tensor.name in self.changed:
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(self.arrays[tensor.name]), tensor.name))
        return result

    def values(self, names: Sequence[str], feeds: Feeds) -> dict[str, np.ndarray]:
        """What some values of the main graph hold now."""
        probe = self.finished()
        del probe.graph.output[:]
        for name in dict.fromkeys(names):
            probe.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
        return native_session(probe).run(dict(feeds))


def _unshared(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which each use of a vector has a vector of its own: exporters share what is equal, such as zeros.

    Weights that are constants of the graph become initializers.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for node in [node for node in result.graph.node if node.op_type == "Constant"]:
        if node.attribute[0].name == "value" and len(node.attribute[0].t.dims) > 0:
            result.graph.initializer.add().CopyFrom(node.attribute[0].t)
            result.graph.initializer[-1].name = node.output[0]
            result.graph.node.remove(node)
    constants = {tensor.name for tensor in result.graph.initializer}
    names = {n.output[0]: n.input[0] for n in result.graph.node if n.op_type == "Identity" and n.input[0] in constants}
    for node in result.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    vectors = {tensor.name: tensor for tensor in result.graph.initializer if len(tensor.dims) == 1}
    used: set[str] = set()
    for number, node in enumerate(result.graph.node):
        for operand, name in enumerate(node.input):
            if name in vectors and name in used and vectors[name].data_type == onnx.TensorProto.FLOAT:
                copy = result.graph.initializer.add()
                copy.CopyFrom(vectors[name])
                copy.name = node.input[operand] = f"{name}_{number}_{operand}"
            used.add(name)
    return result


def hide_outliers(model: onnx.ModelProto, feeds: Feeds, seed: int) -> tuple[onnx.ModelProto, list[str]]:
    """Change a copy of a model, and say where: "place: node". Empty where the model has no such place."""
    source = Source(model, np.random.default_rng(seed))
    places = []
    pairs = list(_pairs(source))
    count = math.ceil(len(pairs) * _SHARE_OF_PAIRS)
    for at in sorted(source.random.choice(len(pairs), count, replace=False).tolist()) if pairs else ():
        if _put_ffn(source, pairs[at], feeds):
            places.append(f"ffn: {pairs[at].up.name}")
    heads = list(_heads(source))
    if heads:
        query, key, name = heads[int(source.random.integers(len(heads)))]
        factor = source.draw(_FACTORS)
        for (weight, bias), by in ((query, factor), (key, 1 / factor)):
            source.put(weight, source.arrays[weight] * by)
            if bias is not None:
                source.put(bias, source.arrays[bias] * by)
        places.append(f"attention: {name}")
    place = _put_residual(source, feeds)
    return source.finished(), [*places, *([place] if place else [])]


# -- ffn ------------------------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """An operator with weights, and the operators with weights that alone read its channels."""

    up: onnx.NodeProto
    axis: int  # of the channels in its result
    bias: str | None
    down: list[onnx.NodeProto]
    groups: list[onnx.NodeProto]


def _pairs(source: Source) -> Iterator[Pair]:
    for node in source.model.graph.node:
        if node.op_type not in LINEAR or not source.is_own(node.input[1]) or _group(node) != 1:
            continue
        pair = Pair(node, 1 if node.op_type == "Conv" else -1, _bias(source, node), [], [])
        if _follow(source, pair) and pair.down and all(source.is_own(end.input[1]) for end in pair.down):
            yield pair


def _follow(source: Source, pair: Pair) -> bool:
    """Collect the readers of a pair's channels; False where something mixes them or lets them out."""
    outputs = {port.name for port in source.model.graph.output}
    queue, seen = [pair.up.output[0]], set()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in outputs or not source.readers.get(name):
            return False
        for reader in source.readers[name]:
            if reader.op_type == "Shape":
                continue
            others = [other for other in reader.input if other != name and other not in seen]
            is_conv = pair.axis == 1
            if reader.op_type in LINEAR and reader.input[0] == name:
                if (reader.op_type == "Conv") != is_conv or len(source.arrays.get(reader.input[1], ())) == 0:
                    return False
                if _group(reader) == 1:
                    pair.down.append(reader) if reader not in pair.down else None
                    continue
                if not is_conv or _group(reader) != source.arrays[reader.input[1]].shape[0]:
                    return False
            elif reader.op_type in ("Add", "Sub"):
                if any(other not in source.arrays for other in others):
                    return False
            elif reader.op_type not in _ELEMENTWISE and not (is_conv and reader.op_type in _PER_CHANNEL):
                return False
            queue.append(reader.output[0])
    return True


def _group(node: onnx.NodeProto) -> int:
    return next((a.i for a in node.attribute if a.name == "group"), 1) if node.op_type == "Conv" else 1


def _is_turned(node: onnx.NodeProto) -> bool:
    return any(a.name == "transB" and a.i for a in node.attribute)


def _bias(source: Source, node: onnx.NodeProto) -> str | None:
    """The constant that is added to each channel, in the operator or right behind it."""
    if node.op_type in ("Gemm", "Conv"):
        return node.input[2] if len(node.input) > 2 and source.is_own(node.input[2]) else None
    for reader in source.readers.get(node.output[0], ()):
        others = [name for name in reader.input if name != node.output[0]]
        if reader.op_type == "Add" and others and source.is_own(others[0]) and source.arrays[others[0]].ndim == 1:
            return others[0]
    return None


def _columns(source: Source, node: onnx.NodeProto, is_made: bool) -> np.ndarray:
    """Weights as [channels, ...]: the channels that the operator makes, or those that it reads. A view."""
    weight = source.arrays[node.input[1]]
    if node.op_type == "Conv":
        return weight if is_made else np.moveaxis(weight, 1, 0)
    last = (node.op_type == "Gemm" and _is_turned(node)) != is_made
    return np.moveaxis(weight, -1 if last else -2, 0)


def _put_ffn(source: Source, pair: Pair, feeds: Feeds) -> bool:
    names = [node.input[1] for node in (pair.up, *pair.down)] + ([pair.bias] if pair.bias else [])
    if any(name in source.changed for name in names) or source.arrays[pair.up.input[1]].ndim < 2:
        return False
    held = np.abs(np.moveaxis(source.values([pair.up.output[0]], feeds)[pair.up.output[0]], pair.axis, 0))
    peaks = held.reshape(len(held), -1).max(axis=1)
    size = float(np.sqrt(np.mean(held**2)))
    if not size > 1e-6 or len(peaks) < 4 * _CHANNELS:
        return False
    factors = np.full(len(peaks), source.draw(_SIZES) / size)
    loudest = np.argsort(-peaks)[: len(peaks) // 2]
    factors[source.random.choice(loudest, _CHANNELS, replace=False)] *= source.draw(_FACTORS)
    for node, by in [(pair.up, factors), *((node, 1 / factors) for node in pair.down)]:
        columns = _columns(source, node, node is pair.up)
        if len(columns) != len(factors):
            return False
        columns *= by.reshape(-1, *[1] * (columns.ndim - 1)).astype(np.float32)
        source.changed.add(node.input[1])
    if pair.bias is not None:
        source.put(pair.bias, source.arrays[pair.bias] * factors)
    return True


# -- attention ------------------------------------------------------------------------------------------------------

Linear = tuple[str, str | None]  # the names of a weight and its bias


def _heads(source: Source) -> Iterator[tuple[Linear, Linear, str]]:
    for node in source.model.graph.node:
        if node.op_type == "MatMul" and not any(name in source.arrays for name in node.input):
            operands = list(node.input)
            is_product = any(r.op_type != "MatMul" for r in source.readers.get(node.output[0], ()))
        elif node.op_type == "Attention":
            operands, is_product = list(node.input[:2]), True
        else:
            continue
        linear = [_linear_behind(source, name) for name in operands]
        if is_product and linear[0] and linear[1] and linear[0] != linear[1] and _reaches_softmax(source, node):
            yield linear[0], linear[1], node.name


def _linear_behind(source: Source, name: str) -> Linear | None:
    bias = None
    for _ in range(12):
        node = source.maker.get(name)
        if node is None:
            return None
        if node.op_type in LINEAR:
            return (node.input[1], bias or _bias(source, node)) if source.is_own(node.input[1]) else None
        others = [other for other in node.input if other in source.arrays]
        if node.op_type == "Add" and len(others) == 1:
            bias = others[0] if source.is_own(others[0]) else None
        elif node.op_type not in _MOVING and not (node.op_type in ("Mul", "Div") and others):
            return None
        moved = [other for other in node.input if other not in source.arrays]
        if not moved:
            return None
        name = moved[0]
    return None


def _reaches_softmax(source: Source, node: onnx.NodeProto) -> bool:
    if node.op_type == "Attention":
        return True
    for _ in range(8):
        readers = source.readers.get(node.output[0], [])
        if any(reader.op_type == "Softmax" for reader in readers):
            return True
        if len(readers) != 1 or readers[0].op_type not in (*_ELEMENTWISE, *_MOVING, "Where"):
            return False
        node = readers[0]
    return False


# -- residual -------------------------------------------------------------------------------------------------------


def _gains(source: Source) -> list[tuple[str, str]]:
    """Gains of normalizations in order: the constant, and the value that it scales."""
    found = []
    for node in source.model.graph.node:
        if node.op_type == "LayerNormalization" and source.is_own(node.input[1]):
            found.append((node.input[1], node.output[0]))
        elif node.op_type == "Mul":
            constants = [name for name in node.input if source.is_own(name) and source.arrays[name].ndim == 1]
            others = [name for name in node.input if name not in constants]
            maker = source.maker.get(others[0]) if len(others) == 1 else None
            if len(constants) == 1 and maker is not None and _is_norm_end(source, maker):
                found.append((constants[0], node.output[0]))
    return found


def _is_norm_end(source: Source, node: onnx.NodeProto) -> bool:
    if node.op_type not in ("Div", "Mul"):
        return False
    for name in node.input:
        maker = source.maker.get(name)
        for _ in range(4):
            if maker is None:
                break
            if maker.op_type == "ReduceMean":
                return True
            maker = source.maker.get(maker.input[0]) if maker.input else None
    return False


def _put_residual(source: Source, feeds: Feeds) -> str | None:
    """Add to two channels where a bias meets the residual stream, and mend the gains behind."""
    gains = _gains(source)
    width = source.arrays[gains[0][0]].size if gains else 0
    starts = [
        (bias, node)
        for node in source.model.graph.node
        if node.op_type in ("MatMul", "Gemm")
        and (bias := _bias(source, node)) is not None
        and source.arrays[bias].size == width
        and _joins(source, node, bias)
    ]
    if not starts or width < 8:
        return None
    bias, node = starts[int(source.random.integers(len(starts)))]
    outputs = [port.name for port in source.model.graph.output]
    names = [value for _, value in gains]
    before = source.values(names + outputs, feeds)
    kept = dict(source.arrays), set(source.changed)
    up, down = source.random.choice(width, 2, replace=False)
    step = source.draw(_STEPS)
    moved = source.arrays[bias].copy()
    moved[up] += step
    moved[down] -= step
    source.put(bias, moved)
    for gain, value in gains:
        after = source.values([value], feeds)[value]
        factors = _sizes(before[value]) / np.maximum(_sizes(after), 1e-12)
        if source.arrays[gain].size == factors.size and (np.abs(np.log(np.maximum(factors, 1e-12))) > 0.2).any():
            source.put(gain, source.arrays[gain] * factors)
    after = source.values(outputs, feeds)
    if any(not 0.3 < _size(after[name]) / _size(before[name]) < 3 for name in outputs):
        source.arrays, source.changed = kept  # nothing normalizes the stream before it is an output
        return None
    return f"residual: {node.name}"


def _joins(source: Source, node: onnx.NodeProto, bias: str) -> bool:
    """Whether the result with its bias is added to something that is no constant."""
    name = node.output[0]
    for reader in source.readers.get(name, ()):
        if bias in reader.input:
            name = reader.output[0]
    return any(
        reader.op_type == "Add" and all(other not in source.arrays for other in reader.input)
        for reader in source.readers.get(name, ())
    )


def _sizes(held: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(held.reshape(-1, held.shape[-1]).astype(np.float64) ** 2, axis=0))


def _size(held: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(held, dtype=np.float64)))) + 1e-12
