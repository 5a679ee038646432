"""Carries edits out on a program's graph or a copy of it, and asks PyTorch what every call makes then."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from mezzo.aten.journal import Journal
from mezzo.aten.program import FROM_DTYPE, TORCH_DTYPES, Program
from mezzo.aten.read.origins import inherited
from mezzo.aten.read.read import TorchReading
from mezzo.aten.read.retype import CAST, as_dtype, fake_mode_of
from mezzo.aten.refreshing import Refresher
from mezzo.contracts.frontend import Fault
from mezzo.contracts.plans import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Role, Use


@dataclass(frozen=True, eq=False, kw_only=True)
class Rewritten:
    """A program with its edits. `casts` are the conversions that were put in, by the name of their FX node; `fault` is
    what PyTorch has against a call, with the planner's node that makes it.
    """

    program: Program
    casts: tuple[str, ...]
    fault: Fault | None

    @property
    def cast_nodes(self) -> tuple[fx.Node, ...]:
        """The conversions that were put in."""
        names = frozenset(self.casts)
        return tuple(node for node in self.program.graph.nodes if node.name in names)


def apply_edits(reading: TorchReading, edits: Sequence[Edit]) -> Rewritten:
    """Carry edits out on a copy. The program that was read is not changed."""
    graph = reading.program.copied()
    return _Applier(reading, edits, graph, Journal(graph)).apply()


def edit_in_place(reading: TorchReading, edits: Sequence[Edit], journal: Journal) -> Rewritten:
    """Carry edits out on the graph that was read. What was done stands in the journal, and can be taken back there."""
    return _Applier(reading, edits, reading.program.graph, journal).apply()


class _Applier:
    """`graph` is what is edited: the graph that was read, or a copy of it."""

    def __init__(self, reading: TorchReading, edits: Sequence[Edit], graph: fx.Graph, journal: Journal) -> None:
        self.reading, self.edits, self.graph, self.journal = reading, edits, graph, journal
        program = reading.program
        self.twin: dict[fx.Node, fx.Node] = dict(zip(program.graph.nodes, graph.nodes, strict=True))
        self.mode = fake_mode_of(program.graph)
        self.last_input = next((node for node in reversed(self.graph.nodes) if node.op == "placeholder"), None)
        self.native = {edit.value: edit.dtype for edit in edits if isinstance(edit, Retype)}
        self.forms: dict[tuple[int, DType], fx.Node] = {}
        self.wired: dict[Use, tuple[fx.Node, DType]] = {}
        self.widened: dict[fx.Node, fx.Node] = {}  # what is low, for pieces
        self.casts: set[fx.Node] = set()
        self.retyped: set[fx.Node] = set()  # inputs that come in another type

    def apply(self) -> Rewritten:
        for edit in self.edits:
            self._take(edit)
        self._wire()
        fault = self._refused() or self._unplanned()
        casts = tuple(node.name for node in self.graph.nodes if node in self.casts)
        return Rewritten(program=replace(self.reading.program, graph=self.graph), casts=casts, fault=fault)

    def _take(self, edit: Edit) -> None:
        match edit:
            case Retype(value, dtype, limit) if self._holder(value) is not None:
                self._retype(value, dtype, limit)
            case AddCopy(value, dtype, limit) if self._holder(value) is not None:
                self.forms[value, dtype] = self._cast(self._within(self._native(value), limit), dtype)
            case AddCast(value, dtype, reads):
                source = self._native(value) if reads is None else self._form(value, reads)
                self.forms[value, dtype] = self._cast(source, dtype)
            case Rewire(node, operand, value, dtype) if self._holder(value) is not None:
                self.wired[Use(node, operand)] = self._form(value, dtype), dtype
            case Retype() | AddCopy() | Rewire():
                pass  # a number among arguments has any type
            case _:
                raise AssertionError(f"nothing is quantized here: {edit}")

    def _retype(self, value: int, dtype: DType, limit: float | None) -> None:
        """Let a value be had in another type. A call makes it so by itself; what stands alone is converted."""
        graph, holder = self.reading.graph, self._native(value)
        maker = graph.nodes[graph.values[value].producer]
        if maker.kind is Kind.INPUT:
            self.journal.retype(holder, as_dtype(self.mode, holder.meta["val"], FROM_DTYPE[dtype]))
            self.retyped.add(holder)
        elif maker.kind is Kind.SOURCE or self.reading.is_composite(maker.id):
            self.forms[value, dtype] = self._cast(self._within(holder, limit), dtype)

    def _holder(self, value: int) -> fx.Node | None:
        """The node that makes a value, in the copy; None of numbers among arguments."""
        holder = self.reading.holders[value]
        return None if holder is None else self.twin[holder]

    def _native(self, value: int) -> fx.Node:
        """What makes a value in the type that most read it in."""
        held = self.native.get(value)
        form = None if held is None else self.forms.get((value, held))
        found = self._holder(value) if form is None else form
        assert found is not None, "a number among arguments is no node"
        return found

    def _native_dtype(self, value: int) -> DType | None:
        return self.native.get(value, self.reading.graph.values[value].dtype)

    def _form(self, value: int, dtype: DType) -> fx.Node:
        return self.forms.get((value, dtype)) or self._native(value)

    # -- wiring ---------------------------------------------------------------------------------------------------

    def _wire(self) -> None:
        """Let every operand read the form that was planned for it."""
        places: dict[fx.Node, dict[int, fx.Node]] = {}
        for node in self.reading.graph.nodes:
            for operand, read in enumerate(self.reading.operands[node.id]):
                value = node.inputs[operand]
                if read.node is None or value is None:
                    continue
                form, dtype = self.wired.get(Use(node.id, operand)) or (self._native(value), self._native_dtype(value))
                if self.reading.is_composite(node.id):
                    is_low = node.signature.inputs[operand] is Role.GROUP and dtype is not HIGH
                    self._feed_pieces(node.id, read.node, self._widened(form) if is_low else form)
                elif form is not self.twin[read.node] and read.place is not None:
                    places.setdefault(self.reading.calls[node.id][0], {})[read.place] = form
        for call, forms in places.items():
            self._feed(call, forms)

    def _feed(self, call: fx.Node, forms: Mapping[int, fx.Node]) -> None:
        """Give a call other operands, by the places at which they stand in its arguments."""
        visited = itertools.count()
        fed = fx.map_arg((call.args, call.kwargs), lambda one: forms.get(next(visited), self.twin[one]))
        self.journal.feed(self.twin[call], fed)

    def _feed_pieces(self, number: int, read: fx.Node, form: fx.Node) -> None:
        """Give the pieces of one operator an operand."""
        was = self.twin[read]
        if form is was:
            return
        for piece in [self.twin[call] for call in self.reading.calls[number]]:
            if was in piece.all_input_nodes:
                fed = fx.map_arg((piece.args, piece.kwargs), lambda one: form if one is was else one)
                self.journal.feed(piece, fed)

    def _widened(self, form: fx.Node) -> fx.Node:
        """What is low as pieces read it: they compute in FP32 whatever they hold."""
        if form not in self.widened:
            self.widened[form] = self._cast(form, HIGH)
        return self.widened[form]

    def _cast(self, source: fx.Node, dtype: DType) -> fx.Node:
        """Put a conversion right behind a node, or behind the last input."""
        made = as_dtype(self.mode, source.meta["val"], FROM_DTYPE[dtype])
        cast = self._put_behind(source, CAST, (source, FROM_DTYPE[dtype]), made)
        self.casts.add(cast)
        return cast

    def _within(self, source: fx.Node, limit: float | None) -> fx.Node:
        """A constant with its finite numbers kept within a limit; infinite ones stay."""
        if limit is None:
            return source
        aten, held = torch.ops.aten, source.meta["val"]
        bounded = self._put_behind(source, aten.clamp.default, (source, -limit, limit), held)
        is_infinite = self._put_behind(source, aten.isinf.default, (source,), as_dtype(self.mode, held, torch.bool))
        behind = max(bounded, is_infinite)
        return self._put_behind(behind, aten.where.self, (is_infinite, source, bounded), held)

    def _put_behind(self, source: fx.Node, target: Any, arguments: tuple[Any, ...], made: torch.Tensor) -> fx.Node:
        behind = self.last_input if source.op == "placeholder" else source
        assert behind is not None, "an input is behind no other"
        return self.journal.add(behind, target, arguments, {**inherited(source), "val": made})

    def _refused(self) -> Fault | None:
        """What PyTorch has against a call, if anything."""
        owner = self.reading.program.owner
        refusal = Refresher(self.mode, owner, self.graph, self.journal).refresh(self.casts, self.casts | self.retyped)
        if refusal is None:
            return None
        made_by = {self.twin[call]: number for number, calls in enumerate(self.reading.calls) for call in calls}
        return _fault(f"{refusal.node.target} raises {refusal.raised}", made_by.get(refusal.node))

    def _unplanned(self) -> Fault | None:
        """What is not of the type that was planned for it, if anything."""
        for number, value in enumerate(self.reading.graph.values):
            if self._holder(number) is None:
                continue
            found = TORCH_DTYPES.get(self._native(number).meta["val"].dtype)
            wanted = self._native_dtype(number)
            if found is not wanted:
                return _fault(f"{value.name} is of {found}, and {wanted} was planned", value.producer)
        return None


def _fault(text: str, culprit: int | None) -> Fault:
    return Fault(text, frozenset() if culprit is None else frozenset({culprit}))
