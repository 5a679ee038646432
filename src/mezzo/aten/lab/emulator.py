"""Mixed-precision emulation: runs any assignment with real rounding, without graph rewriting."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from mezzo.aten.edit.quantizing import round_in_own_range, round_through_integers
from mezzo.aten.lab.rounding import EMULATED, round_through
from mezzo.aten.lab.runner import AtenRunner, failure, wide
from mezzo.aten.read.read import TorchReading
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.lab import Answers, Feeds
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.formats.dtypes import HIGH, QUANTIZED, DType
from mezzo.ir.nodes import Kind, Node, Role, Use


class AtenEmulator:
    """A program that can run under any assignment of precisions.

    A low-precision call has its operands and results rounded and computes in FP32; a composite is
    treated as one call. Weights take their users' precision, and are rounded once per format.
    """

    def __init__(
        self,
        reading: TorchReading,
        formats: Sequence[DType],
        accumulation: Accumulation | None,
        sums_high: Collection[int],
        limits: Mapping[int, float],
        quantized: QuantizedPorts = NO_PORTS,
    ) -> None:
        """Raises ContractError: a format cannot be emulated."""
        unsupported = [dtype for dtype in formats if dtype not in EMULATED]
        if unsupported:
            supported = ", ".join(sorted(map(str, EMULATED)))
            raise ContractError(
                f"{unsupported[0]} is not emulated in PyTorch programs; the formats are {supported}"
            )
        self.reading, self._graph = reading, reading.graph
        self._formats = tuple(formats)
        self.accumulation, self.sums_high, self.limits = (
            accumulation,
            frozenset(sums_high),
            limits,
        )
        self.quantized = quantized
        self.arithmetic = wide(accumulation)
        self.runner = AtenRunner(reading.program, self.arithmetic)
        self.rounded: dict[tuple[fx.Node, DType], torch.Tensor] = {}
        self.owner = {call: number for number, calls in enumerate(reading.calls) for call in calls}
        self.values = {
            holder: number for number, holder in enumerate(reading.holders) if holder is not None
        }

    def run(self, feeds: Feeds, precision_of: Mapping[int, DType]) -> Answers:
        low = {
            number: dtype for number, dtype in precision_of.items() if self._is_low(number, dtype)
        }
        tensors = self.runner.inputs.tensors(feeds)
        with torch.no_grad():
            return self.runner.answers(_Walk(self, low).walk(tensors))

    def _is_low(self, number: int, dtype: DType) -> bool:
        nodes = self._graph.nodes
        if not 0 <= number < len(nodes):
            raise InputError(f"the program has no node {number}; ids go from 0 to {len(nodes) - 1}")
        node, dtype_in_program = nodes[number], nodes[number].signature.dtype
        if node.kind in (Kind.SOURCE, Kind.CAST) or dtype is (dtype_in_program or HIGH):
            return False
        if dtype_in_program is not HIGH:
            state = (
                "computes no floats"
                if dtype_in_program is None
                else f"is {dtype_in_program} in the program already"
            )
            raise InputError(
                f"node {node.name!r} {state}, so it cannot run in {dtype}; leave it out"
            )
        if dtype is HIGH:
            return False
        if dtype not in self._formats:
            formats = ", ".join(map(str, self._formats)) or "none"
            raise InputError(
                f"node {node.name!r}: this emulator was not made for {dtype}; its formats are"
                f" {formats}"
            )
        return True


class _Walk:
    """One run of an emulator."""

    def __init__(self, emulator: AtenEmulator, low: Mapping[int, DType]) -> None:
        self._emulator, self._low = emulator, low
        self._reading, self._runner = emulator.reading, emulator.runner
        self._held: dict[fx.Node, Any] = {}
        self._handed: dict[fx.Node, Any] = {}  # rounded results of composites, for other nodes

    def walk(self, tensors: Mapping[fx.Node, torch.Tensor]) -> object:
        results = self._held
        results |= self._runner.fed(tensors)
        self._round_inputs()
        for node in self._runner.program.graph.nodes:
            if node.op == "output":
                break
            if node.op == "get_attr":
                results[node] = self._runner.constant(node)
            elif node.op != "placeholder":
                results[node] = self._call(node)
            for unused in self._runner.dead_after(node):
                del results[unused]
                self._handed.pop(unused, None)
        return self._returned(node)

    def _round_inputs(self) -> None:
        graph = self._reading.graph
        for number, dtype in self._low.items():
            node = graph.nodes[number]
            if node.kind is Kind.INPUT:
                holder = self._holder(node)
                self._held[holder] = round_through(self._held[holder], dtype)

    def _holder(self, node: Node) -> fx.Node:
        (value,) = node.outputs
        assert value is not None, "an input makes a value"
        holder = self._reading.holders[value]
        assert holder is not None, "an input is a node"
        return holder

    def _returned(self, end: fx.Node) -> object:
        """The program's outputs, each rounded to its planned precision."""
        graph = self._reading.graph
        outputs = iter([node for node in graph.nodes if node.kind is Kind.OUTPUT])

        def output_value(output: object) -> object:
            if not isinstance(output, fx.Node):
                return output
            value = self._read(output, None)
            if output not in self._emulator.values:
                return value
            dtype = self._low.get(next(outputs).id)
            return value if dtype is None else round_through(value, dtype)

        returned = end.args[0]
        return (
            [output_value(output) for output in returned]
            if isinstance(returned, tuple | list)
            else output_value(returned)
        )

    def _call(self, call: fx.Node) -> object:
        number = self._emulator.owner.get(call)
        dtype = None if number is None else self._low.get(number)
        if number is None or dtype is None:
            args, kwargs = fx.map_arg(
                (call.args, call.kwargs), lambda operand: self._read(operand, number)
            )
            return self._runner.compute(call, args, kwargs)
        if dtype in QUANTIZED:
            return self._in_integers(call, number)
        if self._reading.is_composite(number):
            return self._piece(call, number, dtype)
        return self._alone(call, number, dtype)

    def _alone(self, call: fx.Node, number: int, dtype: DType) -> object:
        """Run a single low-precision call; rounded operands are identified by traversal order."""
        signature = self._reading.graph.nodes[number].signature
        operands = zip(self._reading.operands[number], signature.inputs, strict=True)
        rounded = {operand.place for operand, role in operands if role is Role.GROUP}
        visited = itertools.count()

        def operand_value(item: fx.Node) -> Any:
            is_rounded = next(visited) in rounded
            return self._rounded(item, number, dtype) if is_rounded else self._read(item, number)

        args, kwargs = fx.map_arg((call.args, call.kwargs), operand_value)
        emulator = self._emulator
        sums = None if number in emulator.sums_high else emulator.accumulation
        try:
            result = emulator.arithmetic.compute(call, args, kwargs, sums)
        except Exception as error:
            raise failure(call, error) from error
        if not isinstance(result, tuple | list):
            return self._made(result, signature.outputs[0], dtype)
        return [
            self._made(
                item, signature.outputs[place] if place < len(signature.outputs) else None, dtype
            )
            for place, item in enumerate(result)
        ]

    def _in_integers(self, call: fx.Node, number: int) -> object:
        """Run a call of a quantized kernel: operands and results that it has in integers are
        rounded, and sums are exact.
        """
        graph, ports = self._reading.graph, self._emulator.quantized
        node, operands = graph.nodes[number], self._reading.operands[number]
        read = {
            operand.place: ports.reads[Use(number, at)]
            for at, operand in enumerate(operands)
            if Use(number, at) in ports.reads
        }
        product = ports.dynamic.get(number)
        data_place = None if product is None else operands[product.data].place
        visited = itertools.count()

        def operand_value(item: fx.Node) -> Any:
            place, value = next(visited), self._read(item, number)
            if place == data_place:
                return round_in_own_range(value)
            how = read.get(place)
            return value if how is None else round_through_integers(value, how)

        args, kwargs = fx.map_arg((call.args, call.kwargs), operand_value)
        result = self._runner.compute(call, args, kwargs)
        (value,) = node.outputs[:1]
        how = None if value is None else ports.makes.get(value)
        if how is None or not isinstance(result, torch.Tensor):
            return result
        return round_through_integers(result, how)

    def _piece(self, call: fx.Node, number: int, dtype: DType) -> object:
        """Run one piece of a low-precision composite, in FP32."""
        node = self._reading.graph.nodes[number]
        operands = zip(self._reading.operands[number], node.signature.inputs, strict=True)
        rounded = {operand.node for operand, role in operands if role is Role.GROUP}

        def operand_value(operand_node: fx.Node) -> Any:
            return (
                self._rounded(operand_node, number, dtype)
                if operand_node in rounded
                else self._read(operand_node, number)
            )

        args, kwargs = fx.map_arg((call.args, call.kwargs), operand_value)
        result = self._runner.compute(call, args, kwargs)
        value = self._emulator.values.get(call)
        if value is not None and value in node.outputs:
            role = node.signature.outputs[node.outputs.index(value)]
            self._handed[call] = self._made(result, role, dtype)
        return result

    def _read(self, node: fx.Node, reader: int | None) -> Any:
        """A node's value as `reader` gets it: pieces of one composite get the unrounded value."""
        rounded = self._handed.get(node)
        return (
            self._held[node] if rounded is None or self._emulator.owner[node] == reader else rounded
        )

    def _rounded(self, node: fx.Node, reader: int, dtype: DType) -> torch.Tensor:
        """An operand rounded to a format; weights are rounded only once."""
        graph, value = self._reading.graph, self._emulator.values[node]
        if graph.nodes[graph.values[value].producer].kind is not Kind.SOURCE:
            return round_through(self._read(node, reader), dtype)
        limit = self._emulator.limits.get(value)
        if node.op == "call_function":  # a fill, whose size may change between runs
            return round_through(self._held[node], dtype, limit)
        cache = self._emulator.rounded
        if (node, dtype) not in cache:
            cache[node, dtype] = round_through(self._held[node], dtype, limit)
        return cache[node, dtype]

    @staticmethod
    def _made(result: Any, role: Role | None, dtype: DType) -> Any:
        is_rounded = (
            role is Role.GROUP
            and isinstance(result, torch.Tensor)
            and result.dtype is torch.float32
        )
        return round_through(result, dtype) if is_rounded else result
