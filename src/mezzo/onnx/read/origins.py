"""Provenance of nodes over a conversion: stable names, and the exporter's metadata on modules."""

from collections.abc import Iterable, Iterator

import onnx

from mezzo.ir.nodes import Use
from mezzo.onnx.read.handles import Handles, OperandPlace

# Metadata of PyTorch's exporters, which viewers group nodes by, and region patterns match.
_KEYS = frozenset(
    {
        "namespace",
        "pkg.torch.onnx.class_hierarchy",
        "pkg.torch.onnx.name_scopes",
        "pkg.torch.onnx.stack_trace",
    }
)


def copy_origin(node: onnx.NodeProto, served: Iterable[onnx.NodeProto | None]) -> None:
    """Copy the exporter's metadata to a new node from the first of `served` that has any."""
    for proto in served:
        if proto is None or not proto.metadata_props:
            continue
        noted = [entry for entry in proto.metadata_props if entry.key in _KEYS]
        if noted:
            node.metadata_props.extend(noted)
            return


def served(
    handles: Handles, producer: int, readers: Iterable[Use]
) -> Iterator[onnx.NodeProto | None]:
    """The nodes that a cast of a value belongs to: the value's producer, then the cast's users."""
    yield handles.protos[producer]
    for use in readers:
        place = handles.places.get(use)
        yield place.proto if isinstance(place, OperandPlace) else handles.protos[use.node]


def title_of(proto: onnx.NodeProto) -> str:
    """A node's name in plans, without scopes: its own, or its operator and first output."""
    name: str = proto.name
    return name or f"{proto.op_type}:{proto.output[0] if proto.output else ''}"


def name_node(proto: onnx.NodeProto, title: str | None = None) -> None:
    """Store a node's name in plans, before its operator or first output changes."""
    proto.name = proto.name or title or title_of(proto)
