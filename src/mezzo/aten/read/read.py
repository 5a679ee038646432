"""Reader of functional ATen graphs: builds the planner's graph from an FX graph."""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import fx

from mezzo.aten.program import (
    TORCH_DTYPES,
    Program,
    ProgramTensor,
    attribute_of,
    dtype_of,
    tensor_of,
    torch_dtype_of,
)
from mezzo.aten.read.arguments import CallOperand, operands_for_rules, operands_of, plain_arguments
from mezzo.aten.read.attributes import attributes_of, number_filled_in
from mezzo.aten.read.constants import Constants
from mezzo.aten.read.groups import Facts, composite_of, dialect_and_op, split
from mezzo.aten.read.origins import lines_of, module_of
from mezzo.aten.read.ports import Prober, Typed, is_getitem, role_of
from mezzo.aten.read.retype import fake_mode_of
from mezzo.aten.read.scales import is_multiplication
from mezzo.formats.dtypes import FORMATS, HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, Role, Scope, Signature, Value, name_port
from mezzo.plugins.discovery import op_facts
from mezzo.tables.facts import OpFacts

DIALECT = "aten"
_OF_SHAPES = frozenset(
    {
        torch.ops.aten.sym_size.int,
        torch.ops.aten.sym_size.default,
        torch.ops.aten.sym_stride.int,
        torch.ops.aten.sym_stride.default,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten.sym_storage_offset.default,
    }
)
_BACKWARD = "backward"
_SCALED = "scaled"
_UNKNOWN_SIZE = 64  # assumed for a dimension without a hint; any constant works if all agree


@dataclass(frozen=True, eq=False, kw_only=True)
class TorchReading:
    """A program and its planner graph. `calls` lists the FX nodes of each planner node, by id;
    `operands` lists its inputs, by position; `holders` lists the FX node that produces each value
    (None for Python scalars among a call's arguments).
    """

    program: Program
    graph: Graph
    lows: tuple[DType, ...]
    calls: Sequence[tuple[fx.Node, ...]]
    operands: Sequence[tuple[CallOperand, ...]]
    holders: Sequence[fx.Node | None]
    dialect: str = field(default=DIALECT, init=False)
    version: int | None = field(default=None, init=False)

    def is_composite(self, node: int) -> bool:
        """Whether a node stands for several FX calls, which compute in FP32 internally."""
        return len(self.calls[node]) > 1


def read_program(
    program: Program, lows: Sequence[DType], without: Set[str] = frozenset()
) -> TorchReading:
    """Build the planner's graph of a program for a conversion to `lows`. `without` names unused
    placeholders to leave out.
    """
    return _Reader(program, lows, without).read()


def facts_of(dialect: str, op: str) -> OpFacts | None:
    """The operator's row in the fact tables; None for an unlisted operator."""
    return op_facts(dialect).get(op)


class _Reader:
    def __init__(self, program: Program, lows: Sequence[DType], without: Set[str]) -> None:
        self.program, self.lows, self.without = program, tuple(lows), without
        self.prober = Prober(fake_mode_of(program.graph), program.owner, lows)
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.calls: list[tuple[fx.Node, ...]] = []
        self.operands: list[tuple[CallOperand, ...]] = []
        self.holders: list[fx.Node | None] = []
        self.numbers: dict[int, float] = {}
        self.number_of: dict[CallOperand, int] = {}  # value ids of the current call's scalars
        self.modules: dict[int, str] = {}
        self.marks: dict[int, DType | None] = {}
        self.held: dict[int, ProgramTensor] = {}
        self.value_of: dict[fx.Node, int] = {}
        self.shapes: dict[int, tuple[int | None, ...]] = {}
        self.taken: Counter[str] = Counter()
        self.ends: dict[object, Signature] = {}  # of inputs, outputs and constants
        self.facts: Facts = facts_of

    def read(self) -> TorchReading:
        graph = self.program.graph
        for node in graph.nodes:
            if node.op == "placeholder":
                self._read_placeholder(node)
            elif node.op == "get_attr" and tensor_of(node) is not None:
                self._read_constant(node)
            elif node.name in self.program.scaled:
                self._add_weight(node, self.program.scaled[node.name])
        for pieces in split(graph, self.facts):
            self._read_call(pieces)
        self._read_outputs(graph.output_node())
        result = Graph(
            nodes=tuple(self.nodes),
            values=tuple(self.values),
            scopes=(Scope(None, None, "", 1),),
            constants=Constants(
                self.held,
                self.numbers,
                {number: self.values[number].elements for number in self.numbers},
                is_sampled=all(low in FORMATS and FORMATS[low].is_wide for low in self.lows),
            ),
            widened=frozenset(),
            aliased=frozenset(),
            forms={},
            modules=self.modules,
            marks=self.marks,
            shapes=self.shapes,
            shared=frozenset(
                number
                for number in self.held
                if (holder := self.holders[number]) is not None
                and self.program.shares_elements(holder)
            ),
            lines=lines_of([calls[0] if calls else None for calls in self.calls]),
        )
        return TorchReading(
            program=self.program,
            graph=result,
            lows=self.lows,
            calls=tuple(self.calls),
            operands=tuple(self.operands),
            holders=tuple(self.holders),
        )

    def _read_placeholder(self, node: fx.Node) -> None:
        if tensor_of(node) is None or node.name in self.without:
            return
        weight = self.program.weights.get(node.name)
        if weight is not None:
            self._add_weight(node, weight)
            return
        name = self.program.names.get(node.name, node.name)
        self._add(
            self._unique(name_port(Kind.INPUT, name)),
            Kind.INPUT,
            self._end("input", node, is_made=True),
            (),
            [node],
            (),
            name,
        )

    def _read_constant(self, node: fx.Node) -> None:

        def find() -> torch.Tensor:
            tensor = attribute_of(self.program.owner, node)
            assert isinstance(tensor, torch.Tensor), "a constant is a tensor"
            return tensor

        weight = self.program.weights.get(node.name)
        self._add_weight(node, weight or ProgramTensor(str(node.target), find))

    def _add_weight(self, node: fx.Node, weight: ProgramTensor) -> None:
        number = len(self.values)
        self._add(
            self._unique(f"weight {weight.name}"),
            Kind.SOURCE,
            self._end("const", node, is_made=True),
            (),
            [node],
            (),
            weight.name,
        )
        self.held[number] = weight

    def _end(self, op: str, node: fx.Node, *, is_made: bool) -> Signature:
        """The signature of an input, an output or a weight."""
        is_high = dtype_of(node) is HIGH
        return self._port(op, role_of(torch_dtype_of(node)), is_high=is_high, is_made=is_made)

    def _port(self, op: str, role: Role, *, is_high: bool, is_made: bool) -> Signature:
        key = op, role, is_high
        if key not in self.ends:
            self.ends[key] = Signature(
                dialect="",
                op=op,
                version=1,
                inputs=() if is_made else (role,),
                outputs=(role,) if is_made else (),
                dtype=HIGH if is_high else None,
                legal=frozenset({HIGH, DType.QUANTIZED8, *self.lows}) if is_high else frozenset(),
            )
        return self.ends[key]

    def _read_call(self, pieces: list[fx.Node]) -> None:
        call = pieces[0]
        # A getitem is an output of its producer, or picks from a call without tensors.
        if is_getitem(call) or call.name in self.program.scaled:
            return
        if len(pieces) > 1:
            self._read_composite(pieces)
            return
        dialect, op = dialect_and_op(call.target, self.facts)
        arguments = plain_arguments(call)
        visible = [
            operand
            for operand in operands_for_rules(call, op)
            if operand.node is None or operand.node in self.value_of
        ]
        tensors = [operand for operand in visible if operand.node is not None]
        fill_value = (
            number_filled_in(op, arguments) if dtype_of(call) is HIGH and not tensors else None
        )
        if fill_value is not None:
            self._add_filled(call, op, fill_value)
            return
        operands = visible if tensors else []
        typed = self.prober.ports_of(call, operands, self.facts(dialect, op) is not None)
        results: list[fx.Node | None] = [call]
        if isinstance(call.meta.get("val"), tuple | list):
            results = [None] * len(call.meta["val"])
            for user in call.users:
                if (
                    is_getitem(user)
                    and isinstance(user.args[1], int)
                    and results[user.args[1]] is None
                ):
                    results[user.args[1]] = user
        self._add_call(pieces, dialect, op, typed, operands, results, attributes_of(op, arguments))

    def _read_composite(self, pieces: list[fx.Node]) -> None:
        inside = set(pieces)
        operands = [
            CallOperand(node, "", None)
            for node in dict.fromkeys(
                operand.node for piece in pieces for operand in operands_of(piece)
            )
            if node in self.value_of and node not in inside
        ]
        results = [
            piece
            for piece in pieces
            if tensor_of(piece) is not None and not inside.issuperset(piece.users)
        ]
        typed = self.prober.ports_of_composite(
            [operand.node for operand in operands if operand.node is not None], results
        )
        dialect, op = dialect_and_op(composite_of(pieces), self.facts)
        self._add_call(pieces, dialect, op, typed, operands, results, {})

    def _add_filled(self, node: fx.Node, op: str, number: float) -> None:
        """Record a tensor filled with a single number as a constant."""
        name = self._unique(self._under([node], op))
        signature = self._end("const", node, is_made=True)
        self.numbers[len(self.values)] = number
        self._add(name, Kind.SOURCE, signature, (), [node], (node,), None, module_of(node))

    def _add_call(
        self,
        pieces: Sequence[fx.Node],
        dialect: str,
        op: str,
        typed: Typed,
        operands: Sequence[CallOperand],
        results: Sequence[fx.Node | None],
        attributes: Mapping[str, object],
    ) -> None:
        output_nodes = [
            result if result is not None and tensor_of(result) is not None else None
            for result in results
        ]
        if not any(output_nodes) and (not operands or pieces[0].target in _OF_SHAPES):
            return  # shape arithmetic
        outputs = typed.outputs[: len(output_nodes)]
        signature = self.prober.signature(dialect, op, typed._replace(outputs=outputs))
        module = module_of(pieces[0])
        name = self._unique(self._under(pieces, op))
        for operand in operands:
            if operand.number is not None:
                self._add_number(name, operand, typed)
        mark = self.program.mark_of(pieces[0])
        if mark is not None:
            self.marks[len(self.nodes)] = mark.dtype
        self._add(
            name,
            Kind.OP,
            signature,
            operands,
            output_nodes,
            tuple(pieces),
            None,
            module,
            attributes,
        )

    def _add_number(self, name: str, operand: CallOperand, typed: Typed) -> None:
        """Record a Python scalar among a call's arguments as a constant node."""
        assert operand.number is not None, "asked of numbers"
        number = len(self.values)
        is_high = typed.dtype is HIGH
        signature = self._port("const", Role.GROUP, is_high=is_high, is_made=True)
        node = Node(
            len(self.nodes),
            f"number {operand.argument} of {name}",
            Kind.SOURCE,
            signature,
            0,
            (),
            (number,),
            {},
        )
        dtype = signature.dtype
        self.values.append(Value(f"{name}.{operand.argument}", dtype, node.id, 0, 1, True))
        self.shapes[number] = ()
        self.numbers[number] = operand.number
        self.number_of[operand] = number
        self.holders.append(None)
        self.nodes.append(node)
        self.calls.append(())
        self.operands.append(())

    def _under(self, calls: Sequence[fx.Node], op: str) -> str:
        module = module_of(calls[0])
        phase = () if self.program.backward.isdisjoint(calls) else (_BACKWARD,)
        if is_multiplication(calls[0]):  # others keep their numbers
            phase = (*phase, _SCALED)
        return "/".join((*self.program.path, *((module,) if module else ()), *phase, op))

    def _unique(self, name: str) -> str:
        count = self.taken[name]
        self.taken[name] += 1
        return f"{name}#{count}" if count else name

    def _add(
        self,
        name: str,
        kind: Kind,
        signature: Signature,
        operands: Sequence[CallOperand],
        results: Sequence[fx.Node | None],
        calls: tuple[fx.Node, ...],
        value_name: str | None,
        module: str = "",
        attributes: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        number = len(self.nodes)
        outputs: list[int | None] = []
        for position, result in enumerate(results):
            if result is None:
                outputs.append(None)
                continue
            own_name = value_name or (name if len(results) == 1 else f"{name}:{position}")
            tensor, value = tensor_of(result), len(self.values)
            assert tensor is not None, "a value is a tensor"
            sizes = tuple(tensor.shape)
            self.value_of[result] = value
            outputs.append(value)
            self.shapes[value] = tuple(map(_known_size, sizes))
            elements = count_elements(tensor)
            self.values.append(
                Value(own_name, TORCH_DTYPES.get(tensor.dtype), number, 0, elements, True)
            )
            self.holders.append(result)
        inputs = tuple(
            self.number_of.get(operand) if operand.node is None else self.value_of[operand.node]
            for operand in operands
        )
        self.nodes.append(
            Node(number, name, kind, signature, 0, inputs, tuple(outputs), attributes)
        )
        self.calls.append(calls)
        self.operands.append(tuple(operands))
        if module:
            self.modules[number] = module

    def _read_outputs(self, node: fx.Node) -> None:
        counted = itertools.count()
        for name, result in self.program.returned:
            position = None if result is None else next(counted)
            if result is None or result not in self.value_of:
                continue
            signature = self._end("output", result, is_made=False)
            operand = CallOperand(result, "", position)
            self._add(
                self._unique(name_port(Kind.OUTPUT, name)),
                Kind.OUTPUT,
                signature,
                [operand],
                [],
                (node,),
                None,
            )


def _known_size(size: object) -> int | None:
    return size if isinstance(size, int) else None


def count_elements(held: torch.Tensor) -> int:
    """The number of elements of a tensor; symbolic sizes count with their hint from tracing."""
    return math.prod(nominal_shape(held))


def nominal_shape(held: torch.Tensor) -> tuple[int, ...]:
    """A tensor's shape as integers, with hints from tracing for symbolic sizes."""
    return tuple(map(_nominal_size, held.shape))


def _nominal_size(size: object) -> int:
    """A size as an integer. A symbolic size yields its hint without adding a guard."""
    if isinstance(size, torch.SymInt):
        hint: object = size.node.hint if size.node.has_hint() else None
        return hint if isinstance(hint, int) else _UNKNOWN_SIZE
    assert isinstance(size, int), "sizes are numbers"
    return size
