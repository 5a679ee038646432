"""Application of a plan's edits to an FX graph, verified by fake execution of affected calls."""

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import guard_or_true

from mezzo.aten import blocks
from mezzo.aten.edit.constants import exchange
from mezzo.aten.edit.journal import EditJournal
from mezzo.aten.edit.quantizing import (
    Rows,
    calls_of,
    described,
    multiply_rows,
    parameters_of,
    quantize_rows,
    tensors_of,
    turn,
)
from mezzo.aten.edit.refreshing import Refresher
from mezzo.aten.program import FROM_DTYPE, TORCH_DTYPES, Program
from mezzo.aten.read.origins import inherited
from mezzo.aten.read.read import TorchReading
from mezzo.aten.read.retype import CAST, as_dtype, fake_mode_of
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.frontend import Fault
from mezzo.contracts.plans import (
    AddCast,
    AddCopy,
    Edit,
    Quantize,
    Retype,
    Rewire,
    RunDynamic,
    StoreInBlocks,
)
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.quantization import Quantization
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Use

_ATEN: Any = torch.ops.aten
_LINEAR, _MM, _ADDMM = _ATEN.linear.default, _ATEN.mm.default, _ATEN.addmm.default
_ADD, _SUM = _ATEN.add.Tensor, _ATEN.sum.dim_IntList


@dataclass(frozen=True, eq=False, kw_only=True)
class Rewritten:
    """A program after its edits.

    `casts` are the FX node names of inserted conversions, `sums` those of sums of quantized
    weights. `fault` is a call that PyTorch rejects, with the planner node it belongs to.
    """

    program: Program
    casts: tuple[str, ...]
    sums: tuple[str, ...]
    fault: Fault | None


def apply_edits(reading: TorchReading, edits: Sequence[Edit]) -> Rewritten:
    """Apply edits to a copy; the program that was read is not modified."""
    graph = reading.program.copied()
    refuse_blocks(reading.graph, [edit.value for edit in edits if isinstance(edit, StoreInBlocks)])
    owner = reading.program.owner
    if any(isinstance(edit, Quantize | RunDynamic) for edit in edits):
        owner = fx.GraphModule(owner, graph)  # with the scales, which the given one has not
    return _Applier(reading, edits, graph, EditJournal(graph), owner).apply()


def edit_in_place(reading: TorchReading, edits: Sequence[Edit], journal: EditJournal) -> Rewritten:
    """Apply edits to the graph that was read. The journal can undo them."""
    program = reading.program
    return _Applier(reading, edits, program.graph, journal, program.owner).apply()


def refuse_blocks(graph: Graph, values: Collection[int]) -> None:
    """Raises ContractError: a weight, by value id, is to be stored in blocks."""
    for value in values:
        raise ContractError(
            f"weight {graph.values[value].name!r} cannot be stored in blocks: exported programs"
            " have no such storage here, and mezzo.torch.compile alone does so; take it out of the"
            " plan"
        )


class _Applier:
    """Applies edits to `graph`, which is the graph that was read or a copy of it."""

    def __init__(
        self,
        reading: TorchReading,
        edits: Sequence[Edit],
        graph: fx.Graph,
        journal: EditJournal,
        owner: torch.nn.Module,
    ) -> None:
        """`owner`: the module that gets constants of the edited graph."""
        self.reading, self.edits, self.graph, self.journal = reading, edits, graph, journal
        self.program = program = reading.program
        self.twin: dict[fx.Node, fx.Node] = dict(zip(program.graph.nodes, graph.nodes, strict=True))
        self.mode = fake_mode_of(program.graph)
        self.native = {edit.value: edit.dtype for edit in edits if isinstance(edit, Retype)}
        self.stored = {
            edit.value: edit.storage for edit in edits if isinstance(edit, StoreInBlocks)
        }
        self.forms: dict[tuple[int, DType], fx.Node] = {}
        self.dequantized: dict[int, fx.Node] = {}  # of values that all readers take so
        self.rows: dict[fx.Node, Rows] = {}  # dynamically quantized, by what is quantized
        self.products: list[tuple[fx.Node, Rows]] = []  # matmuls of these
        self.sums: list[str] = []
        self.owner = owner
        self.wired: dict[Use, tuple[fx.Node, DType]] = {}
        self.widened: dict[fx.Node, fx.Node] = {}  # FP32 conversions of low values, for composites
        self.casts: set[fx.Node] = set()
        self.retyped: set[fx.Node] = set()  # of another type, and no conversions

    def apply(self) -> Rewritten:
        first, last = self._quantizing()
        others = Quantize | Rewire | RunDynamic
        forms = [edit for edit in self.edits if not isinstance(edit, others)]
        rewires = [edit for edit in self.edits if isinstance(edit, Rewire)]
        dynamic = [edit for edit in self.edits if isinstance(edit, RunDynamic)]
        for edit in (*first, *forms, *last, *rewires, *dynamic):
            self._take(edit)
        self._wire()
        for product, rows in self.products:
            self._multiply_rows(product, rows)
        fault = self._refused() or self._unplanned()
        casts = tuple(node.name for node in self.graph.nodes if node in self.casts)
        return Rewritten(
            program=replace(self.program, graph=self.graph, owner=self.owner),
            casts=casts,
            sums=tuple(self.sums),
            fault=fault,
        )

    def _take(self, edit: Edit) -> None:
        match edit:
            case Retype(value, dtype, limit) if self._holder(value) is not None:
                self._retype(value, dtype, limit)
            case AddCopy(value, dtype, limit) if self._holder(value) is not None:
                self.forms[value, dtype] = self._cast(
                    self._within(self._native(value), limit), dtype
                )
            case AddCast(value, dtype) if value in self.stored and dtype is HIGH:
                holder = self._holder(value)  # the weight's own floats, which are kept
                assert holder is not None, "a weight is a node"
                self.forms[value, dtype] = holder
            case AddCast(value, dtype, reads):
                source = self._native(value) if reads is None else self._form(value, reads)
                self.forms[value, dtype] = self._cast(source, dtype)
            case Rewire(node, operand, value, dtype) if self._holder(value) is not None:
                self.wired[Use(node, operand)] = self._form(value, dtype), dtype
            case Retype() | AddCopy() | Rewire():
                pass  # a Python scalar has no fixed type
            case StoreInBlocks():
                pass  # its native form is rounded
            case Quantize(value, how, takes_over):
                form = self._quantized(value, how)
                self.forms[value, how.format] = form
                if takes_over:
                    self.dequantized[value] = form
            case RunDynamic():
                self._run_dynamically(edit)

    def _quantizing(self) -> tuple[list[Quantize], list[Quantize]]:
        """The Quantize edits that come before all others, and those that read what others cast."""
        first: list[Quantize] = []
        last: list[Quantize] = []
        for edit in self.edits:
            if isinstance(edit, Quantize):
                is_first = edit.takes_over and self._native_dtype(edit.value) is HIGH
                (first if is_first else last).append(edit)
        return first, last

    def _quantized(self, value: int, how: Quantization) -> fx.Node:
        """Insert the quantization of a value's FP32 form, and its dequantization."""
        is_source = self.reading.graph.producer(value).kind is Kind.SOURCE
        source = self._holder(value) if is_source else self._form(value, HIGH)
        assert source is not None, "a number among arguments is not quantized"
        fake = source.meta["val"]
        integers = as_dtype(self.mode, fake, FROM_DTYPE[how.dtype])
        behind, scales, zero_points = self.journal.behind(source), None, None
        if how.turned:
            self._turn(value, how)
        if how.axis is not None:
            tensors = tensors_of(how, fake.device)
            scales = behind = self._constant(behind, "scales", tensors[0])
            zero_points = behind = self._constant(behind, "zero_points", tensors[1])
        parameters = parameters_of(how, scales, zero_points)
        quantize, dequantize = calls_of(how)
        meta = inherited(source)
        quantized = self.journal.add(
            behind, quantize, (source, *parameters), {**meta, **described(integers)}
        )
        floats = as_dtype(self.mode, integers, torch.float32)
        form = self.journal.add(
            quantized, dequantize, (quantized, *parameters), {**meta, **described(floats)}
        )
        self.retyped |= {quantized, form}
        return form

    def _run_dynamically(self, edit: RunDynamic) -> None:
        """Feed a matmul integers: of its weights, and of its data, whose rows have ranges found at
        run time. Matmuls that read the same data share them. An empty tensor has no range, and
        stays in floats, also if only data tells that it is empty; so does a matmul of one row that
        a compiler has written as a sum of products, as it is small.
        """
        if len(self.reading.calls[edit.node]) > 1:
            return
        for use, how in edit.product.weights:
            key = self._value_of(use), how.format
            if key not in self.forms:
                self.forms[key] = self._quantized(key[0], how)
            self.wired[use] = self.forms[key], how.format
        use = Use(edit.node, edit.product.data)
        source, dtype = self.wired.get(use) or (self._native(self._value_of(use)), HIGH)
        if guard_or_true(source.meta["val"].numel() == 0):
            return
        if source not in self.rows:
            self.rows[source] = quantize_rows(self._calls_behind(source), source)
        self.wired[use] = self.rows[source].steps, dtype
        self.products.append((self.twin[self.reading.calls[edit.node][0]], self.rows[source]))

    def _value_of(self, use: Use) -> int:
        value = self.reading.graph.nodes[use.node].inputs[use.operand]
        assert value is not None, "a use has a value"
        return value

    def _multiply_rows(self, product: fx.Node, rows: Rows) -> None:
        """Make a matmul of the integers of rows one of the rows."""
        (steps, matrix), bias = _operands_of(product)
        assert steps is rows.steps, "it was just wired"
        call, is_linear = self._calls_behind(product.prev), product.target is _LINEAR
        integers = call(_LINEAR if is_linear else _MM, steps, matrix)
        sums = call(_SUM, matrix, [-1 if is_linear else 0])
        self.sums.append(sums.name)
        addends = multiply_rows(call, integers, rows, sums)
        if bias is not None:
            addends = call(_ADD, *addends), bias
        self.journal.retarget(product, _ADD, addends)

    def _calls_behind(self, source: fx.Node) -> Callable[..., fx.Node]:
        """What inserts calls behind a node, one behind the other."""
        behind, meta = self.journal.behind(source), inherited(source)

        def call(target: Any, *arguments: Any) -> fx.Node:
            nonlocal behind
            with self.mode:
                value = target(*fx.map_arg(arguments, lambda operand: operand.meta["val"]))
            behind = self.journal.add(behind, target, arguments, {**meta, **described(value)})
            self.retyped.add(behind)
            return behind

        return call

    def _turn(self, value: int, how: Quantization) -> None:
        """Give the edited program a weight that the quantize operator rounds as GPTQ chose."""
        graph, holder = self.reading.graph, self.reading.holders[value]
        record = graph.values[value]
        fault = f"the plan rounds {record.name!r} by GPTQ"
        if len(graph.uses[value]) > 1:
            raise InputError(
                f"{fault}, which several operators read; take 'turned' out of the plan"
            )
        if len(how.turned) != -(-record.elements // 8):
            raise InputError(
                f"{fault} with {len(how.turned)} bytes of bits, and its {record.elements} elements"
                f" take {-(-record.elements // 8)}; take 'turned' out of the plan"
            )
        self.program = exchange(self.program, holder, lambda numbers: turn(numbers, how), fault)

    def _constant(self, behind: fx.Node, word: str, tensor: torch.Tensor) -> fx.Node:
        """Insert a constant of the graph's module."""
        number = next(n for n in itertools.count() if not hasattr(self.owner, f"mezzo_{word}_{n}"))
        name = f"mezzo_{word}_{number}"
        self.owner.register_buffer(name, tensor)
        return self.journal.add_constant(
            behind, name, self.mode.from_tensor(tensor, static_shapes=True)
        )

    def _retype(self, value: int, dtype: DType, limit: float | None) -> None:
        """Provide a value in another type. An ordinary call produces it by itself; constants and
        composites are converted.
        """
        graph, holder = self.reading.graph, self._native(value)
        producer = graph.nodes[graph.values[value].producer]
        if value in self.stored:
            self.forms[value, dtype] = self._rounded(holder, self.stored[value])
        elif producer.kind is Kind.INPUT:
            self.journal.retype(holder, as_dtype(self.mode, holder.meta["val"], FROM_DTYPE[dtype]))
            self.retyped.add(holder)
        elif producer.kind is Kind.SOURCE or self.reading.is_composite(producer.id):
            self.forms[value, dtype] = self._cast(self._within(holder, limit), dtype)

    def _holder(self, value: int) -> fx.Node | None:
        """The node that produces a value, in the edited graph; None for Python scalars."""
        holder = self.reading.holders[value]
        return None if holder is None else self.twin[holder]

    def _native(self, value: int) -> fx.Node:
        """The node that provides a value in its planned type."""
        if value in self.dequantized and self._native_dtype(value) is HIGH:
            return self.dequantized[value]
        dtype = self.native.get(value)
        form = None if dtype is None else self.forms.get((value, dtype))
        node = self._holder(value) if form is None else form
        assert node is not None, "a number among arguments is no node"
        return node

    def _native_dtype(self, value: int) -> DType | None:
        return self.native.get(value, self.reading.graph.values[value].dtype)

    def _form(self, value: int, dtype: DType) -> fx.Node:
        if dtype is HIGH and value in self.dequantized:
            return self.dequantized[value]
        return self.forms.get((value, dtype)) or self._native(value)

    # -- wiring ------------------------------------------------------------------------------------

    def _wire(self) -> None:
        """Connect every operand to the form of its value that the plan chose."""
        places: dict[fx.Node, dict[int, fx.Node]] = {}
        for node in self.reading.graph.nodes:
            for operand, operand_ref in enumerate(self.reading.operands[node.id]):
                value = node.inputs[operand]
                if operand_ref.node is None or value is None:
                    continue
                form, dtype = self.wired.get(Use(node.id, operand)) or (
                    self._native(value),
                    self._native_dtype(value),
                )
                if self.reading.is_composite(node.id):
                    is_low = node.signature.inputs[operand] is Role.GROUP and dtype is not HIGH
                    self._feed_pieces(
                        node.id, operand_ref.node, self._widened(form) if is_low else form
                    )
                elif form is not self.twin[operand_ref.node] and operand_ref.place is not None:
                    places.setdefault(self.reading.calls[node.id][0], {})[operand_ref.place] = form
        for call, forms in places.items():
            self._feed(call, forms)

    def _feed(self, call: fx.Node, forms: Mapping[int, fx.Node]) -> None:
        """Replace operands of a call, by their index in traversal order of the arguments."""
        visited = itertools.count()
        arguments = fx.map_arg(
            (call.args, call.kwargs), lambda operand: forms.get(next(visited), self.twin[operand])
        )
        self.journal.feed(self.twin[call], arguments)

    def _feed_pieces(self, number: int, operand: fx.Node, form: fx.Node) -> None:
        """Replace an operand in all pieces of a composite."""
        current = self.twin[operand]
        if form is current:
            return
        for piece in [self.twin[call] for call in self.reading.calls[number]]:
            if current in piece.all_input_nodes:
                arguments = fx.map_arg(
                    (piece.args, piece.kwargs), lambda node: form if node is current else node
                )
                self.journal.feed(piece, arguments)

    def _widened(self, form: fx.Node) -> fx.Node:
        """An FP32 conversion of a low value, since the pieces of a composite compute in FP32."""
        if form not in self.widened:
            self.widened[form] = self._cast(form, HIGH)
        return self.widened[form]

    def _cast(self, source: fx.Node, dtype: DType) -> fx.Node:
        """Insert a conversion directly after a node, or after the last input."""
        value = as_dtype(self.mode, source.meta["val"], FROM_DTYPE[dtype])
        cast = self._put_behind(source, CAST, (source, FROM_DTYPE[dtype]), value)
        self.casts.add(cast)
        return cast

    def _rounded(self, weight: fx.Node, storage: BlockStorage) -> fx.Node:
        """Insert the rounding of a weight to blocks, and its dequantization."""
        value = weight.meta["val"]
        target, arguments = blocks.rounding_call(weight, storage)
        with self.mode:
            integers = value.new_empty(blocks.size_of(value.shape, storage), dtype=torch.uint8)
        rounded = self._put_behind(weight, target, arguments, integers)
        target, arguments = blocks.dequantizing_call(rounded, value, storage)
        dequantized = as_dtype(self.mode, value, FROM_DTYPE[storage.scale_dtype])
        low = self._put_behind(rounded, target, arguments, dequantized)
        self.retyped.add(low)
        return low

    def _within(self, source: fx.Node, limit: float | None) -> fx.Node:
        """A constant with its finite elements clamped to a limit; infinities stay."""
        if limit is None:
            return source
        aten, value = torch.ops.aten, source.meta["val"]
        bounded = self._put_behind(source, aten.clamp.default, (source, -limit, limit), value)
        is_infinite = self._put_behind(
            source, aten.isinf.default, (source,), as_dtype(self.mode, value, torch.bool)
        )
        behind = max(bounded, is_infinite)
        return self._put_behind(behind, aten.where.self, (is_infinite, source, bounded), value)

    def _put_behind(
        self, source: fx.Node, target: Any, arguments: tuple[Any, ...], value: torch.Tensor
    ) -> fx.Node:
        meta = {**inherited(source), "val": value}
        return self.journal.add(self.journal.behind(source), target, arguments, meta)

    def _refused(self) -> Fault | None:
        """The first call that PyTorch rejects, as a fault; None if all are valid."""
        owner = self.reading.program.owner
        refusal = Refresher(self.mode, owner, self.graph, self.journal).refresh(
            self.casts, self.casts | self.retyped
        )
        if refusal is None:
            return None
        made_by = {
            self.twin[call]: number
            for number, calls in enumerate(self.reading.calls)
            for call in calls
        }
        return _fault(f"{refusal.node.target} raises {refusal.raised}", made_by.get(refusal.node))

    def _unplanned(self) -> Fault | None:
        """A value whose type differs from the plan, as a fault; None if all match."""
        for number, value in enumerate(self.reading.graph.values):
            if self._holder(number) is None:
                continue
            actual = TORCH_DTYPES.get(self._native(number).meta["val"].dtype)
            planned = self._native_dtype(number)
            if actual is not planned:
                return _fault(
                    f"{value.name} is of {actual}, and {planned} was planned", value.producer
                )
        return None


def _operands_of(product: fx.Node) -> tuple[tuple[Any, Any], Any]:
    """The operands of a matmul by a matrix, and its bias, None if it has none."""
    if product.target is _ADDMM:
        bias, *operands = product.args
    else:
        *operands, bias = (*product.args, None)[:3]
    x, matrix = operands
    return (x, matrix), bias


def _fault(text: str, culprit: int | None) -> Fault:
    return Fault(text, frozenset() if culprit is None else frozenset({culprit}))
