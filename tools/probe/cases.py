"""Small models to ask with: the ONNX project's own operator tests. An operator is asked about with every set of
attributes at its newest version, and once at each version before.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.checker
import onnx.defs
import onnx.parser
import onnx.shape_inference
from onnx import TensorProto

from mezzo.formats.dtypes import DType
from mezzo.onnx.protos.attributes import NodeAttributes
from mezzo.onnx.schema.types import element_dtype, from_type_proto
from probe.attempts import Feeds

_OLDEST_OPSET = 7  # what ONNX Runtime still promises to load
_CANDIDATES = 3
# Operators that the ONNX project has no test of in FP32: a graph, and the shapes of its inputs.
_OWN_MODELS: tuple[tuple[str, dict[str, tuple[int, ...]]], ...] = (
    ("(float[2,2] x, float[2,2] z) => (bool[2,2] y) { y = Equal(x, z) }", {"x": (2, 2), "z": (2, 2)}),
    ("(float[1,2,4,4] x) => (float[1,2,1,1] y) { y = GlobalLpPool(x) }", {"x": (1, 2, 4, 4)}),
    (
        "(float[1,2,4,4] x, float[1,5] r) => (float[1,2,2,2] y) { y = MaxRoiPool<pooled_shape=[2,2]>(x, r) }",
        {"x": (1, 2, 4, 4), "r": (1, 5)},
    ),
    ("(float[1,3] x) => (int32[1,2] y) { y = Multinomial<sample_size=2>(x) }", {"x": (1, 3)}),
    ("(float[2,2] x) => (int64[2,N] y) { y = NonZero(x) }", {"x": (2, 2)}),
    ("() => (float[2,2] y) { y = RandomNormal<shape=[2,2]>() }", {}),
    ("(float[2,2] x) => (float[2,2] y) { y = RandomNormalLike(x) }", {"x": (2, 2)}),
    ("() => (float[2,2] y) { y = RandomUniform<shape=[2,2]>() }", {}),
    ("(float[2,2] x) => (float[2,2] y) { y = RandomUniformLike(x) }", {"x": (2, 2)}),
    ("(float[2,2] x) => (float[2,2] y) { y = Trilu(x) }", {"x": (2, 2)}),
)


@dataclass(frozen=True, slots=True)
class Question:
    """May this operator run low at this version? `models` are FP32 models of one node to try in order, each with its
    feeds, or with None where it is only to be loaded: the first that the runtime takes in FP32 is asked with.
    """

    dialect: str
    op: str
    version: int
    models: Sequence[tuple[onnx.ModelProto, Feeds | None]] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.dialect} {self.op}"


def onnx_questions(max_opset: int | None) -> Iterator[Question]:
    """Questions about ONNX's own operators, each at every version that opsets up to `max_opset` hold."""
    by_case: dict[tuple[str, int, tuple[tuple[str, object], ...]], list[tuple[onnx.ModelProto, Feeds]]] = {}
    for model, feeds in _test_models():
        node = model.graph.node[0]
        versions = _versions(node.op_type, max_opset)
        for version in versions:
            attributes = tuple(sorted(NodeAttributes(node).items())) if version == versions[-1] else ()
            models = by_case.setdefault((node.op_type, version, attributes), [])
            aged = _at_version(model, version) if len(models) < _CANDIDATES else None
            if aged is not None:
                models.append((aged, feeds))
    for (op, version, _), models in sorted(by_case.items(), key=lambda entry: str(entry[0])):
        if models:
            frozen = [one for model in models if (one := _freeze_inputs(*model)) is not None]
            yield Question("onnx", op, version, (*frozen, *models))


def _test_models() -> Iterator[tuple[onnx.ModelProto, Feeds]]:
    """Models of one node that hold FP32, with an example; those in FP64 as if they were written in FP32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute infinities on purpose
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases("")
    for case in sorted(cases, key=lambda case: case.name):
        if case.model is None or not case.data_sets or len(case.model.graph.node) != 1:
            continue
        node = case.model.graph.node[0]
        if node.domain or any(attribute.HasField("g") for attribute in node.attribute):
            continue  # not ONNX's own, or control flow, which computes nothing itself
        ports = [port.name for port in case.model.graph.input]
        model, feeds = _in_float32(case.model, dict(zip(ports, case.data_sets[0][0], strict=False)))
        is_empty = any(isinstance(value, np.ndarray) and value.size == 0 for value in feeds.values())
        if not is_empty and any(_holds_float32(port) for port in (*model.graph.input, *model.graph.output)):
            yield model, feeds
    for text, shapes in _OWN_MODELS:
        ones = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        yield onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 22]> g {text}'), ones


def _in_float32(model: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    ports = [*model.graph.input, *model.graph.output]
    if all(port.type.tensor_type.elem_type != TensorProto.DOUBLE for port in ports):
        return model, feeds
    retyped = onnx.ModelProto()
    retyped.CopyFrom(model)
    for port in (*retyped.graph.input, *retyped.graph.output):
        if port.type.tensor_type.elem_type == TensorProto.DOUBLE:
            port.type.tensor_type.elem_type = TensorProto.FLOAT
    is_double = {name: isinstance(value, np.ndarray) and value.dtype == np.float64 for name, value in feeds.items()}
    return retyped, {name: value.astype(np.float32) if is_double[name] else value for name, value in feeds.items()}


def _holds_float32(port: onnx.ValueInfoProto) -> bool:
    return bool(element_dtype(from_type_proto(port.type)) is DType.FLOAT32)


def _versions(op: str, max_opset: int | None) -> list[int]:
    """The versions of an operator that are in force at some opset a runtime loads."""
    newest = onnx.defs.onnx_opset_version() if max_opset is None else max_opset
    versions = set()
    for opset in range(_OLDEST_OPSET, newest + 1):
        try:
            schema = onnx.defs.get_schema(op, opset, "")
        except onnx.defs.SchemaError:
            continue
        if not schema.deprecated:
            versions.add(schema.since_version)
    return sorted(versions)


def _at_version(model: onnx.ModelProto, version: int) -> onnx.ModelProto | None:
    """The model at the oldest opset from 7 on that has this version of the operator; None where it is not valid."""
    aged = onnx.ModelProto()
    aged.CopyFrom(model)
    for opset in aged.opset_import:
        if opset.domain == "":
            opset.version = max(version, _OLDEST_OPSET)
    # The oldest format for the opset, as runtimes refuse the newest; before 4 every weight had to be an input.
    aged.ir_version = max(onnx.helper.find_min_ir_version_for(list(aged.opset_import)), 4)
    try:
        onnx.checker.check_model(aged, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return aged


def _freeze_inputs(model: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds] | None:
    """The model with every tensor input but the first float one as a weight, as an exporter would write it; None where
    that leaves nothing to feed.
    """
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    data = next((p.name for p in frozen.graph.input if _holds_float32(p)), None)
    if data is None:
        return None
    kept = []
    for port in frozen.graph.input:
        value = feeds.get(port.name)
        if port.name == data or not isinstance(value, np.ndarray):
            kept.append(port)
        else:
            frozen.graph.initializer.append(onnx.numpy_helper.from_array(value, port.name))
    del frozen.graph.input[:]
    frozen.graph.input.extend(kept)
    return frozen, {port.name: feeds[port.name] for port in kept if port.name in feeds}
