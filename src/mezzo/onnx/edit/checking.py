"""The ONNX checker: its error for a model, and how strict a check a converted model must pass.

The full check infers shapes and compares them with the declared ones. Models that every runtime
runs can fail it, because declared shapes are stale or inference itself is wrong. So a converted
model must pass the strictest check that its source passes.
"""

import enum
from copy import deepcopy
from dataclasses import dataclass

import onnx
import onnx.checker
import onnx.shape_inference

from mezzo.common.errors import ContractError
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.files.runnable_model import whole_of
from mezzo.onnx.files.save import without_payloads
from mezzo.onnx.protos.graphs import graphs_of
from mezzo.onnx.schema.custom_operators import has_custom_operators, with_private_domain
from mezzo.onnx.schema.shapes import can_infer
from mezzo.onnx.schema.types import tensor_type_of

_LONGEST_FAULT = 200
_FAILURES = (
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    ValueError,
    RuntimeError,
)


class Strictness(enum.Enum):
    """How much of the ONNX checker's full check a model must pass."""

    FULL = "the full check"
    UNDECLARED = "the full check without the shapes that the model declares"
    PLAIN = "the check without shape inference"


@dataclass(frozen=True, slots=True)
class OnnxValidity:
    """`strictness`: the strictest check that a source model passes, None if it passes none.
    `fault`: the full check's error message, None if the model passes it.
    """

    strictness: Strictness | None
    fault: str | None

    @property
    def is_valid(self) -> bool:
        return self.strictness is not None

    @property
    def note(self) -> str | None:
        """Message for the user about a convertible source model that fails the full check; None if
        it passes.
        """
        if self.strictness is None or self.strictness is Strictness.FULL or self.fault is None:
            return None
        fault = (
            self.fault if len(self.fault) <= _LONGEST_FAULT else f"{self.fault[:_LONGEST_FAULT]}..."
        )
        consequence = f"the result was held to {self.strictness.value}"
        return f"ONNX's full check faults the model as it came ({fault}); {consequence}"


def stand(source: ModelSource, *, may_crash: bool) -> OnnxValidity:
    """Find the strictest check that a source model passes. The plain check suffices if ONNX Runtime
    loads the model, or if it has custom operators or sparse weights, which shape inference does not
    support.
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
    """Error message of the ONNX checker for a model; None if it passes. `may_crash`: skip shape
    inference for models that could crash it. Operators that ONNX does not define are accepted, as a
    runtime may define them.
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
    """Run the part of the full check that the plain check lacks. It does not read external data, so
    omitted payloads do no harm.
    """
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def _mended(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the fields that the checker requires and runtimes do not: the graph's name, types
    of outputs, shapes of inputs and outputs. Missing ones are added as undefined.
    """
    copy = deepcopy(model)
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
    """A copy that declares the types of node outputs, but not their shapes."""
    copy = deepcopy(model)
    infos = [info for function in copy.functions for info in function.value_info]
    for graph in graphs_of(copy):
        infos += [*graph.value_info, *graph.output]
    for info in infos:
        tensor = tensor_type_of(info.type)
        if tensor is not None:
            tensor.ClearField("shape")
    return copy


def _has_sparse_weights(graph: onnx.GraphProto) -> bool:
    if graph.sparse_initializer:
        return True
    constants = (a for node in graph.node if node.op_type == "Constant" for a in node.attribute)
    return any(a.type == onnx.AttributeProto.SPARSE_TENSOR for a in constants)


def _loads(source: ModelSource) -> bool:
    """Whether the installed ONNX Runtime loads a model; large weights are not copied."""
    from mezzo.onnx.run.session import Engine, native_session

    try:
        runnable = whole_of(source.model, source)
        native_session(runnable.model, Engine.ONNXRUNTIME, weights=runnable.weights)
    except (ContractError, ImportError):
        return False
    return True
