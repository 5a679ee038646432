"""Builder of nodes in graph order, for passes that insert operators into a graph."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper


@dataclass(frozen=True, slots=True)
class NodeBuilder:
    """Every method appends a node to `nodes` and returns the name of its output, from `fresh`."""

    fresh: Callable[[], str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        result = self.fresh()
        self.nodes.append(onnx.helper.make_node(op, inputs, [result], **attributes))
        return result

    def cast(self, source: str, to: int) -> str:
        return self.add("Cast", source, to=to)

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        return self.add("Constant", value=numpy_helper.from_array(np.array(values, dtype)))
