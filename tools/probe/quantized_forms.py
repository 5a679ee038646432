"""Q/DQ test models with one operator on quantized operands, after an INT8 producer.

Its result is a float output, quantized, or consumed by an INT8 kernel.
"""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.contracts.calibrator import Grid
from mezzo.formats.dtypes import DType, integer_span
from mezzo.onnx.run.runtime_libraries import load_onnxruntime
from mezzo.quantize.arithmetic.arithmetic import STORAGE
from mezzo.quantize.arithmetic.weights import weight_parameters
from mezzo.tables.quantized_kernels import Bias, Storage
from probe.attempts import Feeds
from probe.followers import FOLLOWERS

ASKED, FOLLOWER, QUANTIZE, READER = "asked", "follower", "quantize", "reader"  # prefixes of node names
_IR_VERSION = 10
_SEED = 7
_MOST_CHANNELS = 64
_NUMPY = {DType.INT8: np.int8, DType.UINT8: np.uint8, DType.INT32: np.int32}
_CHANNELS_LAST = frozenset({"Gemm", "LayerNormalization", "MatMul", "Softmax"})
Array: TypeAlias = "np.ndarray[Any, Any]"


class Way(enum.Enum):
    """Use of the result. FLOAT: a float output. QUANTIZED: QuantizeLinear with its own parameters.
    SAME: QuantizeLinear with the first operand's parameters. THROUGH: consumed as floats by an INT8
    kernel. DYNAMIC: a float output of a dynamically quantized matmul or LSTM.
    """

    FLOAT = "float"
    QUANTIZED = "quantized"
    SAME = "same"
    THROUGH = "through"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An operand. `storage` None: it stays in floats. `from_zero`: its data is non-negative."""

    shape: tuple[int, ...]
    storage: Storage | None = None
    is_weight: bool = False
    axis: int | None = None
    from_zero: bool = False

    def __str__(self) -> str:
        if self.storage is None:
            return "float"
        words = [str(self.storage.dtype), *(["symmetric"] if self.storage.is_symmetric else [])]
        words += ["weight"] if self.is_weight else []
        words += [] if self.axis is None else [f"by axis {self.axis}"]
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One operator, the storage of its operands, and the operators after it.

    `constants` are further operands, not quantized. `shares`: all data operands have one range.
    `bias`: the storage of a bias, if any. `into_matmul`: the consumer is a MatMul, not a Conv.
    """

    op: str
    ports: tuple[Port, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[Array, ...] = ()
    followers: tuple[str, ...] = ()
    bias: Bias | None = None
    shares: bool = False
    results: int = 1
    opset: int = 17
    into_matmul: bool = False

    @property
    def channels(self) -> tuple[int, ...]:
        """The shape of a per-channel constant that broadcasts to the result: (C, 1, 1)."""
        shape = self.ports[-1 if self.op == "MatMul" else min(1, len(self.ports) - 1)].shape
        if self.op in _CHANNELS_LAST:
            return (shape[0 if self.attributes.get("transB") else -1],)
        if self.op == "Conv":
            return (shape[0], *(1 for _ in shape[2:]))
        return (shape[1] * int(self.attributes.get("group", 1)), *(1 for _ in shape[2:]))

    @property
    def is_by_last(self) -> bool:
        """Whether producer and consumer are MatMuls (last axis), not convolutions."""
        return self.into_matmul or self.op in _CHANNELS_LAST

    def __str__(self) -> str:
        operands = [" x ".join(map(str, port.shape)) + f" {port}" for port in self.ports]
        if self.bias is not None:
            operands.append(f"bias {self.bias.value}")
        spelled = "".join(f" {name}={value}" for name, value in self.attributes.items())
        shared = ", one range" if self.shares else ""
        reader = " into MatMul" if self.into_matmul else ""
        followers = "".join(f" > {name}" for name in self.followers)
        return f"{self.op}{spelled}({', '.join(operands)}{shared}){followers}{reader} at opset {self.opset}"


@dataclass(frozen=True, slots=True)
class Built:
    """A test model and its feeds."""

    model: onnx.ModelProto
    feeds: Feeds


def build(form: Form, way: Way) -> Built:
    """The model of a form, with quantization parameters from an FP32 run."""
    plain = _Builder(form, {})
    outputs = plain.build(Way.FLOAT, every_value=True)
    ranges = dict(zip(outputs, run_plainly(plain.model(outputs), plain.feeds), strict=True))
    quantized = _Builder(form, ranges)
    return Built(quantized.model(quantized.build(way)), quantized.feeds)


def run_plainly(model: onnx.ModelProto, feeds: Feeds) -> list[Array]:
    """Outputs of a model without graph optimizations, so that Q/DQ operators run as such."""
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, dict(feeds))
    return outputs


class _Builder:
    """Builds the nodes of a form: quantized by the values in `ranges`, or plain without."""

    def __init__(self, form: Form, ranges: Mapping[str, Array]) -> None:
        self.feeds: dict[str, Array] = {}
        self._form, self._ranges = form, ranges
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._numbers = count()
        random = np.random.default_rng(_SEED)
        self._bias_values = random.standard_normal(_MOST_CHANNELS).astype(np.float32)
        self._values = [_draw(random, port) for port in form.ports]

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, "form", self._inputs, ports, self._initializers)
        opsets = [helper.make_opsetid("", self._form.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def build(self, way: Way, every_value: bool = False) -> list[str]:
        """Build the nodes; returns the names of the outputs, or of all values if `every_value`."""
        form = self._form
        scales: list[Array] = []
        names = [self._port(number, port, scales) for number, port in enumerate(form.ports)]
        names += [self._constant(np.array(constant)) for constant in form.constants]
        bias = None if form.bias is None else self._bias(scales)
        if bias is not None and form.op != "MatMul":
            names.append(bias)
        results = [f"{ASKED}.{number}" for number in range(form.results)]
        self._node(form.op, names, results, ASKED, **form.attributes)
        values = [name for name in names if name.startswith("made")] + results
        current = results[0]
        if bias is not None and form.op == "MatMul":
            self._node("Add", [current, bias], [current := f"{FOLLOWER}.bias"], current)
            values.append(current)
        for number, follower in enumerate(form.followers):
            result = f"{FOLLOWER}.{number}"
            for op, inputs, output, attributes in FOLLOWERS[follower](current, result, form.channels):
                operands = [constant if isinstance(constant, str) else self._constant(constant) for constant in inputs]
                self._node(op, operands, [output], output, **attributes)
            current = result
            values.append(current)
        if every_value:
            return values
        return [self._finish(way, current), *(self._finish(way, name) for name in results[1:])]

    def _finish(self, way: Way, name: str) -> str:
        if way is Way.FLOAT or not self._ranges:
            return name
        values = self._ranges[name]
        if way is Way.SAME:
            name = self._pair(name, self._held(0), f"{QUANTIZE}.{name}")[0]
        elif way is Way.QUANTIZED:
            name = self._pair(name, _parameters(values, Storage(DType.UINT8)), f"{QUANTIZE}.{name}")[0]
        read = self._identity(name, values.shape, f"{READER}.{name}", by_last=self._form.is_by_last)
        return self._pair(read, _parameters(values, Storage(DType.UINT8)), f"{QUANTIZE}.{READER}.{name}")[0]

    def _port(self, number: int, port: Port, scales: list[Array]) -> str:
        values, is_quantized = self._values[number], port.storage is not None and bool(self._ranges)
        if port.is_weight:
            if not is_quantized or port.storage is None:
                scales.append(np.ones((), np.float32))
                return self._constant(values)
            scale, zero = scales_of_weight(values, port.storage, port.axis)
            scales.append(scale)
            return self._stored(values, (scale, zero), port.axis, f"weight.{number}")
        name = f"x{number}"
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(port.shape)))
        self.feeds[name] = values
        if port.storage is None or not self._ranges:
            scales.append(np.ones((), np.float32))
        if port.storage is None:
            return name
        # The producer also runs in INT8, as in a fully quantized model.
        if self._ranges:
            name = self._pair(name, _parameters(values, Storage(DType.UINT8)), f"before.{number}")[0]
        value = self._identity(name, port.shape, f"made.{number}", by_last=self._form.is_by_last)
        if not self._ranges:
            return value
        parameters = self._held(number)
        scales.append(parameters[0])
        return self._pair(value, parameters, f"read.{number}")[0]

    def _held(self, number: int) -> tuple[Array, Array]:
        """Scale and zero point of a data operand."""
        port = self._form.ports[number]
        assert port.storage is not None, "who asks for parameters is quantized"
        if not self._form.shares:
            return _parameters(self._values[number], port.storage)
        data = [
            values.ravel() for values, port in zip(self._values, self._form.ports, strict=True) if not port.is_weight
        ]
        return _parameters(np.concatenate(data), port.storage)

    def _identity(self, name: str, shape: tuple[int, ...], output: str, by_last: bool = False) -> str:
        """A Conv or MatMul with the identity, in INT8 if quantized: its output equals its input."""
        if len(shape) < 2:
            return name
        is_conv = len(shape) > 2 and not by_last
        size = shape[1] if is_conv else shape[-1]
        weight = np.eye(size, dtype=np.float32).reshape(
            (size, size, *(1 for _ in shape[2:])) if is_conv else (size, size)
        )
        if self._ranges:
            # Scale 1/127 per channel, so that 1.0 is exact in INT8.
            axis = 0 if is_conv else 1
            parameters = np.full(size, 1 / 127, np.float32), np.zeros(size, np.int8)
            stored = self._stored(weight, parameters, axis, f"{output}.weight")
        else:
            stored = self._constant(weight)
        self._node("Conv" if is_conv else "MatMul", [name, stored], [output], output)
        return output

    def _bias(self, scales: list[Array]) -> str:
        values = self._bias_values[: math.prod(self._form.channels)]
        if self._form.bias is Bias.FLOAT or not self._ranges:
            return self._constant(values)
        scale = np.float32(scales[0]) * scales[1]
        zero = np.zeros(np.shape(scale), np.int32)
        return self._stored(values, (scale, zero), 0 if np.ndim(scale) else None, "bias")

    def _pair(self, name: str, parameters: tuple[Array, Array], output: str) -> tuple[str, Array]:
        """Add QuantizeLinear and DequantizeLinear. Returns the value's name and its scale."""
        scale, zero = (self._constant(parameter) for parameter in parameters)
        self._node("QuantizeLinear", [name, scale, zero], [f"{output}.q"], f"{output}.q")
        self._node("DequantizeLinear", [f"{output}.q", scale, zero], [output], f"{output}.d")
        return output, parameters[0]

    def _stored(self, values: Array, parameters: tuple[Array, Array], axis: int | None, output: str) -> str:
        """Add a quantized constant and its DequantizeLinear; returns `output`, the value's name."""
        scale, zero = parameters
        low, high = np.iinfo(zero.dtype).min, np.iinfo(zero.dtype).max
        if axis is not None:
            along = [1] * values.ndim
            along[axis] = -1
            shaped, offset = scale.reshape(along), zero.reshape(along).astype(np.float64)
        else:
            shaped, offset = scale, zero.astype(np.float64)
        stored = np.clip(np.round(values / shaped) + offset, low, high).astype(zero.dtype)
        attributes = {} if axis is None else {"axis": axis % values.ndim}
        inputs = [self._constant(operand) for operand in (stored, scale, zero)]
        self._node("DequantizeLinear", inputs, [output], output, **attributes)
        return output

    def _constant(self, value: Array) -> str:
        name = f"c{next(self._numbers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, op: str, inputs: list[str], outputs: list[str], name: str, **attributes: Any) -> None:
        self._nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))


def _draw(random: np.random.Generator, port: Port) -> Array:
    values = random.standard_normal(port.shape).astype(np.float32)
    if port.is_weight:
        return values * np.float32(0.3)
    return np.abs(values) if port.from_zero else values


def scales_of_weight(weight: Array, storage: Storage, axis: int | None) -> tuple[Array, Array]:
    """Scale and zero point per tensor, or per slice of `axis`, with which sums hold on CPUs without VNNI."""
    if not storage.is_symmetric:
        return _parameters(weight, storage, axis)
    grid = Grid(dtype=storage.dtype, is_symmetric=True, is_narrow=True)
    how = weight_parameters(weight, grid, None if axis is None else axis % weight.ndim, in_pairs=True)
    scale = np.array(how.scales if axis is not None else how.scales[0], np.float32)
    return scale, np.zeros_like(scale).astype(STORAGE[storage.dtype])


def _parameters(values: Array, storage: Storage, axis: int | None = None) -> tuple[Array, Array]:
    """Scale and zero point per tensor, or per slice of `axis`; ranges include zero."""
    span = integer_span(storage.dtype)
    assert span is not None, "storage is of integers"
    reduced = tuple(dim for dim in range(values.ndim) if axis is not None and dim != axis % values.ndim)
    over = reduced if axis is not None else None
    low, high = np.minimum(values.min(axis=over), 0), np.maximum(values.max(axis=over), 0)
    if storage.is_symmetric:
        scale = (high if span[0] == 0 else np.maximum(-low, high)) / span[1]
        zero = np.zeros_like(scale)
    else:
        scale = (high - low) / (span[1] - span[0])
        zero = np.round(span[0] - low / np.where(scale == 0, 1, scale))
    return np.where(scale == 0, 1, scale).astype(np.float32), zero.astype(_NUMPY[storage.dtype])
