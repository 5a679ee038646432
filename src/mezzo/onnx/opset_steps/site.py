"""Context of one node's conversion: types and constants of its operands, and nodes to add."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from mezzo.onnx.protos.attributes import find
from mezzo.onnx.schema.shapes import Shape, shape_of

Array = npt.NDArray[np.generic]
# Returns an unused name for a preferred one.
Fresh = Callable[[str], str]
Types = Mapping[str, onnx.TypeProto.Tensor]
Constants = Mapping[str, onnx.TensorProto]
_INT64 = onnx.TensorProto.INT64


class BlockedError(Exception):
    """A node has no equivalent in the next opset. The text is the reason, such as "has
    no axes", without the node's name.
    """


class Values:
    """Values visible in a graph or function: its own and the enclosing graphs'."""

    def __init__(
        self, types: Callable[[], Types], constants: Constants, reads: frozenset[str]
    ) -> None:
        self._types = types
        self._constants = constants
        self._reads = reads

    def dtype(self, name: str) -> int | None:
        """Element type as in TensorProto; None if unknown."""
        tensor = self._type(name)
        return None if tensor is None or not tensor.elem_type else tensor.elem_type

    def shape(self, name: str) -> Shape | None:
        """Dimensions, None for each symbolic or unknown one; None if the rank is unknown."""
        tensor = self._type(name)
        return None if tensor is None else shape_of(tensor)

    def rank(self, name: str) -> int | None:
        shape = self.shape(name)
        return None if shape is None else len(shape)

    def constant(self, name: str) -> Array | None:
        """The array of a constant stored inline; None for any other value."""
        tensor = self._constants.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor)

    def is_read(self, name: str) -> bool:
        """Whether the value is an operand of a node or an output of a graph."""
        return name in self._reads

    def _type(self, name: str) -> onnx.TypeProto.Tensor | None:
        return self._types().get(name)


class StepSite:
    """One node's conversion: the values visible to it, and the nodes that it adds, in any order."""

    def __init__(self, values: Values, fresh: Fresh) -> None:
        self.values = values
        self.fresh = fresh
        self.added: list[onnx.NodeProto] = []

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        """Add a node that produces `output`. Returns that name."""
        node = helper.make_node(op, inputs, [output], name=self.fresh(f"{output}_{op}"))
        put(node, **attributes)
        self.added.append(node)
        return output

    def add_fresh(self, op: str, inputs: Sequence[str], wish: str, **attributes: object) -> str:
        """Add a node that produces a new value. Returns the value's name."""
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

    def like(
        self, operand: str, wish: str, numbers: Sequence[float], shape: Sequence[int] = ()
    ) -> str:
        """Add a Constant of an operand's element type.

        Raises:
            BlockedError: that type is unknown.
        """
        dtype = self.values.dtype(operand)
        if dtype is None:
            raise BlockedError(f"the element type of its operand {operand!r} is not known")
        return self.tensor(wish, dtype, shape, numbers)


# Rewrites a node in place from the opset before a step to an equivalent in the opset after it.
Convert = Callable[[onnx.NodeProto, StepSite], None]


def take(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Remove an attribute and return it; None if the node does not have it.

    Raises:
        BlockedError: the attribute refers to a parameter of the enclosing function.
    """
    attribute = find(node, name)
    if attribute is None:
        return None
    if attribute.ref_attr_name:
        raise BlockedError(f"its attribute {name!r} is set by callers of its function")
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    node.attribute.remove(attribute)
    return copy


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
    """Set an operand; absent operands before it get an empty name."""
    node.input.extend([""] * (index + 1 - len(node.input)))
    node.input[index] = name


def operand(node: onnx.NodeProto, index: int) -> str:
    """An operand's name; empty if absent."""
    return node.input[index] if index < len(node.input) else ""
