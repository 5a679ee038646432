"""Which inputs and outputs of two models belong together: by name, and what is left by position."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from mezzo.common.errors import InputError
from mezzo.onnx.schema.types import FROM_ONNX
from mezzo.onnx.schema.value_types import type_text

Ports = Mapping[str, onnx.ValueInfoProto]


@dataclass(frozen=True, slots=True)
class Match:
    """Names of the reference's inputs and outputs, with the candidate's names for them. `notes` are for people."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]

    def rename_feeds(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds of the reference as the candidate takes them."""
        return {self.inputs[name]: feed for name, feed in feeds.items() if name in self.inputs}

    def rename_outputs(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of the candidate under the reference's names, those without a counterpart left out."""
        return {name: outputs[own] for name, own in self.outputs.items()}


def match_models(reference: onnx.ModelProto, candidate: onnx.ModelProto) -> Match:
    """Find what belongs together. Element types may differ; what the reference has no counterpart for is left out.

    Raises:
        InputError: an output of the reference, or an input that the candidate needs, has no counterpart.
    """
    notes: list[str] = []
    wants, has = _required(reference), _required(candidate)
    inputs = _match("input", wants, has, notes)
    # Inputs that have a default are matched by name alone.
    for name in _all_inputs(reference):
        if name not in inputs and name in _all_inputs(candidate) and name not in inputs.values():
            inputs[name] = name
    hungry = [name for name in has if name not in inputs.values()]
    if hungry:
        raise _no_match("input", wants, has, hungry[0], "the model needs")
    unread = [name for name in wants if name not in inputs]
    notes += [f"the model has no input {name!r}" for name in unread]
    gives, got = ({port.name: port for port in model.graph.output} for model in (reference, candidate))
    outputs = _match("output", gives, got, notes)
    lost = [name for name in gives if name not in outputs]
    if lost:
        raise _no_match("output", gives, got, lost[0], "the reference gives")
    notes += [f"output {n!r} is only in the model, not compared" for n in got if n not in outputs.values()]
    return Match(inputs, outputs, tuple(notes))


def _match(what: str, ours: Ports, theirs: Ports, notes: list[str]) -> dict[str, str]:
    """Pair ports by name, then those left over in their order, if they are as many and of one shape."""
    pairs = {name: name for name in ours if name in theirs}
    left = [name for name in ours if name not in pairs]
    right = [name for name in theirs if name not in pairs]
    if left and len(left) == len(right):
        found = list(zip(left, right, strict=True))
        if all(_is_alike(ours[name].type, theirs[other].type) for name, other in found):
            pairs |= dict(found)
            notes += [f"{what} {name!r} is {other!r} in the model, matched by position" for name, other in found]
    return pairs


def _no_match(what: str, ours: Ports, theirs: Ports, name: str, verb: str) -> InputError:
    return InputError(
        f"{what}s differ: {verb} {name!r}, which has no counterpart; the reference has {_list(ours.values())} and the "
        f"model {_list(theirs.values())}; compare models whose {what}s match in name, or in number and shape"
    )


def _list(ports: Iterable[onnx.ValueInfoProto]) -> str:
    return ", ".join(f"{port.name!r} ({_spell(port.type)})" for port in ports) or "none"


def _spell(kind: onnx.TypeProto) -> str:
    if kind.WhichOneof("value") != "tensor_type":
        return type_text(kind)
    name = str(FROM_ONNX.get(kind.tensor_type.elem_type, "?"))
    dims = kind.tensor_type.shape.dim
    lengths = ",".join(str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims)
    return f"{name}[{lengths}]" if kind.tensor_type.HasField("shape") else name


def _all_inputs(model: onnx.ModelProto) -> Ports:
    return {port.name: port for port in model.graph.input}


def _required(model: onnx.ModelProto) -> Ports:
    graph = model.graph
    stored = {tensor.name for tensor in graph.initializer} | {sparse.values.name for sparse in graph.sparse_initializer}
    return {name: port for name, port in _all_inputs(model).items() if name not in stored}


def _is_alike(one: onnx.TypeProto, other: onnx.TypeProto) -> bool:
    """Whether both hold the same kind of thing in shapes that can be equal."""
    kind = one.WhichOneof("value")
    if kind != other.WhichOneof("value"):
        return False
    if kind in ("sequence_type", "optional_type"):
        return _is_alike(getattr(one, kind).elem_type, getattr(other, kind).elem_type)
    if kind != "tensor_type" or not (one.tensor_type.HasField("shape") and other.tensor_type.HasField("shape")):
        return True
    dims: Sequence[Any] = one.tensor_type.shape.dim
    others: Sequence[Any] = other.tensor_type.shape.dim
    return len(dims) == len(others) and all(
        not (a.HasField("dim_value") and b.HasField("dim_value")) or a.dim_value == b.dim_value
        for a, b in zip(dims, others, strict=True)
    )
