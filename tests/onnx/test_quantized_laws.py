"""Laws of quantized forms over random models: what is asked for comes out valid, and computes just that."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnx.checker
import onnxruntime
import pytest
from onnx import helper
from quantized_cases import Q8, open_model
from random_models import random_feeds, random_model
from sweeps import swept

from mezzo.contracts.plans import Edit, Quantize, Rewire
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Use
from mezzo.onnx.files.quantized_payloads import payload_of
from mezzo.onnx.read.reading import own

_Array = np.ndarray


def random_quantization(rng: random.Random, shape: Sequence[int | None] | None) -> Quantization:
    """Parameters that fit a shape; a scale for each slice where a length is known, by chance."""
    dtype = rng.choice([DType.INT8, DType.UINT8])
    known = [axis for axis, size in enumerate(shape or ()) if size]
    axis = rng.choice(known) if known and rng.random() < 0.4 else None
    count = 1 if axis is None or shape is None else shape[axis] or 1
    low = -128 if dtype is DType.INT8 else 0
    scales = tuple(float(np.float32(2 ** rng.uniform(-9, 0))) for _ in range(count))
    return Quantization(
        dtype=dtype, scales=scales, zero_points=tuple(low + rng.randrange(256) for _ in range(count)), axis=axis
    )


def random_edits(graph: Graph, rng: random.Random, *, everywhere: bool) -> list[Edit]:
    """Quantize some of the values, for some of those who read them; in all scopes, or for the main graph's nodes."""
    edits: list[Edit] = []
    shared = {name for name, count in Counter(value.name for value in graph.values).items() if count > 1}
    for number, value in enumerate(graph.values):
        producer = graph.nodes[value.producer]
        is_held = value.dtype is HIGH and value.is_castable and (everywhere or value.scope == 0)
        if not is_held or producer.kind is Kind.CAST or rng.random() < 0.4:
            continue
        has_axes = value.name not in shared and (rng.random() < 0.2 or _is_constant(graph, number))
        how = random_quantization(rng, graph.shapes.get(number) if has_axes else None)
        can_take_over = producer.kind is Kind.OP and number in producer.outputs and value.name != ""
        readers = [use for use in graph.uses[number] if _may_read(graph, use, everywhere=everywhere)]
        readers = [use for use in readers if rng.random() < 0.7]
        if can_take_over and rng.random() < 0.4:
            edits.append(Quantize(number, how, takes_over=True))
        elif readers:
            edits.append(Quantize(number, how, takes_over=False))
            edits += [Rewire(*use, number, Q8) for use in readers]
    # As `lower` does: who reads through a Cast that changes nothing is told what to read in its place.
    told = {Use(edit.node, edit.operand) for edit in edits if isinstance(edit, Rewire)}
    for use in sorted(graph.aliased - told):
        value = graph.nodes[use.node].inputs[use.operand]
        assert value is not None, "what is read through a Cast is there"
        edits.append(Rewire(*use, value, HIGH))
    return edits


def _may_read(graph: Graph, use: Use, *, everywhere: bool) -> bool:
    node = graph.nodes[use.node]
    is_group = node.kind is Kind.OP and node.signature.inputs[use.operand] is Role.GROUP
    return is_group and Q8 in node.signature.legal and (everywhere or node.scope == 0)


def quantized(
    seed: int, *, everywhere: bool
) -> tuple[onnx.ModelProto, onnx.ModelProto, Graph, list[Edit], list[tuple[onnx.NodeProto, int | None]]]:
    """A random model, what edits make of it, its graph, the edits, and the model's nodes with their ids."""
    rng = random.Random(seed)
    source = random_model(rng, rng.randint(3, 12))
    model = open_model(source)
    reading = model.read(Q8)
    graph, handles = reading.graph, own(reading).handles
    edits = random_edits(graph, rng, everywhere=everywhere)
    ids = {id(proto): number for number, proto in enumerate(handles.protos) if proto is not None}
    nodes = [(_copy(proto), ids.get(id(proto))) for proto in handles.model.graph.node]
    before = source.SerializeToString(deterministic=True)
    result = model.apply(reading, edits)
    fault = model.fault(graph, result)
    assert fault is None, f"seed {seed}: {fault}"
    assert source.SerializeToString(deterministic=True) == before, f"seed {seed}: the source was changed"
    again = model.read(Q8)
    assert model.apply(again, edits).SerializeToString(deterministic=True) == result.SerializeToString(
        deterministic=True
    ), f"seed {seed}: two runs differ"
    return source, model.materialize(result), graph, edits, nodes


def _copy(proto: onnx.NodeProto) -> onnx.NodeProto:
    return onnx.NodeProto.FromString(proto.SerializeToString())


def session(model: onnx.ModelProto, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level, options.log_severity_level = level, 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


_OFF = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
_ALL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL


def _owners(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        owner = waiting.pop()
        yield owner
        waiting += [a.g for node in owner.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]


@pytest.mark.parametrize("seed", range(swept(100)))
def test_any_forms_come_out_valid_and_load(seed: int) -> None:
    source, result, _, edits, _ = quantized(seed, everywhere=True)
    onnx.checker.check_model(result, full_check=True)
    for owner in _owners(result):
        made = [name for node in owner.node for name in node.output if name]
        if isinstance(owner, onnx.GraphProto):
            made += [tensor.name for tensor in owner.initializer]
        assert len(set(made)) == len(made), f"seed {seed}: names are made twice"
        titles = [node.name for node in owner.node if node.name and node.op_type.endswith("QuantizeLinear")]
        assert len(set(titles)) == len(titles), f"seed {seed}: quantizers share names"
    asked = sum(isinstance(edit, Quantize) for edit in edits)
    names = Counter(node.op_type for owner in _owners(result) for node in owner.node)
    before = Counter(node.op_type for owner in _owners(source) for node in owner.node)
    if not result.functions:  # calls that come out alike share a function
        assert names["DequantizeLinear"] - before["DequantizeLinear"] == asked, f"seed {seed}"
    assert [p.name for p in result.graph.output] == [p.name for p in source.graph.output]
    if _loads(source):
        session(result, _OFF)


def _is_constant(graph: Graph, value: int) -> bool:
    return graph.nodes[graph.values[value].producer].kind is Kind.SOURCE


def _has_low(model: onnx.ModelProto) -> bool:
    lows = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    casts = [node for owner in _owners(model) for node in owner.node if node.op_type == "Cast"]
    ports = [*model.graph.input, *model.graph.output]
    return any(node.attribute[0].i in lows for node in casts) or any(
        p.type.tensor_type.elem_type in lows for p in ports
    )


def _loads(model: onnx.ModelProto) -> bool:
    try:
        session(model, _OFF)
    except Exception:  # noqa: BLE001  ONNX Runtime raises what it likes
        return False
    return True


def _info(name: str, held: object) -> onnx.ValueInfoProto:
    if isinstance(held, list):
        element = helper.np_dtype_to_tensor_dtype(held[0].dtype) if held else onnx.TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, element, None)
    assert isinstance(held, _Array)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(held.dtype), held.shape)


def _reads(node: onnx.NodeProto) -> list[str]:
    """What a node reads: its operands, then what its bodies may capture."""
    bodies = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    inner = [name for body in bodies for held in body.node for name in _reads(held)]
    inner += [info.name for body in bodies for info in body.output]
    return [name for name in dict.fromkeys([*node.input, *inner]) if name]


def fake(values: _Array, how: Quantization) -> _Array:
    """Quantize and dequantize in numpy."""
    integers = payload_of(how, values.shape, "x").quantize(values.reshape(-1)).reshape(values.shape)
    shape = [1] * values.ndim
    if how.axis is not None:
        shape[how.axis] = -1
    scales, zeros = np.array(how.scales, np.float32), np.array(how.zero_points, np.int32)
    if how.axis is None:
        return np.asarray((integers.astype(np.int32) - zeros[0]).astype(np.float32) * scales[0])
    return (integers.astype(np.int32) - zeros.reshape(shape)).astype(np.float32) * scales.reshape(shape)


def interpret(
    source: onnx.ModelProto, nodes: Sequence[tuple[onnx.NodeProto, int | None]], graph: Graph, edits: Sequence[Edit],
    feeds: Mapping[str, _Array],
) -> dict[str, object]:  # fmt: skip
    """Compute a model node by node; whoever shall read a quantized form is handed one that numpy has made."""
    over = {graph.values[e.value].name: e.how for e in edits if isinstance(e, Quantize) and e.takes_over}
    hows = {e.value: e.how for e in edits if isinstance(e, Quantize)}
    reads = {Use(e.node, e.operand): e.value for e in edits if isinstance(e, Rewire) and e.dtype is Q8}
    held: dict[str, object] = {t.name: onnx.numpy_helper.to_array(t) for t in source.graph.initializer}
    held |= dict(feeds)
    for proto, number in nodes:
        alone = _copy(proto)
        given = {name: held[name] for name in _reads(proto) if name in held}
        for operand in range(len(proto.input)):
            value = None if number is None else reads.get(Use(number, operand))
            if value is not None:
                form = held[graph.values[value].name]
                assert isinstance(form, _Array)
                alone.input[operand] = f"form {operand}"
                given[alone.input[operand]] = fake(form, hows[value])
        made = [name for name in alone.output if name]
        body = helper.make_graph(
            [alone], "one", [_info(*item) for item in given.items()],
            [helper.make_empty_tensor_value_info(name) for name in made],
        )  # fmt: skip
        one = helper.make_model(
            body, opset_imports=source.opset_import, functions=source.functions, ir_version=source.ir_version
        )
        for name, result in zip(made, session(one, _OFF).run(made, given), strict=True):
            value = result if isinstance(result, list) else np.asarray(result)
            how = over.get(name)
            held[name] = fake(value, how) if how is not None and isinstance(value, _Array) else value
    return held


@pytest.mark.parametrize("seed", range(1000, 1000 + swept(90)))
def test_model_computes_what_numpy_does_with_the_same_forms(seed: int) -> None:
    """Exactly: every node is computed by the same kernel, and what is quantized is so bit for bit."""
    source, result, graph, edits, nodes = quantized(seed, everywhere=False)
    # ONNX Runtime computes FP16 in FP32, and how often it rounds hangs on the graph around.
    if not _loads(source) or _has_low(source):
        return
    feeds = random_feeds(source, random.Random(seed))
    names = [port.name for port in source.graph.output]
    wanted = interpret(source, nodes, graph, edits, feeds)
    found = session(result, _OFF).run(names, feeds)
    for name, got in zip(names, found, strict=True):
        np.testing.assert_array_equal(got, wanted[name], f"seed {seed}: {name}")
