"""What the ONNX checker has against a model, and how strictly a model's results can be held to it.

The full check infers shapes and compares them with what the model declares. Models that every
runtime runs fail it: their declared shapes are stale, or inference itself is wrong. A result is
held to as much as its source passes.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnx.checker
import onnx.shape_inference

from mezzo.common.errors import ContractError
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.files.runnable_model import whole_of
from mezzo.onnx.files.save import without_payloads
from mezzo.onnx.schema.custom_operators import has_custom_operators, with_private_domain
from mezzo.onnx.schema.shapes import all_nodes, can_infer

_LONGEST_FAULT = 200
_FAILURES = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    ValueError,
    RuntimeError,
)


class Strictness(enum.Enum):
    """How much of the full check a model is held to."""

    FULL = "the full check"
    UNDECLARED = "the full check without the shapes that the model declares"
    PLAIN = "the check without shape inference"


@dataclass(frozen=True, slots=True)
class OnnxValidity:
    """What a model as it came passes, and what the full check has against it. `strictness` is None
    for a model that is not valid.
    """

    strictness: Strictness | None
    fault: str | None

    @property
    def is_valid(self) -> bool:
        return self.strictness is not None

    @property
    def note(self) -> str | None:
        """What the user should hear of a model that the full check faults, and that is converted
        all the same.
        """
        if self.strictness is None or self.strictness is Strictness.FULL or self.fault is None:
            return None
        fault = (
            self.fault if len(self.fault) <= _LONGEST_FAULT else f"{self.fault[:_LONGEST_FAULT]}..."
        )
        held = f"the result was held to {self.strictness.value}"
        return f"ONNX's full check faults the model as it came ({fault}); {held}"


def stand(source: ModelSource, *, may_crash: bool) -> OnnxValidity:
    """Find out how much of the full check a model passes as it came. The plain check alone is
    enough where ONNX Runtime loads the model, or where custom operators or sparse weights are in
    it, which the inference does not know.
    """
    model, blobs = source.model, source.blobs
    fault = find_fault(model, blobs, Strictness.FULL, may_crash=may_crash)
    if fault is None:
        return OnnxValidity(Strictness.FULL, None)
    if find_fault(model, blobs, Strictness.PLAIN, may_crash=may_crash) is not None:
        return OnnxValidity(None, fault)
    if find_fault(model, blobs, Strictness.UNDECLARED, may_crash=may_crash) is None:
        return OnnxValidity(Strictness.UNDECLARED, fault)
    is_beyond = has_custom_operators(model) or (
        "sparse_tensor" in fault and _has_sparse_weights(model.graph)
    )
    if is_beyond or _loads(source):
        return OnnxValidity(Strictness.PLAIN, fault)
    return OnnxValidity(None, fault)


def find_fault(
    model: onnx.ModelProto, blobs: Blobs, strictness: Strictness, *, may_crash: bool
) -> str | None:
    """What the ONNX checker has against a model; None if nothing. Where inference could crash the
    process it is left out. An operator that ONNX does not define is no fault: a runtime may.
    """
    fault = _find_fault(model, blobs, strictness, may_crash=may_crash)
    private = None if fault is None else with_private_domain(model)
    return (
        fault if private is None else _find_fault(private, blobs, strictness, may_crash=may_crash)
    )


def _find_fault(
    model: onnx.ModelProto, blobs: Blobs, strictness: Strictness, *, may_crash: bool
) -> str | None:
    if may_crash and not can_infer(model):
        strictness = Strictness.PLAIN
    is_full = strictness is Strictness.FULL
    if not is_full:
        model = _mended(model)
    try:
        if len(blobs):
            with without_payloads(model, blobs) as path:
                onnx.checker.check_model(path, full_check=is_full)
        else:
            onnx.checker.check_model(model, full_check=is_full)
        if strictness is Strictness.UNDECLARED:
            _infer_strictly(_without_shapes(model))
    except _FAILURES as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _infer_strictly(model: onnx.ModelProto) -> None:
    """What the full check does beside the plain one. Payloads left out are external data, which it
    does not read.
    """
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _mended(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that has what the checker wants of every model, and no runtime: a graph's name, types
    and shapes of its ports, which say nothing where the model has none.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        is_named = bool(copy.graph.name)
    except UnicodeDecodeError:
        is_named = False
    if not is_named:
        copy.graph.name = "graph"
    for port in copy.graph.output:
        if not port.type.WhichOneof("value"):
            port.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
    for port in (*copy.graph.input, *copy.graph.output):
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.shape.SetInParent()
    return copy


def _without_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that declares the types of what nodes make, and not their shapes."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    bodies = [copy.graph, *_bodies(copy.graph)]
    for function in copy.functions:
        bodies += _bodies(function)
        for info in function.value_info:
            _drop_shape(info.type)
    for body in bodies:
        for info in (*body.value_info, *body.output):
            _drop_shape(info.type)
    return copy


def _bodies(owner: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    for node in all_nodes(owner):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g


def _drop_shape(held: onnx.TypeProto) -> None:
    match held.WhichOneof("value"):
        case "tensor_type":
            held.tensor_type.ClearField("shape")
        case "sparse_tensor_type":
            held.sparse_tensor_type.ClearField("shape")
        case "sequence_type":
            _drop_shape(held.sequence_type.elem_type)
        case "optional_type":
            _drop_shape(held.optional_type.elem_type)


def _has_sparse_weights(graph: onnx.GraphProto) -> bool:
    if graph.sparse_initializer:
        return True
    constants = (a for node in graph.node if node.op_type == "Constant" for a in node.attribute)
    return any(a.type == onnx.AttributeProto.SPARSE_TENSOR for a in constants)


def _loads(source: ModelSource) -> bool:
    """Whether ONNX Runtime, as installed, loads a model, large weights where they lie."""
    from mezzo.onnx.run.run import Engine, native_session

    try:
        whole = whole_of(source.model, source)
        native_session(whole.model, Engine.ONNXRUNTIME, weights=whole.weights)
    except (ContractError, ImportError):
        return False
    return True
