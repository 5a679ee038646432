"""A graph as a pattern sees it: what makes an operand, who reads a value, what is a constant.

Operators that hand their input on unchanged (Identity, and Dropout in inference) are seen through: no runtime runs
them. A constant is a weight, or what operators of ONNX make of weights alone: a runtime works those out before it runs.
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
# These draw or wait; what they make of constants is no constant. The next two stay, as a kernel reads its scales.
_NEVER_FOLDED = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
    | {"QuantizeLinear", "DequantizeLinear", "If", "Loop", "Scan", "SequenceMap"}
)
# Programs are compiled with weights as inputs, which may change: what is made of them is made anew at each run.
_OF_PROGRAMS = frozenset({"aten", "prims"})


@dataclass(frozen=True)
class View(GraphView):
    """A graph with its operators' facts, and the walks that patterns need."""

    def op(self, node: Node) -> str:
        """The operator's name; one of another domain has it in front: "com.microsoft:Gelu"."""
        dialect = node.signature.dialect
        return node.op if dialect == _DIALECT else f"{dialect}:{node.op}"

    def is_pointwise(self, node: Node) -> bool:
        """Whether an operator computes number by number, on floats or on truth values."""
        row = self.rows[node.id]
        return node.kind is Kind.OP and row is not None and row.cost is Cost.POINTWISE

    def is_float(self, node: Node) -> bool:
        """Whether an operator computes in a float that fused kernels have: in FP64 none does."""
        dtype = node.signature.dtype
        return node.kind is Kind.OP and dtype is not None and dtype is not DType.FLOAT64

    def maker(self, node: Node, operand: int) -> Node | None:
        """The operator of the same scope that makes an operand; None where it is a constant, an input or left out."""
        value = node.inputs[operand] if operand < len(node.inputs) else None
        if value is None:
            return None
        made = self.graph.nodes[self.graph.values[self.origin(value)].producer]
        return made if made.kind is Kind.OP and made.scope == node.scope and not self.is_folded(made) else None

    def origin(self, value: int) -> int:
        """The value that operators have handed on unchanged as this one."""
        passed = []
        while value not in self._origins:
            maker = self.graph.nodes[self.graph.values[value].producer]
            source = maker.inputs[0] if self.hands_on(maker) and value == maker.outputs[0] else None
            if source is None:
                break
            passed.append(value)
            value = source
        known = self._origins.get(value, value)
        self._origins.update(dict.fromkeys(passed, known))  # so that a long chain is walked once
        return known

    def hands_on(self, node: Node) -> bool:
        """Whether a node gives its input unchanged."""
        return node.kind is Kind.OP and self.op(node) in _HANDS_ON and bool(node.inputs)

    def readers(self, value: int) -> tuple[tuple[Node, int], ...]:
        """Who reads a value, and at which operand: operators, outputs and ties, in graph order."""
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
        """The one operator of the same scope that reads what a node makes; None where anything else does too."""
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
        """Whether anything outside `members` reads what a node makes."""
        return any(
            use.node not in members for output in node.outputs if output is not None for use in self.graph.uses[output]
        )

    def same(self, left: int | None, right: int | None) -> bool:
        """Whether two operands are one value."""
        return left is not None and right is not None and self.origin(left) == self.origin(right)

    def is_constant(self, value: int | None) -> bool:
        """Whether a value is worked out before the model runs."""
        return value is not None and self._is_fixed[self.graph.values[value].producer]

    def is_folded(self, node: Node) -> bool:
        """Whether an operator works on constants alone."""
        return node.kind is Kind.OP and self._is_fixed[node.id]

    def constant(self, node: Node, operand: int) -> ConstantFacts | None:
        """What a weight holds that is an operand; None where it is computed, of constants too, or left out."""
        value = node.inputs[operand] if operand < len(node.inputs) else None
        return None if value is None else self.graph.constants.get(self.origin(value))

    def number(self, node: Node, operand: int) -> float | None:
        """The one number that a constant operand holds; None where it is not one number."""
        facts = self.constant(node, operand)
        return facts.values[0] if facts is not None and facts.values is not None and len(facts.values) == 1 else None

    def shape(self, node: Node, operand: int) -> tuple[int | None, ...] | None:
        """Shape of an operand, None per unknown dimension; None where nothing is known."""
        value = node.inputs[operand] if operand < len(node.inputs) else None
        return None if value is None else self.graph.shapes.get(value)

    @cached_property
    def has_fixed_inputs(self) -> bool:
        """Whether the model's inputs have shapes without unknown dimensions: runtimes then know all that follows."""
        graph = self.graph
        inputs = [node for node in graph.nodes if node.kind is Kind.INPUT and node.scope == 0]
        shapes = [graph.shapes.get(value) for node in inputs for value in node.outputs if value is not None]
        return all(shape is not None and None not in shape for shape in shapes)

    def integers(self, node: Node, name: str) -> tuple[int, ...]:
        """A list of integers that a node has as an attribute; empty where it has none."""
        held = node.attributes.get(name)
        return tuple(int(one) for one in held) if isinstance(held, tuple | list) else ()

    @cached_property
    def _origins(self) -> dict[int, int]:
        return {}

    @cached_property
    def _is_fixed(self) -> list[bool]:
        """Per node, whether what it makes is a constant. In graph order, so that operands come first."""
        values, fixed = self.graph.values, []
        for node in self.graph.nodes:
            if node.kind is Kind.SOURCE and not node.inputs:
                fixed.append(True)
                continue
            is_computed = node.kind in (Kind.OP, Kind.SOURCE, Kind.CAST)
            can_fold = is_computed and node.op not in _NEVER_FOLDED and node.signature.dialect not in _OF_PROGRAMS
            operands = [values[value].producer for value in node.inputs if value is not None]
            fixed.append(can_fold and bool(operands) and all(at < node.id and fixed[at] for at in operands))
        return fixed
