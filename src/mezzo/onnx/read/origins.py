"""What tells nodes apart after a conversion: names that stay theirs, and the module that each was exported from."""

from collections.abc import Iterable, Iterator

import onnx

from mezzo.ir.nodes import Use
from mezzo.onnx.read.handles import Handles, OperandPlace

# What PyTorch's exporters note: viewers group nodes by these, and region patterns read them.
_KEYS = frozenset(
    {
        "namespace",
        "pkg.torch.onnx.class_hierarchy",
        "pkg.torch.onnx.name_scopes",
        "pkg.torch.onnx.stack_trace",
    }
)


def copy_origin(node: onnx.NodeProto, served: Iterable[onnx.NodeProto | None]) -> None:
    """Give a new node the origin of the first of `served` that has one."""
    for proto in served:
        if proto is None or not proto.metadata_props:
            continue
        noted = [entry for entry in proto.metadata_props if entry.key in _KEYS]
        if noted:
            node.metadata_props.extend(noted)
            return


def served(handles: Handles, producer: int, readers: Iterable[Use]) -> Iterator[onnx.NodeProto | None]:
    """Whom a new form of a value serves: the node that makes the value, then those that read the form."""
    yield handles.protos[producer]
    for use in readers:
        place = handles.places.get(use)
        yield place.proto if isinstance(place, OperandPlace) else handles.protos[use.node]


def title_of(proto: onnx.NodeProto) -> str:
    """What a plan calls a node, scopes apart: its name, or its operator and first output."""
    name: str = proto.name
    return name or f"{proto.op_type}:{proto.output[0] if proto.output else ''}"


def name_node(proto: onnx.NodeProto, title: str) -> None:
    """Write down what a plan calls a node, before the operator or the output that the title is taken from changes."""
    if not proto.name:
        proto.name = title
