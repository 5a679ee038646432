"""Graph queries for fusion patterns: producers, readers, constants.

Operators that output their input unchanged (Identity, and Dropout in inference) are skipped. A
constant is a weight, or the result of ONNX operators on constants, which runtimes fold.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mezzo.analysis.graph_with_facts import GraphView
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Cost

_DIALECT = "onnx"
# Operators whose results are as long as their operands' numbers say.
_SIZED_BY_NUMBERS = frozenset({
    "Compress", "ConcatFromSequence", "NonMaxSuppression", "NonZero", "SequenceAt", "StringSplit",
    "Unique",
})  # fmt: skip
_IDENTITIES = frozenset({"Identity", "Dropout"})
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
        signature = node.signature
        is_onnx = signature.dialect == _DIALECT
        return signature.op if is_onnx else f"{signature.dialect}:{signature.op}"

    def of_operators(self, ops: Collection[str]) -> list[Node]:
        """The nodes of ONNX's operators with these names, without folded ones, in order."""
        columns, nodes = self.graph.columns, self.graph.nodes
        is_named = [each.dialect == _DIALECT and each.op in ops for each in columns.signatures]
        chosen = np.array(is_named, bool)[columns.node_signature] & columns.is_kind(Kind.OP)
        return [nodes[node] for node in np.flatnonzero(chosen) if not self._is_fixed[node]]

    def is_pointwise(self, node: Node) -> bool:
        """Whether an operator is elementwise, on floats or booleans."""
        row = self.rows[node.id]
        return node.kind is Kind.OP and row is not None and row.cost is Cost.POINTWISE

    def is_float(self, node: Node) -> bool:
        """Whether an operator computes in a float format of fused kernels, which excludes FP64."""
        dtype = node.signature.dtype
        return node.kind is Kind.OP and dtype is not None and dtype is not DType.FLOAT64

    def operand(self, node: Node, operand: int) -> int | None:
        """The value of an operand; None if it is omitted."""
        return node.inputs[operand] if operand < len(node.inputs) else None

    def producer(self, value: int) -> Node:
        """The node that produces a value."""
        return self.graph.nodes[self.graph.values[value].producer]

    def maker(self, node: Node, operand: int) -> Node | None:
        """The operator in the same scope that produces an operand, if it is not constant."""
        value = self.operand(node, operand)
        if value is None:
            return None
        producer = self.producer(self.origin(value))
        is_operator = producer.kind is Kind.OP and not self.is_folded(producer)
        return producer if is_operator and producer.scope == node.scope else None

    def sole_maker(self, node: Node, operand: int) -> Node | None:
        """The same, if the node is the only reader of its outputs."""
        maker = self.maker(node, operand)
        return maker if maker is not None and self.sole_reader(maker) is node else None

    def makers(self, node: Node) -> tuple[Node, ...]:
        """The operators in the same scope that produce operands that are not constant."""
        makers = (self.maker(node, operand) for operand in range(len(node.inputs)))
        return tuple(maker for maker in makers if maker is not None)

    def origin(self, value: int) -> int:
        """The value before Identity operators."""
        if self.producer(value).signature.op not in _IDENTITIES:
            return value
        passed = []
        while value not in self._origins:
            maker = self.producer(value)
            source = (
                maker.inputs[0] if self.is_identity(maker) and value == maker.outputs[0] else None
            )
            if source is None:
                break
            passed.append(value)
            value = source
        source_value = self._origins.get(value, value)
        # Cached, so that a long chain is traversed once.
        self._origins.update(dict.fromkeys(passed, source_value))
        return source_value

    def is_identity(self, node: Node) -> bool:
        """Whether a node outputs its input unchanged."""
        return node.kind is Kind.OP and self.op(node) in _IDENTITIES and bool(node.inputs)

    def readers(self, value: int) -> tuple[tuple[Node, int], ...]:
        """Readers of a value through Identity, with operand indices, in graph order."""
        readers: list[tuple[Node, int]] = []
        pending, nodes, uses = [value], self.graph.nodes, self.graph.uses
        while pending:
            for number, operand in uses.pairs(pending.pop()):
                node = nodes[number]
                passed_through = None
                if node.signature.op in _IDENTITIES and operand == 0 and self.is_identity(node):
                    passed_through = node.outputs[0]
                if passed_through is None:
                    readers.append((node, operand))
                else:
                    pending.append(passed_through)
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
        value = self.operand(node, operand)
        return None if value is None else self.graph.constants.get(self.origin(value))

    def finite_weight(self, value: int) -> ConstantFacts | None:
        """Statistics of a weight without infinities and NaN; None for any other value."""
        facts = self.graph.constants.get(value)
        if facts is None or facts.has_infinity or facts.has_nan:
            return None
        return facts if self.producer(value).kind is Kind.SOURCE else None

    def number(self, node: Node, operand: int) -> float | None:
        """The value of a scalar constant operand; else None."""
        facts = self.constant(node, operand)
        values = () if facts is None or facts.values is None else facts.values
        return values[0] if len(values) == 1 else None

    def shape(self, node: Node, operand: int) -> tuple[int | None, ...] | None:
        """Shape of an operand, None per unknown dimension; None if the rank is unknown."""
        value = self.operand(node, operand)
        return None if value is None else self.graph.shapes.get(value)

    @property
    def has_fixed_inputs(self) -> bool:
        """Whether all model inputs have static shapes, so that runtimes infer the rest."""
        return self._varying is not None

    def have_static_shapes(self, values: Iterable[int | None]) -> bool:
        """Whether a runtime knows the shapes of values before it runs: if all model inputs have
        static shapes, those of what depends on no other numbers than shapes. Lengths that exporters
        compute from Shape are among them, though ONNX's inference leaves them unknown.
        """
        return self._varying is not None and self._varying.isdisjoint(values)

    @cached_property
    def _varying(self) -> frozenset[int | None] | None:
        """Values of shapes that depend on numbers; None if an input has no static shape."""
        varying = set[int | None]()
        for node in self.graph.nodes:
            unknown = [value for value in node.present_outputs if not self._is_static(value)]
            if node.kind is Kind.INPUT and node.scope == 0 and unknown:
                return None
            is_plain = node.kind is Kind.OP and self.op(node) not in _SIZED_BY_NUMBERS
            if unknown and not (is_plain and varying.isdisjoint(node.inputs)):
                varying.update(unknown)
        return frozenset(varying)

    def _is_static(self, value: int) -> bool:
        shape = self.graph.shapes.get(value)
        return shape is not None and None not in shape

    def integers(self, node: Node, name: str) -> tuple[int, ...]:
        """A node's attribute that is a list of integers; empty if absent."""
        attribute = node.attributes.get(name)
        return tuple(int(item) for item in attribute) if isinstance(attribute, tuple | list) else ()

    def reduced_axes(self, node: Node) -> tuple[int, ...] | None:
        """Axes of a reduction, as attribute or operand, negative if the rank is known; None if they
        are computed or not given.
        """
        axes = self.integers(node, "axes")
        value = self.operand(node, 1)
        if value is not None:
            axes = self.graph.integers.get(self.origin(value), ())
        shape = self.shape(node, 0)
        if not axes:
            return None
        return tuple(
            axis - len(shape) if axis >= 0 and shape is not None else axis for axis in axes
        )

    @cached_property
    def _origins(self) -> dict[int, int]:
        return {}

    @cached_property
    def _is_fixed(self) -> list[bool]:
        """Per node, whether its outputs are constant."""
        values, fixed = self.graph.values, list[bool]()
        for node in self.graph.nodes:
            is_fixed = bool(node.inputs) or node.kind is Kind.SOURCE
            for value in node.inputs:
                if value is not None:
                    maker = values[value].producer
                    if maker >= node.id or not fixed[maker]:
                        is_fixed = False
                        break
            fixed.append(is_fixed and (not node.inputs or _can_fold(node)))
        return fixed


def _can_fold(node: Node) -> bool:
    """Whether an operator with constant operands has a constant result."""
    signature, kinds = node.signature, (Kind.OP, Kind.SOURCE, Kind.CAST)
    is_known = signature.op not in _NEVER_FOLDED and signature.dialect not in _OF_PROGRAMS
    return is_known and node.kind in kinds and bool(node.present_inputs)
