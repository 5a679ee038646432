"""Graph queries for fusion patterns: producers, readers, constants.

Operators that output their input unchanged (Identity, and Dropout in inference) are skipped. A
constant is a weight, or the result of ONNX operators on constants, which runtimes fold.
"""

from dataclasses import dataclass
from functools import cached_property

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Cost

_DIALECT = "onnx"
_HANDS_ON = frozenset({"Identity", "Dropout"})
# Not folded: random operators, control flow, and Quantize/DequantizeLinear, read by kernels.
_NEVER_FOLDED = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
    | {"QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan", "SequenceMap"}
)
# PyTorch programs have weights as inputs, which may change, so nothing is folded.
_OF_PROGRAMS = frozenset({"aten", "prims"})


@dataclass(frozen=True)
class FusionView(GraphView):
    """A graph with its operators' facts, and the queries that patterns need."""

    def op(self, node: Node) -> str:
        """The operator name, with the domain in front unless it is ONNX: "com.microsoft:Gelu"."""
        dialect = node.signature.dialect
        return node.op if dialect == _DIALECT else f"{dialect}:{node.op}"

    def is_pointwise(self, node: Node) -> bool:
        """Whether an operator is elementwise, on floats or booleans."""
        row = self.rows[node.id]
        return node.kind is Kind.OP and row is not None and row.cost is Cost.POINTWISE

    def is_float(self, node: Node) -> bool:
        """Whether an operator computes in a float format of fused kernels, which excludes FP64."""
        dtype = node.signature.dtype
        return node.kind is Kind.OP and dtype is not None and dtype is not DType.FLOAT64

    def maker(self, node: Node, operand: int) -> Node | None:
        """The operator in the same scope that produces an operand, if it is not constant."""
        value = node.inputs[operand] if operand < len(node.inputs) else None
        if value is None:
            return None
        producer = self.graph.nodes[self.graph.values[self.origin(value)].producer]
        return (
            producer
            if producer.kind is Kind.OP
            and producer.scope == node.scope
            and not self.is_folded(producer)
            else None
        )

    def origin(self, value: int) -> int:
        """The value before Identity operators."""
        passed = []
        while value not in self._origins:
            maker = self.graph.nodes[self.graph.values[value].producer]
            source = maker.inputs[0] if self.hands_on(maker) and value == maker.outputs[0] else None
            if source is None:
                break
            passed.append(value)
            value = source
        source_value = self._origins.get(value, value)
        # Cached, so that a long chain is traversed once.
        self._origins.update(dict.fromkeys(passed, source_value))
        return source_value

    def hands_on(self, node: Node) -> bool:
        """Whether a node outputs its input unchanged."""
        return node.kind is Kind.OP and self.op(node) in _HANDS_ON and bool(node.inputs)

    def readers(self, value: int) -> tuple[tuple[Node, int], ...]:
        """Readers of a value through Identity, with operand indices, in graph order."""
        readers: list[tuple[Node, int]] = []
        pending = [value]
        while pending:
            for use in self.graph.uses[pending.pop()]:
                node = self.graph.nodes[use.node]
                handed_on = node.outputs[0] if self.hands_on(node) and use.operand == 0 else None
                if handed_on is None:
                    readers.append((node, use.operand))
                else:
                    pending.append(handed_on)
        return tuple(readers)

    def sole_reader(self, node: Node) -> Node | None:
        """The operator of the same scope that is the only reader of a node's outputs; else None."""
        if any(output is not None and self.graph.uses[output] for output in node.outputs[1:]):
            return None
        if not node.outputs or node.outputs[0] is None:
            return None
        readers = {reader.id: reader for reader, _ in self.readers(node.outputs[0])}
        if len(readers) != 1:
            return None
        reader = next(iter(readers.values()))
        return reader if reader.kind is Kind.OP and reader.scope == node.scope else None

    def escapes(self, node: Node, members: "frozenset[int] | set[int]") -> bool:
        """Whether a node's output is read outside `members`."""
        return any(
            use.node not in members
            for output in node.outputs
            if output is not None
            for use in self.graph.uses[output]
        )

    def same(self, left: int | None, right: int | None) -> bool:
        """Whether two operands are the same value."""
        return left is not None and right is not None and self.origin(left) == self.origin(right)

    def is_constant(self, value: int | None) -> bool:
        """Whether a value is a weight or folded before the model runs."""
        return value is not None and self._is_fixed[self.graph.values[value].producer]

    def is_folded(self, node: Node) -> bool:
        """Whether an operator has only constant operands."""
        return node.kind is Kind.OP and self._is_fixed[node.id]

    def constant(self, node: Node, operand: int) -> ConstantFacts | None:
        """Statistics of a weight operand; None if it is computed, folded or omitted."""
        value = node.inputs[operand] if operand < len(node.inputs) else None
        return None if value is None else self.graph.constants.get(self.origin(value))

    def number(self, node: Node, operand: int) -> float | None:
        """The value of a scalar constant operand; else None."""
        facts = self.constant(node, operand)
        return (
            facts.values[0]
            if facts is not None and facts.values is not None and len(facts.values) == 1
            else None
        )

    def shape(self, node: Node, operand: int) -> tuple[int | None, ...] | None:
        """Shape of an operand, None per unknown dimension; None if the rank is unknown."""
        value = node.inputs[operand] if operand < len(node.inputs) else None
        return None if value is None else self.graph.shapes.get(value)

    @cached_property
    def has_fixed_inputs(self) -> bool:
        """Whether all model inputs have static shapes, so that runtimes infer the rest."""
        graph = self.graph
        inputs = [node for node in graph.nodes if node.kind is Kind.INPUT and node.scope == 0]
        shapes = [
            graph.shapes.get(value)
            for node in inputs
            for value in node.outputs
            if value is not None
        ]
        return all(shape is not None and None not in shape for shape in shapes)

    def integers(self, node: Node, name: str) -> tuple[int, ...]:
        """A node's attribute that is a list of integers; empty if absent."""
        attribute = node.attributes.get(name)
        return tuple(int(item) for item in attribute) if isinstance(attribute, tuple | list) else ()

    @cached_property
    def _origins(self) -> dict[int, int]:
        return {}

    @cached_property
    def _is_fixed(self) -> list[bool]:
        """Per node, whether its outputs are constant."""
        values, fixed = self.graph.values, []
        for node in self.graph.nodes:
            if node.kind is Kind.SOURCE and not node.inputs:
                fixed.append(True)
                continue
            is_computed = node.kind in (Kind.OP, Kind.SOURCE, Kind.CAST)
            can_fold = (
                is_computed
                and node.op not in _NEVER_FOLDED
                and node.signature.dialect not in _OF_PROGRAMS
            )
            operands = [values[value].producer for value in node.inputs if value is not None]
            fixed.append(
                can_fold and bool(operands) and all(at < node.id and fixed[at] for at in operands)
            )
        return fixed
