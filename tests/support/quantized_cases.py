"""Cases of quantized forms as text: a model, edits by name, and what the model becomes.

A line of edits is one of these, over names of values and nodes:

    further VALUE TYPE SCALES ZEROS [AXIS]      a further form, numbers separated by commas
    over VALUE TYPE SCALES ZEROS [AXIS]         one that takes over
    read NODE OPERAND VALUE [TYPE]              who reads a form, the quantized one where no type is named
    show OUTPUT VALUE TYPE                      which form a graph output shows
    cast VALUE TYPE, copy VALUE TYPE, retype VALUE TYPE
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import AddCast, AddCopy, Edit, Quantize, Retype, Rewire
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, name_port
from mezzo.plugins import discovery

Q8 = DType.QUANTIZED8


def open_model(source: object) -> Model:
    """Open a model or a path as the verbs do."""
    return discovery.frontend_of(source).open(source, trust_external_paths=False, progress=None)


def values_of(graph: Graph) -> dict[str, int]:
    """Value ids by name; where scopes share one, with the path of the scope before it."""
    paths = [graph.scopes[value.scope].path for value in graph.values]
    names = [f"{path}/{value.name}" if path else value.name for path, value in zip(paths, graph.values, strict=True)]
    return {name: number for number, name in enumerate(names)}


def read_edits(graph: Graph, text: str) -> list[Edit]:
    """The edits of a case."""
    values = values_of(graph)
    return [_READERS[words[0]](graph, values, words[1:]) for line in text.splitlines() if (words := line.split())]


_Words = Sequence[str]
_Reader = Callable[[Graph, Mapping[str, int], _Words], Edit]


def _quantize(values: Mapping[str, int], words: _Words, *, takes_over: bool) -> Quantize:
    name, dtype, scales, zeros, *axis = words
    how = Quantization(
        dtype=DType(dtype),
        scales=tuple(map(float, scales.split(","))),
        zero_points=tuple(map(int, zeros.split(","))),
        axis=int(axis[0]) if axis else None,
    )
    return Quantize(values[name], how, takes_over)


def _read(graph: Graph, values: Mapping[str, int], words: _Words) -> Rewire:
    node, operand, value, *dtype = words
    return Rewire(graph.by_name[node], int(operand), values[value], DType(dtype[0]) if dtype else Q8)


def _show(graph: Graph, values: Mapping[str, int], port: str, value: str, dtype: str) -> Rewire:
    return Rewire(graph.by_name[name_port(Kind.OUTPUT, port)], 0, values[value], DType(dtype))


_READERS: Mapping[str, _Reader] = {
    "further": lambda _, values, words: _quantize(values, words, takes_over=False),
    "over": lambda _, values, words: _quantize(values, words, takes_over=True),
    "read": _read,
    "show": lambda graph, values, words: _show(graph, values, *words),
    "cast": lambda _, values, words: AddCast(values[words[0]], DType(words[1])),
    "copy": lambda _, values, words: AddCopy(values[words[0]], DType(words[1]), None),
    "retype": lambda _, values, words: Retype(values[words[0]], DType(words[1])),
}


def carry_out(source: onnx.ModelProto, edits: str, low: DType = Q8) -> onnx.ModelProto:
    """Apply the edits of a case, hold the result to the checker, and give it with all its weights."""
    model = open_model(source)
    before = source.SerializeToString(deterministic=True)
    reading = model.read(low)
    result = model.apply(reading, read_edits(reading.graph, edits))
    assert model.fault(reading.graph, result) is None, model.fault(reading.graph, result)
    assert source.SerializeToString(deterministic=True) == before, "the source is never changed"
    whole: onnx.ModelProto = model.materialize(result)
    return whole


def make_sparse(graph: onnx.GraphProto, name: str) -> None:
    """Turn a weight into a Constant that holds it sparse."""
    index = next(i for i, tensor in enumerate(graph.initializer) if tensor.name == name)
    dense = onnx.numpy_helper.to_array(graph.initializer[index])
    places = np.flatnonzero(dense).astype(np.int64)
    values = onnx.numpy_helper.from_array(dense.ravel()[places], f"{name}_values")
    indices = onnx.numpy_helper.from_array(places, f"{name}_indices")
    sparse = onnx.helper.make_sparse_tensor(values, indices, dense.shape)
    del graph.initializer[index]
    graph.node.insert(0, onnx.helper.make_node("Constant", [], [name], name=name, sparse_value=sparse))
