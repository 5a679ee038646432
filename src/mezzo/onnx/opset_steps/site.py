"""What a conversion knows of a node's operands, and where it puts the nodes that it adds."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from mezzo.onnx.protos.attributes import find

Array = npt.NDArray[np.generic]
# Makes a wish into a name that no value and no node of the model bears.
Fresh = Callable[[str], str]
Types = Sequence[Mapping[str, onnx.TypeProto.Tensor]]
Constants = Sequence[Mapping[str, onnx.TensorProto]]
_INT64 = onnx.TensorProto.INT64


class BlockedError(Exception):
    """A node cannot be carried over a step with its meaning kept. The text says why, without a subject."""


class Values:
    """Values that a graph or function sees: its own and those of the graphs around it, innermost first."""

    def __init__(self, types: Callable[[], Types], constants: Constants, reads: frozenset[str]) -> None:
        self._types = types
        self._constants = constants
        self._reads = reads

    def dtype(self, name: str) -> int | None:
        """Element type, as ONNX numbers it; None where it is not known."""
        tensor = self._type(name)
        return None if tensor is None or not tensor.elem_type else tensor.elem_type

    def shape(self, name: str) -> tuple[int | None, ...] | None:
        """Dimensions, None for each that is symbolic or unknown; None where the rank is not known."""
        tensor = self._type(name)
        if tensor is None or not tensor.HasField("shape"):
            return None
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)

    def rank(self, name: str) -> int | None:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def constant(self, name: str) -> Array | None:
        """The numbers of a constant that the model's file holds; None for all other values."""
        for constants in self._constants:
            if name in constants:
                tensor = constants[name]
                is_external = tensor.data_location == onnx.TensorProto.EXTERNAL
                return None if is_external else numpy_helper.to_array(tensor)
        return None

    def is_read(self, name: str) -> bool:
        """Whether a node reads the value or a graph gives it out."""
        return name in self._reads

    def _type(self, name: str) -> onnx.TypeProto.Tensor | None:
        return next((types[name] for types in self._types() if name in types), None)


class Site:
    """One node's conversion: the values around it, and the nodes that it adds, in any order."""

    def __init__(self, values: Values, fresh: Fresh) -> None:
        self.values = values
        self.fresh = fresh
        self.added: list[onnx.NodeProto] = []

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """Add a node that makes `output`. Returns that name."""
        node = helper.make_node(op, inputs, [output], name=self.fresh(f"{output}_{op}"))
        put(node, **attributes)
        self.added.append(node)
        return output

    def add_fresh(self, op: str, inputs: Sequence[str], wish: str, **attributes: object) -> str:
        """Add a node that makes a value of its own. Returns the value's name."""
        return self.add(op, inputs, self.fresh(wish), **attributes)

    def tensor(self, wish: str, dtype: int, shape: Sequence[int], numbers: Sequence[float]) -> str:
        """Add a Constant. Returns the name of its value."""
        name = self.fresh(wish)
        value = helper.make_tensor("value", dtype, shape, numbers)
        self.added.append(helper.make_node("Constant", [], [name], name=name, value=value))
        return name

    def ints(self, wish: str, numbers: Sequence[int]) -> str:
        """Add a Constant of INT64 [len(numbers)]."""
        return self.tensor(wish, _INT64, [len(numbers)], numbers)

    def like(self, operand: str, wish: str, numbers: Sequence[float], shape: Sequence[int] = ()) -> str:
        """Add a Constant of an operand's element type.

        Raises:
            BlockedError: that type is not known.
        """
        dtype = self.values.dtype(operand)
        if dtype is None:
            raise BlockedError(f"the element type of its operand {operand!r} is not known")
        return self.tensor(wish, dtype, shape, numbers)


# Rewrites a node in place, at the opset before the step, so that it means the same after it.
Convert = Callable[[onnx.NodeProto, Site], None]


def take(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Remove an attribute and return it; None where the node does not have it.

    Raises:
        BlockedError: whoever calls the function around the node sets the attribute.
    """
    attribute = find(node, name)
    if attribute is None:
        return None
    if attribute.ref_attr_name:
        raise BlockedError(f"its attribute {name!r} is set by callers of the function that it stands in")
    taken = onnx.AttributeProto()
    taken.CopyFrom(attribute)
    node.attribute.remove(attribute)
    return taken


def take_int(node: onnx.NodeProto, name: str, default: int) -> int:
    """Remove an attribute and return its number."""
    attribute = take(node, name)
    return default if attribute is None else attribute.i


def take_text(node: onnx.NodeProto, name: str, default: str) -> str:
    """Remove an attribute and return its string."""
    attribute = take(node, name)
    return default if attribute is None else attribute.s.decode("utf-8", "replace")


def put(node: onnx.NodeProto, **attributes: object) -> None:
    """Set attributes."""
    for name, value in attributes.items():
        take(node, name)
        node.attribute.append(helper.make_attribute(name, value))


def put_operand(node: onnx.NodeProto, index: int, name: str) -> None:
    """Set an operand; those before it that are absent are left out by an empty name."""
    node.input.extend([""] * (index + 1 - len(node.input)))
    node.input[index] = name


def operand(node: onnx.NodeProto, index: int) -> str:
    """An operand's name; empty where it is absent."""
    return node.input[index] if index < len(node.input) else ""
