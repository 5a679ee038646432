"""Parts of a model's main graph, each as a model of its own with the values at its border as inputs
and outputs.
"""

from collections.abc import Collection
from copy import deepcopy
from functools import cached_property

import onnx

from mezzo.contracts.lab import NamedOperator
from mezzo.contracts.reading import Extract
from mezzo.onnx.protos.graphs import inline_functions
from mezzo.onnx.protos.order import sort_nodes
from mezzo.onnx.read.origins import title_of
from mezzo.onnx.run.extraction import StatedTypes, Wiring, extract_positions


class OnnxParts:
    """Implements the contract `contracts.lab.Parts`."""

    def __init__(self, model: onnx.ModelProto) -> None:
        whole = deepcopy(inline_functions(model))
        sort_nodes(whole.graph)
        self._wiring = Wiring(whole)
        self.nodes = {
            position: NamedOperator(title_of(node), node.op_type)
            for position, node in enumerate(whole.graph.node)
            if position not in self._wiring.fixed
        }

    def closed(self, nodes: Collection[int]) -> tuple[int, ...]:
        return tuple(sorted(self._wiring.closed(nodes)))

    def extract(self, nodes: Collection[int], shown: Collection[str] = ()) -> Extract:
        part = extract_positions(self._wiring, self._types, nodes, shown)
        inputs, outputs = (
            tuple(port.name for port in ports) for ports in (part.graph.input, part.graph.output)
        )
        return Extract(part, len(part.graph.node), inputs, outputs)

    @cached_property
    def _types(self) -> StatedTypes:
        return StatedTypes(self._wiring.model, ranked=False)
