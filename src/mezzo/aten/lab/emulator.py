"""Runs any assignment of a program in true rounding, without building the program anew."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from mezzo.aten.lab.rounding import FORMATS, round_through
from mezzo.aten.lab.runner import Runner, failure, wide
from mezzo.aten.read.read import TorchReading
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.lab import Answers, Feeds
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Node, Role


class Emulator:
    """A program ready to run under any assignment.

    A call that runs low has its operands and its results rounded, and computes in FP32 between; an operator of several
    calls likewise, as one. Weights follow whoever reads them, and are rounded once.
    """

    def __init__(
        self,
        reading: TorchReading,
        formats: Sequence[DType],
        accumulation: Accumulation | None,
        sums_high: Collection[int],
        limits: Mapping[int, float],
    ) -> None:
        """Raises ContractError: a format is none that is emulated."""
        strange = [dtype for dtype in formats if dtype not in FORMATS]
        if strange:
            known = ", ".join(sorted(map(str, FORMATS)))
            raise ContractError(f"{strange[0]} is not emulated in PyTorch programs; the formats are {known}")
        self._reading, self._graph = reading, reading.graph
        self._formats = tuple(formats)
        self._accumulation, self._sums_high, self._limits = accumulation, frozenset(sums_high), limits
        self._arithmetic = wide(accumulation)
        self._runner = Runner(reading.program, self._arithmetic)
        self._rounded: dict[tuple[fx.Node, DType], torch.Tensor] = {}
        self._owner = {call: number for number, calls in enumerate(reading.calls) for call in calls}
        self._values = {holder: number for number, holder in enumerate(reading.holders) if holder is not None}

    def run(self, feeds: Feeds, precision_of: Mapping[int, DType]) -> Answers:
        low = {number: dtype for number, dtype in precision_of.items() if self._is_low(number, dtype)}
        given = self._runner.inputs.tensors(feeds)
        with torch.no_grad():
            return self._runner.answers(_Walk(self, low).walk(given))

    def _is_low(self, number: int, dtype: DType) -> bool:
        nodes = self._graph.nodes
        if not 0 <= number < len(nodes):
            raise InputError(f"the program has no node {number}; ids go from 0 to {len(nodes) - 1}")
        node, held = nodes[number], nodes[number].signature.dtype
        if node.kind in (Kind.SOURCE, Kind.CAST) or dtype is (held or HIGH):
            return False
        if held is not HIGH:
            state = "computes no floats" if held is None else f"is {held} in the program already"
            raise InputError(f"node {node.name!r} {state}, so it cannot run in {dtype}; leave it out")
        if dtype is HIGH:
            return False
        if dtype not in self._formats:
            known = ", ".join(map(str, self._formats)) or "none"
            raise InputError(f"node {node.name!r}: this emulator was not made for {dtype}; its formats are {known}")
        return True


class _Walk:
    """One run."""

    def __init__(self, emulator: Emulator, low: Mapping[int, DType]) -> None:
        self._emulator, self._low = emulator, low
        self._reading, self._runner = emulator._reading, emulator._runner
        self._held: dict[fx.Node, Any] = {}
        self._handed: dict[fx.Node, Any] = {}  # results of composites that run low, as others read them

    def walk(self, given: Mapping[fx.Node, torch.Tensor]) -> object:
        held = self._held
        held |= self._runner.fed(given)
        self._round_inputs()
        for node in self._runner.program.graph.nodes:
            match node.op:
                case "placeholder":
                    pass
                case "output":
                    return self._returned(node)
                case "get_attr":
                    held[node] = self._runner.constant(node)
                case _:
                    held[node] = self._call(node)
            for dead in self._runner.dead_after(node):
                del held[dead]
                self._handed.pop(dead, None)
        return None

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
        """What the program returns; every output may round what it hands out."""
        graph = self._reading.graph
        outputs = iter([node for node in graph.nodes if node.kind is Kind.OUTPUT])

        def give(one: object) -> object:
            if not isinstance(one, fx.Node):
                return one
            made = self._read(one, None)
            if one not in self._emulator._values:
                return made
            dtype = self._low.get(next(outputs).id)
            return made if dtype is None else round_through(made, dtype)

        returned = end.args[0]
        return [give(one) for one in returned] if isinstance(returned, tuple | list) else give(returned)

    def _call(self, call: fx.Node) -> object:
        number = self._emulator._owner.get(call)
        dtype = None if number is None else self._low.get(number)
        if number is None or dtype is None:
            args, kwargs = fx.map_arg((call.args, call.kwargs), lambda one: self._read(one, number))
            return self._runner.compute(call, args, kwargs)
        if self._reading.is_composite(number):
            return self._piece(call, number, dtype)
        return self._alone(call, number, dtype)

    def _alone(self, call: fx.Node, number: int, dtype: DType) -> object:
        """A call that runs low, its operands counted as they stand in its arguments."""
        signature = self._reading.graph.nodes[number].signature
        operands = zip(self._reading.operands[number], signature.inputs, strict=True)
        rounded = {operand.place for operand, role in operands if role is Role.GROUP}
        visited = itertools.count()

        def read(one: fx.Node) -> Any:
            is_rounded = next(visited) in rounded
            return self._rounded(one, number, dtype) if is_rounded else self._read(one, number)

        args, kwargs = fx.map_arg((call.args, call.kwargs), read)
        emulator = self._emulator
        sums = None if number in emulator._sums_high else emulator._accumulation
        try:
            made = emulator._arithmetic.compute(call, args, kwargs, sums)
        except Exception as error:
            raise failure(call, error) from error
        if not isinstance(made, tuple | list):
            return self._made(made, signature.outputs[0], dtype)
        return [
            self._made(one, signature.outputs[place] if place < len(signature.outputs) else None, dtype)
            for place, one in enumerate(made)
        ]

    def _piece(self, call: fx.Node, number: int, dtype: DType) -> object:
        """A piece of an operator that runs low: FP32 inside."""
        node = self._reading.graph.nodes[number]
        operands = zip(self._reading.operands[number], node.signature.inputs, strict=True)
        rounded = {operand.node for operand, role in operands if role is Role.GROUP}

        def read(one: fx.Node) -> Any:
            return self._rounded(one, number, dtype) if one in rounded else self._read(one, number)

        args, kwargs = fx.map_arg((call.args, call.kwargs), read)
        made = self._runner.compute(call, args, kwargs)
        value = self._emulator._values.get(call)
        if value is not None and value in node.outputs:
            role = node.signature.outputs[node.outputs.index(value)]
            self._handed[call] = self._made(made, role, dtype)
        return made

    def _read(self, one: fx.Node, reader: int | None) -> Any:
        """What a node hands to a reader: its own pieces read what was not rounded."""
        handed = self._handed.get(one)
        return self._held[one] if handed is None or self._emulator._owner[one] == reader else handed

    def _rounded(self, one: fx.Node, reader: int, dtype: DType) -> torch.Tensor:
        """An operand in a format; a weight is rounded once."""
        graph, value = self._reading.graph, self._emulator._values[one]
        if graph.nodes[graph.values[value].producer].kind is not Kind.SOURCE:
            return round_through(self._read(one, reader), dtype)
        limit = self._emulator._limits.get(value)
        if one.op == "call_function":  # filled with one number, at each run as long as it has to be
            return round_through(self._held[one], dtype, limit)
        known = self._emulator._rounded
        if (one, dtype) not in known:
            known[one, dtype] = round_through(self._held[one], dtype, limit)
        return known[one, dtype]

    @staticmethod
    def _made(made: Any, role: Role | None, dtype: DType) -> Any:
        is_rounded = role is Role.GROUP and isinstance(made, torch.Tensor) and made.dtype is torch.float32
        return round_through(made, dtype) if is_rounded else made
