"""One-node test models for probes, from the ONNX project's operator tests.

An operator has a model for every set of attributes at its newest version, and one per older one.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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

_OLDEST_OPSET = 7  # the oldest that ONNX Runtime guarantees to load
_CANDIDATES = 3
# Operators without FP32 tests in the ONNX project: a graph, and the shapes of its inputs.
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
    """An operator version to try in low precision. `models` are one-node FP32 models with feeds
    (None: load only); the first that the runtime runs in FP32 is used.
    """

    dialect: str
    op: str
    version: int
    models: Sequence[tuple[onnx.ModelProto, Feeds | None]] = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.dialect} {self.op}"


def onnx_questions(max_opset: int | None, pattern: str = "*") -> Iterator[Question]:
    """Questions on ONNX's operators whose names match, at every version in opsets up to `max_opset`."""
    by_case: dict[tuple[str, int, tuple[tuple[str, object], ...]], list[tuple[onnx.ModelProto, Feeds]]] = {}
    for model, feeds in _test_models():
        node = model.graph.node[0]
        if not fnmatchcase(node.op_type.lower(), pattern.lower()):
            continue
        versions = _versions(node.op_type, max_opset)
        for version in versions:
            attributes = tuple(sorted(NodeAttributes(node).items())) if version == versions[-1] else ()
            models = by_case.setdefault((node.op_type, version, attributes), [])
            aged = _at_version(model, version) if len(models) < _CANDIDATES else None
            if aged is not None:
                models.append((aged, feeds))
    for (op, version, _), models in sorted(by_case.items(), key=lambda entry: str(entry[0])):
        if models:
            frozen = [frozen_model for model in models if (frozen_model := _freeze_inputs(*model)) is not None]
            yield Question("onnx", op, version, (*frozen, *models))


def _test_models() -> Iterator[tuple[onnx.ModelProto, Feeds]]:
    """One-node models with FP32 values, and feeds; FP64 models are converted to FP32."""
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
    """The versions of an operator in the opsets from _OLDEST_OPSET to `max_opset`."""
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
    """The model at the oldest opset (7 or newer) with this operator version; None if invalid."""
    aged = onnx.ModelProto()
    aged.CopyFrom(model)
    for opset in aged.opset_import:
        if opset.domain == "":
            opset.version = max(version, _OLDEST_OPSET)
    # The oldest IR version for the opset, as runtimes reject new ones; before 4, weights had to be
    # inputs.
    aged.ir_version = max(onnx.helper.find_min_ir_version_for(list(aged.opset_import)), 4)
    try:
        onnx.checker.check_model(aged, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return aged


def _freeze_inputs(model: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds] | None:
    """The model with all tensor inputs but the first FP32 one turned into weights, as exporters
    write it; None if it has no FP32 input.
    """
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    data = next((p.name for p in frozen.graph.input if _holds_float32(p)), None)
    if data is None:
        return None
    fed_ports = []
    for port in frozen.graph.input:
        value = feeds.get(port.name)
        if port.name == data or not isinstance(value, np.ndarray):
            fed_ports.append(port)
        else:
            frozen.graph.initializer.append(onnx.numpy_helper.from_array(value, port.name))
    del frozen.graph.input[:]
    frozen.graph.input.extend(fed_ports)
    return frozen, {port.name: feeds[port.name] for port in fed_ports if port.name in feeds}
