"""Pairing of two models' inputs and outputs: by name, the rest by position and shape."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx

from mezzo.numerics.data.port_matching import PortMatch, PortMatcher
from mezzo.onnx.protos.graphs import stored_names
from mezzo.onnx.schema.types import FROM_ONNX
from mezzo.onnx.schema.value_types import type_text

Ports = Mapping[str, onnx.ValueInfoProto]


def match_models(reference: onnx.ModelProto, candidate: onnx.ModelProto) -> PortMatch:
    """Pair inputs and outputs. Element types may differ; ports only the candidate has are left out.

    Raises:
        InputError: an output of the reference, or an input that the candidate needs, has no
            counterpart.
    """
    ports: PortMatcher[onnx.ValueInfoProto] = PortMatcher(
        is_alike=lambda ours, theirs: _is_alike(ours.type, theirs.type),
        spell=lambda port: _spell(port.type),
        agreement="shape",
    )
    required, available = _required(reference), _required(candidate)
    inputs = ports.pair("input", required, available)
    # Inputs that have a default are matched by name alone.
    for name in _all_inputs(reference):
        if name not in inputs and name in _all_inputs(candidate) and name not in inputs.values():
            inputs[name] = name
    unfed = [name for name in available if name not in inputs.values()]
    if unfed:
        raise ports.no_match("input", required, available, f"the model needs {unfed[0]!r}")
    ports.notes.extend(
        f"the model has no input {name!r}" for name in required if name not in inputs
    )
    expected, actual = (
        {port.name: port for port in model.graph.output} for model in (reference, candidate)
    )
    outputs = ports.pair_outputs(expected, actual)
    return PortMatch(inputs, outputs, tuple(ports.notes))


def _spell(kind: onnx.TypeProto) -> str:
    if kind.WhichOneof("value") != "tensor_type":
        return type_text(kind)
    name = str(FROM_ONNX.get(kind.tensor_type.elem_type, "?"))
    dims = kind.tensor_type.shape.dim
    lengths = ",".join(
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims
    )
    return f"{name}[{lengths}]" if kind.tensor_type.HasField("shape") else name


def _all_inputs(model: onnx.ModelProto) -> Ports:
    return {port.name: port for port in model.graph.input}


def _required(model: onnx.ModelProto) -> Ports:
    stored = set(stored_names(model.graph))
    return {name: port for name, port in _all_inputs(model).items() if name not in stored}


def _is_alike(ours: onnx.TypeProto, theirs: onnx.TypeProto) -> bool:
    """Whether both types are of the same kind (tensor, sequence, ...) and compatible in shape."""
    kind = ours.WhichOneof("value")
    if kind != theirs.WhichOneof("value"):
        return False
    if kind in ("sequence_type", "optional_type"):
        return _is_alike(getattr(ours, kind).elem_type, getattr(theirs, kind).elem_type)
    if kind != "tensor_type" or not (
        ours.tensor_type.HasField("shape") and theirs.tensor_type.HasField("shape")
    ):
        return True
    dims: Sequence[Any] = ours.tensor_type.shape.dim
    other_dims: Sequence[Any] = theirs.tensor_type.shape.dim
    return len(dims) == len(other_dims) and all(
        not (a.HasField("dim_value") and b.HasField("dim_value")) or a.dim_value == b.dim_value
        for a, b in zip(dims, other_dims, strict=True)
    )
