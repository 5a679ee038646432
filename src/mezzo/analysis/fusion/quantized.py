"""Quantized kernels of a target: which nodes run as one integer or FP8 kernel, an operator with its
fused epilogue.

Pure functions over a graph and a target's rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from mezzo.analysis.fusion.quantized_epilogues import BIAS, Epilogues, Offset
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.nodes import Kind, Node, Role, Use
from mezzo.tables.quantized_kernels import Bias, Operand, OutputMode, QuantizedKernel
from mezzo.tables.target import Target

_SCALINGS = frozenset({"Mul", "Div"})


class Read(NamedTuple):
    """A value that a unit reads quantized, and the kernel's requirements on it."""

    use: Use
    value: int
    operand: Operand


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedUnit:
    """Nodes that run as one quantized kernel: its operator first, then its epilogue in order.

    `result` is the last node's output; `inside` are the intermediate values. `hands`: the kernel's
    output in this place. `offset`: the INT32 bias.
    """

    kernel: QuantizedKernel
    nodes: tuple[int, ...]
    reads: tuple[Read, ...]
    result: int
    inside: tuple[int, ...]
    hands: OutputMode
    offset: Offset | None = None


Takes = Callable[[Node, QuantizedKernel], bool]  # whether a kernel may be used for a node


def lacks(unit: QuantizedUnit, known: Mapping[int, Quantization] | None) -> int | None:
    """A value whose quantization parameters a unit needs but calibration did not find; None if
    there is none, or before calibration.
    """
    kernel = unit.kernel
    needed = [read.value for read in unit.reads if read.operand.is_weight or not kernel.is_dynamic]
    if unit.hands in (OutputMode.INTEGERS, OutputMode.READ):
        needed.append(unit.result)
    return None if known is None else next((value for value in needed if value not in known), None)


class Quantizers:
    """The quantized kernels of a target for one graph and one quantized format."""

    def __init__(
        self,
        view: FusionView,
        target: Target,
        dtype: DType,
        may_run: Sequence[bool],
        known: Mapping[int, Quantization] | None,
        takes: "Takes",
    ) -> None:
        """`may_run`: per node, whether it may be quantized at all. `known`: quantization parameters
        by value id; None before calibration, when all values count as quantizable. `takes`: whether
        a kernel may be used for a node.
        """
        self._view = view
        self._target = target
        self._dtype = dtype
        self._may_run = may_run
        self._known = known
        self._takes = takes
        self._epilogues = Epilogues(view, may_run, known)

    def units(self) -> tuple[QuantizedUnit, ...]:
        """The quantized units of the graph; each node is in at most one."""
        units, covered = [], set[int]()
        for node in self._view.graph.nodes:
            if node.kind is not Kind.OP or not self._may_run[node.id] or node.id in covered:
                continue
            unit = self._unit_of(node)
            if unit is not None:
                units.append(unit)
                covered.update(unit.nodes)
        return tuple(units)

    def _unit_of(self, node: Node) -> QuantizedUnit | None:
        """The unit that starts at a node, from the first matching row. If parameters are missing, a
        row with dynamic quantization is preferred, if there is one.
        """
        lacking: QuantizedUnit | None = None
        for kernel in self._kernels(node):
            if (
                not kernel.operands
                or not self._takes(node, kernel)
                or (lacking and not kernel.is_dynamic)
            ):
                continue
            reads = self._reads(node, kernel)
            if reads is None:
                continue
            unit = self._unit(node, kernel, reads)
            if self._is_spoilt(unit):
                continue
            if lacks(unit, self._known) is None:
                return unit
            lacking = lacking or unit
        return lacking

    def free_quantizes(self) -> Iterator[int]:
        """Values for which QuantizeLinear costs nothing although their producer runs in float."""
        for node in self._view.graph.nodes:
            if node.kind is Kind.OP and any(not kernel.operands for kernel in self._kernels(node)):
                yield from (value for value in node.outputs[:1] if value is not None)

    def _parameters(self, value: int) -> Quantization | None:
        return None if self._known is None else self._known.get(value)

    def _kernels(self, node: Node) -> Sequence[QuantizedKernel]:
        return self._target.quantized_kernels(
            self._dtype, *node.signature.operator, node.attributes
        )

    def _reads(self, node: Node, kernel: QuantizedKernel) -> tuple[Read, ...] | None:
        """A node's quantized inputs by a kernel's row; None if the row does not match."""
        outputs = [value for value in node.outputs if value is not None]
        may_have_several = kernel.is_dynamic or kernel.only_moves
        if not outputs or (len(outputs) > 1 and not may_have_several):
            return None
        reads = []
        for operand in _spread(kernel.operands, len(node.inputs)):
            value, use = self._view.operand(node, operand.position), Use(node.id, operand.position)
            if value is None or node.signature.inputs[operand.position] is not Role.GROUP:
                return None
            if operand.is_weight and (stored := self._transposed(value, kernel)) is not None:
                use, value = stored
                if operand.axis is not None:
                    operand = replace(operand, axis=1 - operand.axis % 2)
            bound = operand.bound_by(self._demands.get(value, ()))
            if bound is None or operand.is_weight != self._view.is_constant(value):
                return None
            if not self._suits(value, bound, kernel):
                return None
            reads.append(Read(use, value, bound))
        if kernel.last_is_float:
            reads.remove(max(reads, key=lambda read: self._view.producer(read.value).id))
        return tuple(reads)

    def _transposed(self, value: int, kernel: QuantizedKernel) -> tuple[Use, int] | None:
        """The use that transposes a matrix for one reader, and the matrix; None for any other
        value.
        """
        node = self._view.producer(value)
        if node.kind is not Kind.OP or self._view.op(node) not in kernel.through:
            return None
        (source,) = node.inputs
        is_alone = len(self._view.graph.uses[value]) == 1 and self._may_run[node.id]
        if source is None or node.attributes.get("perm") != (1, 0) or not is_alone:
            return None
        return Use(node.id, 0), source

    def _suits(self, value: int, operand: Operand, kernel: QuantizedKernel) -> bool:
        """Whether a value's quantization fits a kernel's requirements."""
        graph = self._view.graph
        if operand.rank is not None:
            shape = graph.shapes.get(value)
            if shape is None or len(shape) != operand.rank:
                return False
        if operand.is_weight:
            is_finite = self._view.finite_weight(value) is not None
            return is_finite and self._has_scales_along(value, operand)
        parameters = self._parameters(value)
        if parameters is None or kernel.is_dynamic:
            return True
        is_first = parameters.dtype is operand.dtype
        return operand.takes(parameters.dtype, parameters.is_symmetric) and (
            is_first or not self._comes_from(value, operand.not_from)
        )

    @cached_property
    def _demands(self) -> Mapping[int, tuple[Operand, ...]]:
        """Requirements of readers on the storage of each value, directly or through operators past
        which runtimes move DequantizeLinear; by value id.
        """
        demands: dict[int, tuple[Operand, ...]] = {}
        for node in reversed(self._view.graph.nodes):
            if node.kind is not Kind.OP:
                continue
            kernels = self._kernels(node)
            operands = [
                operand for kernel in kernels for operand in kernel.operands if operand.is_binding
            ]
            required = {
                operand: None
                for value in node.outputs
                if value in demands
                for operand in demands[value]
            }
            moved = required if required and any(_keeps_steps(kernel) for kernel in kernels) else {}
            for position, value in enumerate(node.inputs):
                bound = (
                    dict.fromkeys(operand for operand in operands if operand.position == position)
                    | moved
                )
                if value is not None and bound:
                    demands[value] = tuple(dict.fromkeys((*demands.get(value, ()), *bound)))
        return demands

    def _comes_from(self, value: int, operators: Set[str]) -> bool:
        """Whether a value, possibly moved, is the output of one of these operators."""
        while operators:
            maker = self._view.producer(value)
            if maker.kind is not Kind.OP or self._view.op(maker) in operators:
                return maker.kind is Kind.OP
            source = maker.inputs[0] if maker.inputs else None
            if source is None or not self._moves(maker):
                return False
            value = source
        return False

    def _moves(self, node: Node) -> bool:
        """Whether a node only moves or selects elements."""
        return any(kernel.only_moves for kernel in self._kernels(node))

    def _has_scales_along(self, value: int, operand: Operand) -> bool:
        """Whether a weight's scales, if known, are along the axis that a kernel supports; one scale
        per tensor always fits.
        """
        parameters = self._parameters(value)
        if parameters is None or parameters.axis is None:
            return True
        shape = self._view.graph.shapes.get(value)
        return (
            operand.axis is not None
            and shape is not None
            and parameters.axis == operand.axis % len(shape)
        )

    def _unit(self, node: Node, kernel: QuantizedKernel, reads: tuple[Read, ...]) -> QuantizedUnit:
        nodes, last, offset = [node.id], node, self._epilogues.offset(node, kernel)
        nodes += [read.use.node for read in reads if read.use.node != node.id]
        if kernel.bias is Bias.INT32 and offset is None and len(node.inputs) <= BIAS:
            bias_add = self._epilogues.added(node)
            if bias_add is not None:
                last, offset = bias_add
                nodes.append(last.id)
        hands = self._output_mode(node, last, kernel)
        for group in self._epilogues.following(last, kernel):
            nodes += [number for number in sorted(group) if number not in nodes]
            last = self._view.graph.nodes[group[-1]]
        produced = [
            value
            for number in nodes
            for value in self._view.graph.nodes[number].outputs
            if value is not None
        ]
        result = next((value for value in last.outputs if value is not None), None)
        assert result is not None, "what a kernel makes is read"
        inside = tuple(value for value in produced if value != result) if len(nodes) > 1 else ()
        return QuantizedUnit(
            kernel=kernel,
            nodes=tuple(nodes),
            reads=reads,
            result=result,
            inside=inside,
            offset=offset,
            hands=hands,
        )

    def _output_mode(self, node: Node, last: Node, kernel: QuantizedKernel) -> OutputMode:
        """Type of a unit's result. `last`: the Add of a bias, or the unit's operator itself. An
        activation that is cut needs the QuantizeLinear that replaces it, or the operator runs in
        floats; ahead of an output of the model only behind an Add.
        """
        reader = self._epilogues.sole_reader(last)
        if not kernel.is_cut or reader is None or self._view.op(reader) not in kernel.followers:
            return kernel.hands
        graph, value = self._view.graph, reader.outputs[0]
        uses = () if value is None else graph.uses[value]
        is_answer = any(graph.nodes[use.node].kind is Kind.OUTPUT for use in uses)
        return kernel.hands if is_answer and last is node else OutputMode.INTEGERS

    def _is_spoilt(self, unit: QuantizedUnit) -> bool:
        """Whether a reader of the unit's output makes the runtime give wrong results."""
        graph, kernel = self._view.graph, unit.kernel
        readers = (graph.nodes[use.node] for use in graph.uses[unit.result])
        if any(self._view.op(reader) in kernel.not_before for reader in readers):
            return True
        parameters = self._parameters(unit.result)
        if parameters is not None and unit.hands is OutputMode.INTEGERS:
            stored = parameters.dtype, parameters.is_symmetric
            if not all(demand.takes(*stored) for demand in self._demands.get(unit.result, ())):
                return True
        return (
            kernel.is_bare_alone and self._is_bare(unit) and self._has_several_readers(unit.result)
        )

    def _is_bare(self, unit: QuantizedUnit) -> bool:
        """Whether a unit is a matmul or convolution with no bias, and scalings."""
        product, *rest = (self._view.graph.nodes[number] for number in unit.nodes)
        bias = self._view.operand(product, BIAS)
        facts = None if bias is None else self._view.graph.constants.get(bias)
        is_zero = (
            facts is not None and facts.largest == 0.0 and not (facts.has_infinity or facts.has_nan)
        )
        return (bias is None or is_zero) and all(self._view.op(node) in _SCALINGS for node in rest)

    def _has_several_readers(self, value: int) -> bool:
        """Whether a value has several readers, directly or through data movement and scaling."""
        graph = self._view.graph
        while len(graph.uses[value]) == 1:
            reader = graph.nodes[graph.uses[value][0].node]
            outputs = [output for output in reader.outputs if output is not None]
            is_moved = reader.kind is Kind.OP and (
                self._moves(reader) or self._view.op(reader) in _SCALINGS
            )
            if not is_moved or not outputs:
                return False
            if len(outputs) > 1:
                return True
            value = outputs[0]
        return True


def _keeps_steps(kernel: QuantizedKernel) -> bool:
    """Whether a kernel moves, selects or averages integers, so that it has no weight operand."""
    return bool(kernel.operands) and not any(operand.is_weight for operand in kernel.operands)


def _spread(operands: Sequence[Operand], count: int) -> Iterator[Operand]:
    """The operands of a row; one with `and_rest` is repeated for all later positions."""
    for operand in operands:
        last = count if operand.and_rest else operand.position + 1
        for position in range(operand.position, last):
            yield replace(operand, position=position, and_rest=False)
