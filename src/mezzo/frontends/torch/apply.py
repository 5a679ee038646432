"""Carries edits out on a program's graph or a copy of it, and asks PyTorch what every call makes then."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from mezzo.core.frontend import Fault
from mezzo.core.nodes import Kind, Role, Use
from mezzo.core.plans import AddCast, AddCopy, Edit, Retype, Rewire
from mezzo.dtypes import HIGH, DType
from mezzo.errors import spell_raised
from mezzo.frontends.torch.journal import Journal
from mezzo.frontends.torch.program import FROM_DTYPE, TORCH_DTYPES, Program
from mezzo.frontends.torch.read import TorchReading
from mezzo.frontends.torch.retype import as_dtype, dtypes_of, fake_mode_of, run_fake

# What a conversion has of the node that it converts: where it stands in the program, and who asked for what there.
_INHERITED = ("nn_module_stack", "fwd_nn_module_stack", "stack_trace", "seq_nr", "custom", "partitioner_tag")
_LONGEST_FAULT = 200

Types = tuple[torch.dtype | None, ...]
# What PyTorch has answered of calls: it says the same of every graph.
_ANSWERS: dict[object, Types | str] = {}


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
        self.wired: dict[Use, fx.Node] = {}
        self.casts: set[fx.Node] = set()
        self.retyped: set[fx.Node] = set()  # inputs that come in another type

    def apply(self) -> Rewritten:
        for edit in self.edits:
            self._take(edit)
        self._wire()
        fault = self._refresh() or self._unplanned()
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
                self.wired[Use(node, operand)] = self._form(value, dtype)
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
                form = self.wired.get(Use(node.id, operand)) or self._native(value)
                if form is self.twin[read.node]:
                    continue
                if self.reading.is_composite(node.id):
                    self._feed_pieces(node.id, read.node, form, node.signature.inputs[operand])
                elif read.place is not None:
                    places.setdefault(self.reading.calls[node.id][0], {})[read.place] = form
        for call, forms in places.items():
            self._feed(call, forms)

    def _feed(self, call: fx.Node, forms: Mapping[int, fx.Node]) -> None:
        """Give a call other operands, by the places at which they stand in its arguments."""
        visited = itertools.count()
        fed = fx.map_arg((call.args, call.kwargs), lambda one: forms.get(next(visited), self.twin[one]))
        self.journal.feed(self.twin[call], fed)

    def _feed_pieces(self, number: int, read: fx.Node, form: fx.Node, role: Role) -> None:
        """Give the pieces of one operator an operand. They compute in FP32 whatever it holds."""
        is_low = role is Role.GROUP and TORCH_DTYPES[form.meta["val"].dtype] is not HIGH
        wide = self._cast(form, HIGH) if is_low else form
        was = self.twin[read]
        for piece in [self.twin[call] for call in self.reading.calls[number]]:
            if was in piece.all_input_nodes:
                fed = fx.map_arg((piece.args, piece.kwargs), lambda one: wide if one is was else one)
                self.journal.feed(piece, fed)

    def _cast(self, source: fx.Node, dtype: DType) -> fx.Node:
        """Put a conversion right behind a node, or behind the last input."""
        made = as_dtype(self.mode, source.meta["val"], FROM_DTYPE[dtype])
        cast = self._put_behind(source, torch.ops.prims.convert_element_type.default, (source, FROM_DTYPE[dtype]), made)
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
        meta = {key: source.meta[key] for key in _INHERITED if key in source.meta}
        return self.journal.add(behind, target, arguments, {**meta, "val": made})

    # -- asking ---------------------------------------------------------------------------------------------------

    def _refresh(self) -> Fault | None:
        """Ask PyTorch what every call makes whose operands have changed: what it has against one, if anything."""
        made_by = {self.twin[call]: number for number, calls in enumerate(self.reading.calls) for call in calls}
        changed = self.casts | self.retyped
        for node in self.graph.nodes:
            if node.op != "call_function" or node in self.casts or changed.isdisjoint(node.all_input_nodes):
                continue
            found = self._asked(node)
            if isinstance(found, str):
                return _fault(f"{node.target} raises {found}", made_by.get(node))
            if found != dtypes_of(node.meta.get("val")):
                self.journal.retype(node, self._retype_made(node.meta.get("val"), found))
                changed.add(node)
        return None

    def _asked(self, node: fx.Node) -> Types | str:
        """The types of what a call makes, or what PyTorch raises instead. Each kind of call is asked about once."""
        if not isinstance(node.target, torch._ops.OpOverload):  # what it calls is not told by its operands
            return self._ask(node)
        # How many a split or an unbind makes hangs on sizes, which the kinds do not tell.
        key = node.target, _kinds_in((node.args, node.kwargs)), len(dtypes_of(node.meta.get("val")))
        if key not in _ANSWERS:
            _ANSWERS[key] = self._ask(node)
        return _ANSWERS[key]

    def _ask(self, node: fx.Node) -> Types | str:
        try:
            return dtypes_of(run_fake(self.mode, node, self.reading.program.owner, lambda one: one.meta["val"]))
        except Exception as error:  # noqa: BLE001  # whatever an operator raises
            return spell_raised(error, _LONGEST_FAULT)

    def _retype_made(self, made: object, types: Types) -> object:
        """What a call makes, in other types."""
        if isinstance(made, tuple | list):
            return type(made)(self._retype_made(*pair) for pair in zip(made, ((one,) for one in types), strict=True))
        (dtype,) = types
        is_changed = isinstance(made, torch.Tensor) and dtype is not None and made.dtype is not dtype
        return as_dtype(self.mode, made, dtype) if is_changed else made

    def _unplanned(self) -> Fault | None:
        """What is not of the type that was planned for it, if anything."""
        for number, value in enumerate(self.reading.graph.values):
            if self._holder(number) is None:
                continue
            found = TORCH_DTYPES.get(self._native(number).meta["val"].dtype)
            wanted = self.native.get(number, value.dtype)
            if found is not wanted:
                return _fault(f"{value.name} is of {found}, and {wanted} was planned", value.producer)
        return None


def _kinds_in(given: object) -> object:
    """All that types of results may depend on in the arguments of a call, for operators of whom PyTorch took the same
    sizes before.
    """
    if isinstance(given, fx.Node):
        held = given.meta.get("val")
        is_tensor = isinstance(held, torch.Tensor)
        return (held.dtype, held.device.type, held.dim() == 0) if is_tensor else type(held)
    if isinstance(given, tuple | list):
        return tuple(map(_kinds_in, given))
    if isinstance(given, dict):
        return tuple((name, _kinds_in(one)) for name, one in given.items())
    is_counted = isinstance(given, int | float) and not isinstance(given, bool)
    return type(given) if is_counted else given


def _fault(text: str, culprit: int | None) -> Fault:
    return Fault(text, frozenset() if culprit is None else frozenset({culprit}))
