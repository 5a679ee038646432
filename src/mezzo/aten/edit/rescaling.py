"""Power-of-two scales of a program's values: weights, numbers among arguments and epsilons are
scaled, and operands are multiplied where a value has another exponent than its reader takes.
Decides nothing.
"""

import itertools
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from mezzo.aten.edit.journal import EditJournal
from mezzo.aten.program import Program, ProgramTensor, attribute_of
from mezzo.aten.read.arguments import with_argument
from mezzo.aten.read.attributes import argument_of
from mezzo.aten.read.origins import inherited
from mezzo.aten.read.read import TorchReading
from mezzo.aten.read.scales import exponent_of, with_scale
from mezzo.contracts.plans import Rescaling
from mezzo.ir.nodes import Kind, Use

MULTIPLY: Any = torch.ops.aten.mul.Tensor


def rescaled_copy(reading: TorchReading, changes: Rescaling) -> Program:
    """A copy of the program that was read, with power-of-two scales."""
    graph = reading.program.copied()
    return _Rescaler(reading, changes, graph, EditJournal(graph)).rescale()


def rescale_in_place(reading: TorchReading, changes: Rescaling, journal: EditJournal) -> Program:
    """The program that was read, whose graph has scales now. The journal can undo them."""
    return _Rescaler(reading, changes, reading.program.graph, journal).rescale()


class _Rescaler:
    """Scales `graph`, which is the graph that was read or a copy of it."""

    def __init__(
        self, reading: TorchReading, changes: Rescaling, graph: fx.Graph, journal: EditJournal
    ) -> None:
        self.reading, self.changes, self.graph, self.journal = reading, changes, graph, journal
        nodes = reading.program.graph.nodes
        self.twin: dict[fx.Node, fx.Node] = dict(zip(nodes, graph.nodes, strict=True))
        self.products: dict[tuple[int, int], fx.Node] = {}  # by value and exponent
        self.scaled = dict(reading.program.scaled)

    def rescale(self) -> Program:
        for (number, name), exponent in self.changes.attributes.items():
            value = self.reading.graph.nodes[number].attributes[name]
            assert isinstance(value, float), "an attribute that is scaled is a number"
            self._set_number(number, argument_of(name), value * 2.0**exponent)
        for value, exponent in self.changes.exponents.items():
            holder = self.reading.holders[value]
            assert holder is not None, "a computed value is a node"
            self._mark(self.twin[holder], exponent)
        for use, exponent in self.changes.operands.items():
            self._scale_operand(use, exponent)
        return replace(self.reading.program, graph=self.graph, scaled=self.scaled)

    def _mark(self, node: fx.Node, exponent: int) -> None:
        for key, entry in with_scale(node.meta, exponent_of(node) + exponent).items():
            if node.meta.get(key) is not entry:
                self.journal.note(node, key, entry)

    def _set_number(self, number: int, name: str, value: float) -> None:
        (call,) = self.reading.calls[number]
        node = self.twin[call]
        self.journal.feed(node, with_argument(node, name, value))

    def _scale_operand(self, use: Use, exponent: int) -> None:
        value = self.reading.graph.nodes[use.node].inputs[use.operand]
        operand = self.reading.operands[use.node][use.operand]
        assert value is not None, "an operand that is scaled is there"
        if operand.number is not None:
            self._set_number(use.node, operand.argument, operand.number * 2.0**exponent)
            return
        assert operand.node is not None, "an operand is a number or a node"
        product = self._product(value, operand.node, exponent)
        for call in self.reading.calls[use.node]:
            self._feed(self.twin[call], self.twin[operand.node], product, operand.place)

    def _feed(self, call: fx.Node, source: fx.Node, product: fx.Node, place: int | None) -> None:
        """Replace an operand of a call: the one at a place in traversal order, or all of them."""
        visited = itertools.count()

        def other(node: fx.Node) -> fx.Node:
            is_meant = next(visited) == place or place is None
            return product if is_meant and node is source else node

        self.journal.feed(call, fx.map_arg((call.args, call.kwargs), other))

    def _product(self, value: int, source: fx.Node, exponent: int) -> fx.Node:
        """A value times 2^exponent, behind all calls of its producer."""
        if (value, exponent) not in self.products:
            node, producer = self.twin[source], self.reading.graph.producer(value)
            calls = [self.twin[call] for call in self.reading.calls[producer.id]]
            behind = max([self.journal.behind(node), *calls])
            own = {**inherited(node), "val": node.meta["val"]}
            meta = with_scale(own, exponent_of(node) - exponent, inserted=True)
            product = self.journal.add(behind, MULTIPLY, (node, 2.0**exponent), meta)
            self.products[value, exponent] = product
            if producer.kind is Kind.SOURCE and value in self.reading.graph.constants:
                self._note_constant(source, product, exponent)
        return self.products[value, exponent]

    def _note_constant(self, source: fx.Node, product: fx.Node, exponent: int) -> None:
        program = self.reading.program
        weight: ProgramTensor | None = program.constants.get(source.name)
        if weight is None and source.op == "get_attr":
            weight = ProgramTensor(str(source.target), lambda: attribute_of(program.owner, source))
        if weight is not None:
            name = f"{weight.name} * 2^{exponent}"
            self.scaled[product.name] = ProgramTensor(
                name, weight.tensor, weight.exponent + exponent
            )
