"""Pairing of two models' inputs and outputs: by name, the rest by position and shape."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from mezzo.common.errors import InputError
from mezzo.onnx.protos.graphs import stored_names
from mezzo.onnx.schema.types import FROM_ONNX
from mezzo.onnx.schema.value_types import type_text

Ports = Mapping[str, onnx.ValueInfoProto]


@dataclass(frozen=True, slots=True)
class Match:
    """Input and output names of the reference, mapped to the candidate's; notes for users."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]

    def rename_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds of the reference under the candidate's input names."""
        return {self.inputs[name]: feed for name, feed in feeds.items() if name in self.inputs}

    def rename_outputs(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """The candidate's outputs under the reference's names, without unmatched ones."""
        return {name: outputs[candidate_name] for name, candidate_name in self.outputs.items()}


def match_models(reference: onnx.ModelProto, candidate: onnx.ModelProto) -> Match:
    """Pair inputs and outputs. Element types may differ; ports only the candidate has are left out.

    Raises:
        InputError: an output of the reference, or an input that the candidate needs, has no
            counterpart.
    """
    notes: list[str] = []
    required, available = _required(reference), _required(candidate)
    inputs = _match("input", required, available, notes)
    # Inputs that have a default are matched by name alone.
    for name in _all_inputs(reference):
        if name not in inputs and name in _all_inputs(candidate) and name not in inputs.values():
            inputs[name] = name
    unfed = [name for name in available if name not in inputs.values()]
    if unfed:
        raise _no_match("input", required, available, unfed[0], "the model needs")
    unused = [name for name in required if name not in inputs]
    notes += [f"the model has no input {name!r}" for name in unused]
    expected, actual = (
        {port.name: port for port in model.graph.output} for model in (reference, candidate)
    )
    outputs = _match("output", expected, actual, notes)
    missing = [name for name in expected if name not in outputs]
    if missing:
        raise _no_match("output", expected, actual, missing[0], "the reference gives")
    notes += [
        f"output {n!r} is only in the model, not compared"
        for n in actual
        if n not in outputs.values()
    ]
    return Match(inputs, outputs, tuple(notes))


def _match(kind: str, ours: Ports, theirs: Ports, notes: list[str]) -> dict[str, str]:
    """Pair ports by name, the remaining ones by position if their number and shapes agree."""
    pairs = {name: name for name in ours if name in theirs}
    unmatched = [name for name in ours if name not in pairs]
    available = [name for name in theirs if name not in pairs]
    if unmatched and len(unmatched) == len(available):
        positional = list(zip(unmatched, available, strict=True))
        if all(_is_alike(ours[name].type, theirs[other].type) for name, other in positional):
            pairs |= dict(positional)
            notes += [
                f"{kind} {name!r} is {other!r} in the model, matched by position"
                for name, other in positional
            ]
    return pairs


def _no_match(kind: str, ours: Ports, theirs: Ports, name: str, verb: str) -> InputError:
    return InputError(
        f"{kind}s differ: {verb} {name!r}, which has no counterpart; the reference has"
        f" {_list(ours.values())} and the model {_list(theirs.values())}; compare models whose"
        f" {kind}s match in name, or in number and shape"
    )


def _list(ports: Iterable[onnx.ValueInfoProto]) -> str:
    return ", ".join(f"{port.name!r} ({_spell(port.type)})" for port in ports) or "none"


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
