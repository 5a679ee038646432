"""Cast placement: lowers an assignment of levels to graph edits. No other module places casts."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

import numpy as np

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
from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import between
from mezzo.ir.columns import ANY
from mezzo.ir.nodes import Kind, Node, Role, Use


class _TypedUse(NamedTuple):
    """The dtype a use needs, None for any. `must_rewire`: it reads another value today."""

    use: Use
    dtype: DType | None
    must_rewire: bool


# Takes a third of the time of calling the class; most values of a model are retyped.
_new_retype: Callable[[tuple[int, DType, float | None]], Retype] = partial(tuple.__new__, Retype)


def lower(
    problem: Problem, levels: Sequence[int], limits: Mapping[int, float] | None = None
) -> tuple[Edit, ...]:
    """List the edits that give every node its level: values in graph order, then nodes with dynamic
    quantization, then weights in blocks.

    A value has one native form: its producer's dtype, or for a source today's dtype while any use
    needs that, for a weight in blocks its scales' dtype, and for one in a low float that. Every
    other dtype that a use needs is one further form, made once and shared by all uses in all
    scopes; a dtype more than one level away is cast from the adjacent level, or across the base if
    no use reads the base form. `limits` bounds constants stored outside the base, by value id. A
    quantized value keeps its base form, which all other uses read. The outputs of nodes with
    base-precision outputs are cast back at once: uses that accept any dtype get the base form, and
    only uses at the producer's level read the rounded form.
    """
    return tuple(_Lowering(problem, levels, limits or {}).edits())


class _Lowering:
    def __init__(
        self, problem: Problem, levels: Sequence[int], limits: Mapping[int, float]
    ) -> None:
        self.problem, self.graph, self.line = problem, problem.graph, problem.line
        self.levels, self.limits = levels, limits
        self.quantized = self.line.quantized_format
        # By value: uses that read it through a redundant Cast.
        self.absorbed: dict[int, list[_TypedUse]] = {}
        dynamic = {} if problem.quantized is None else problem.quantized.dynamic
        self.dynamic = {
            number: product
            for number, product in dynamic.items()
            if levels[number] == self.line.quantized
        }
        self.integer_uses = {
            use for product in self.dynamic.values() for use in product.weight_uses
        }

    def edits(self) -> list[Edit]:
        edits: list[Edit] = []
        # Backwards, so that the uses of a redundant Cast are known before its operand is lowered.
        for number, native in self._changing():
            if native is not None:
                edits.append(_new_retype((number, native, self.limits.get(number))))
            else:
                dtype = self.graph.values[number].dtype
                assert dtype is not None, "only values with a dtype are lowered"
                edits += reversed(self._lower_value(number, dtype))
        edits.reverse()
        edits += [RunDynamic(number, product) for number, product in self.dynamic.items()]
        edits += [StoreInBlocks(*stored) for stored in sorted(self.problem.in_blocks.items())]
        return edits

    def _changing(self) -> Iterator[tuple[int, DType | None]]:
        """Values to lower, last first, with their new dtype where a Retype is enough."""
        columns, line = self.graph.columns, self.line
        current, is_planned = self.problem.current_levels, columns.holds(*line.dtypes)
        is_source = columns.is_kind(Kind.SOURCE)[columns.value_producer]
        # Uses that accept any dtype get a source as stored: it has no precision to follow.
        needed = self.problem.needed_levels(self.levels)
        has_preference = (columns.use_role != ANY) | is_source[columns.use_value]
        is_needed = np.zeros((len(line.levels), len(current)), bool)  # by level and value
        is_needed[needed[has_preference], columns.use_value[has_preference]] = True
        stored = np.where(is_needed.sum(axis=0) == 1, is_needed.argmax(axis=0), current)
        produced = np.where(is_source, stored, self.problem.produced_levels(self.levels))
        is_cast = columns.is_kind(Kind.CAST)
        differs = has_preference & (needed != produced[columns.use_value])
        needs_casts = is_cast[columns.value_producer]
        needs_casts[
            columns.use_value[differs | columns.use_aliased | is_cast[columns.use_node]]
        ] = True
        if line.quantized is not None:
            needs_casts |= produced == line.quantized
        needs_casts[[*self.problem.in_blocks, *self.problem.stored_floats]] = True
        for number in self.problem.base_outputs:
            needs_casts[
                [value for value in self.graph.nodes[number].outputs if value is not None]
            ] = True
        for number in np.flatnonzero(is_planned & (needs_casts | (produced != current)))[
            ::-1
        ].tolist():
            yield number, None if needs_casts[number] else line.dtypes[produced[number]]

    def _is_in_group(self, producer: Node, value: int) -> bool:
        """Whether a value is an output of its producer, in the node's precision."""
        if value not in producer.outputs:
            return False
        return producer.signature.outputs[producer.outputs.index(value)] is Role.GROUP

    def _native(self, number: int) -> DType:
        """Dtype of a value as its operator, input or tie computes it."""
        graph = self.graph
        producer = graph.nodes[graph.values[number].producer]
        if self._is_in_group(producer, number):
            level = self.levels[producer.id]
            return self.line.dtypes[
                min(level, self.line.base) if self.problem.stays_inside[number] else level
            ]
        dtype = graph.values[number].dtype
        assert dtype is not None, "only values with a dtype are lowered"
        return dtype

    def _lower_value(self, number: int, current: DType) -> list[Edit]:
        graph = self.graph
        if number in self.problem.stored_floats:
            return self._store_float(number, self.problem.stored_floats[number])
        typed_uses = self._typed_uses(number, current)
        producer = graph.nodes[graph.values[number].producer]
        if producer.kind is Kind.CAST and self._is_needless(producer.id, typed_uses):
            operand = producer.inputs[0]
            assert operand is not None, "a Cast has an operand"
            redirected = [typed_use._replace(must_rewire=True) for typed_use in typed_uses]
            self.absorbed.setdefault(operand, []).extend(redirected)
            return []
        if number in self.problem.in_blocks:
            native = self.problem.in_blocks[number].scale_dtype
        elif producer.kind is Kind.SOURCE:
            stored = {
                typed_use.dtype
                for typed_use in typed_uses
                if typed_use.dtype not in (None, self.quantized)
            }
            native = (
                current
                if current in stored or not stored
                else min(stored, key=self.line.dtypes.index)
            )
        else:
            native = self._native(number)
        quantizing: list[Edit] = []
        needed = {typed_use.dtype or native for typed_use in typed_uses}
        if self.quantized is not None and self.quantized in (native, *needed):
            typed_uses, quantizing = self._quantize(number, native, typed_uses)
            native = self.line.base_dtype if native is self.quantized else native
            # A quantized form is made from the base form, except for a source.
            needed = {typed_use.dtype or native for typed_use in typed_uses}
            needed |= set() if producer.kind is Kind.SOURCE else {self.line.base_dtype}
        edits: list[Edit] = (
            [] if native is current else [Retype(number, native, self.limits.get(number))]
        )
        forms = {edit.dtype: edit for edit in self._forms(number, native, needed)}
        native_level = self.line.dtypes.index(native)
        # Every form comes after the one that it is cast from.
        for dtype in (*reversed(self.line.dtypes[:native_level]), *self.line.dtypes[native_level:]):
            uses = [typed_use for typed_use in typed_uses if (typed_use.dtype or native) is dtype]
            edits += [forms[dtype]] if dtype in forms else []
            edits += [
                Rewire(*typed_use.use, number, dtype)
                for typed_use in uses
                if dtype is not native or typed_use.must_rewire
            ]
        return edits + quantizing

    def _store_float(self, number: int, low: DType) -> list[Edit]:
        """Store a weight in a low float, with one Cast to the base for all its readers."""
        base = self.line.base_dtype
        has_form = (number, base) in self.graph.forms
        rewires = [Rewire(*use, number, base) for use in self.graph.uses[number]]
        return [Retype(number, low), *([] if has_form else [AddCast(number, base)]), *rewires]

    def _quantize(
        self, number: int, native: DType, typed_uses: Sequence[_TypedUse]
    ) -> tuple[list[_TypedUse], list[Edit]]:
        """Quantize a value: the remaining float uses, and the edits that quantize it."""
        assert self.problem.quantized is not None, "a line with such a level"
        assert self.quantized is not None, "the same"
        parameters, base, quantized = self.problem.quantized, self.line.base_dtype, self.quantized
        quantized_uses = [typed_use for typed_use in typed_uses if typed_use.dtype is quantized]
        offset_uses = [
            typed_use for typed_use in quantized_uses if typed_use.use in parameters.offsets
        ]
        per_use = [
            Quantize(
                number, parameters.offsets[typed_use.use], takes_over=False, reader=typed_use.use
            )
            for typed_use in offset_uses
        ]
        quantized_uses = [
            typed_use for typed_use in quantized_uses if typed_use.use not in parameters.offsets
        ]
        if native is not quantized:
            float_uses = [typed_use for typed_use in typed_uses if typed_use.dtype is not quantized]
            rewired = [Rewire(*typed_use.use, number, quantized) for typed_use in quantized_uses]
            shared = (
                [Quantize(number, parameters.parameters[number], takes_over=False)]
                if quantized_uses
                else []
            )
            return float_uses, [*per_use, *shared, *rewired]
        float_uses = [
            typed_use._replace(dtype=base) if typed_use.dtype is quantized else typed_use
            for typed_use in typed_uses
        ]
        if number in parameters.passed_through or (
            not quantized_uses and number in parameters.either_output
        ):
            return float_uses, []  # no use reads it quantized, so it may have no parameters
        return float_uses, [Quantize(number, parameters.parameters[number], takes_over=True)]

    def _forms(self, number: int, native: DType, needed: Set[DType]) -> Iterator[AddCast | AddCopy]:
        """Further forms of a value: the needed ones; for casts the intermediate ones too, except
        the base: it holds the numbers of all levels, so a cast across it gives the same.
        """
        graph, dtypes = self.graph, self.line.dtypes
        is_source = graph.nodes[graph.values[number].producer].kind is Kind.SOURCE
        is_source &= number not in self.problem.in_blocks  # a weight in blocks is stored once
        native_level, neighbour = dtypes.index(native), native
        for level in between(native_level, [dtypes.index(dtype) for dtype in needed]):
            dtype = dtypes[level]
            if abs(level - native_level) == 1:
                neighbour = native
            if (number, dtype) not in graph.forms:
                if dtype not in needed and (is_source or level == self.line.base):
                    continue
                if is_source:
                    limit = None if level == self.line.base else self.limits.get(number)
                    yield AddCopy(number, dtype, limit)
                else:
                    yield AddCast(number, dtype, None if neighbour is native else neighbour)
            neighbour = dtype

    def _typed_uses(self, number: int, current: DType) -> list[_TypedUse]:
        graph = self.graph
        producer = graph.nodes[graph.values[number].producer]
        base, dtypes = self.line.base_dtype, self.line.dtypes
        is_converted = self.levels[producer.id] != self.line.base and self._is_in_group(
            producer, number
        )
        base_outputs = is_converted and producer.id in self.problem.base_outputs
        typed_uses = []
        for use in graph.uses[number]:
            node = graph.nodes[use.node]
            if node.kind is Kind.CAST:
                continue  # it is its own cast, or redundant and its uses come through `absorbed`
            if use in self.integer_uses:
                continue  # it is read as integers, which are stored with the matmul
            role = node.signature.inputs[use.operand]
            must_rewire = use in graph.aliased
            if role is Role.ANY and producer.kind is not Kind.SOURCE:
                typed_uses.append(_TypedUse(use, base if base_outputs else None, must_rewire))
            elif role is Role.GROUP:
                typed_uses.append(
                    _TypedUse(
                        use, dtypes[self.problem.capped(use, self.levels[node.id])], must_rewire
                    )
                )
            else:
                typed_uses.append(
                    _TypedUse(use, base if use in graph.widened else current, must_rewire)
                )
        return typed_uses + self.absorbed.get(number, [])

    def _is_needless(self, cast: int, typed_uses: Sequence[_TypedUse]) -> bool:
        """Whether a narrowing Cast is redundant: its operand is low already, or another cast makes
        the same form.

        A use that needs the Cast's result in another dtype needs it rounded, so the Cast stays for
        that use unless the operand itself is low.
        """
        graph = self.graph
        operand, result = graph.nodes[cast].inputs[0], graph.nodes[cast].outputs[0]
        assert operand is not None, "a Cast has an operand"
        assert result is not None, "a Cast has a result"
        cast_dtype = graph.values[result].dtype
        producer = graph.nodes[graph.values[operand].producer]
        is_operand_low = (
            self._is_in_group(producer, operand)
            and self.line.dtypes[self.levels[producer.id]] is cast_dtype
        )
        if producer.kind is not Kind.SOURCE and is_operand_low:
            return True
        is_duplicate = cast_dtype is not None and graph.forms.get((operand, cast_dtype)) != cast
        return is_duplicate and not any(
            typed_use.dtype not in (None, cast_dtype) for typed_use in typed_uses
        )
