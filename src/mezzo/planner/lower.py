"""Turn an assignment into edits. The only place that places casts."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

import numpy as np

from mezzo.contracts.plans import AddCast, AddCopy, Edit, Quantize, Retype, Rewire, RunDynamic
from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import between
from mezzo.ir.columns import ANY
from mezzo.ir.nodes import Kind, Node, Role, Use


class _Wish(NamedTuple):
    """What a use wants: None takes the value as it comes. `must_rewire`: it reads through a Cast or another value
    today.
    """

    use: Use
    dtype: DType | None
    must_rewire: bool


# A third of the time of calling the class, and most values of a model are retyped.
_new_retype: Callable[[tuple[int, DType, float | None]], Retype] = partial(tuple.__new__, Retype)


def lower(problem: Problem, levels: Sequence[int], limits: Mapping[int, float] | None = None) -> tuple[Edit, ...]:
    """List the edits that give every node its level, values in graph order, then products whose ranges are found late.

    A value has one native form: its producer's dtype, or for a source the dtype it has today while any use wants that.
    Every other dtype that some use wants is one further form, made once and shared by all uses in all scopes; what is
    further away than a neighbour is cast from its neighbour. `limits` bounds constants that are stored beside the base,
    by value id. What is quantized is so beside its base form, and whoever reads it elsewhere reads that form. What
    nodes that hand on at the base make is cast back at once: uses that take any dtype get the base's
    form, and only uses that run as the maker does read what was rounded anyway.
    """
    return tuple(_Lowering(problem, levels, limits or {}).edits())


class _Lowering:
    def __init__(self, problem: Problem, levels: Sequence[int], limits: Mapping[int, float]) -> None:
        self.problem, self.graph, self.line = problem, problem.graph, problem.line
        self.levels, self.limits = levels, limits
        self.quantized = self.line.quantized_format
        self.absorbed: dict[int, list[_Wish]] = {}  # by value: wishes of uses that read it through a needless Cast
        known = {} if problem.quantized is None else problem.quantized.dynamic
        self.dynamic = {number: one for number, one in known.items() if levels[number] == self.line.quantized}

    def edits(self) -> list[Edit]:
        found: list[Edit] = []
        # Backwards, so that the uses of a needless Cast are known before its operand is lowered.
        for number, native in self._changing():
            if native is not None:
                found.append(_new_retype((number, native, self.limits.get(number))))
            else:
                dtype = self.graph.values[number].dtype
                assert dtype is not None, "only values with a dtype are lowered"
                found += reversed(self._lower_value(number, dtype))
        found.reverse()
        return [*found, *(RunDynamic(number, product) for number, product in self.dynamic.items())]

    def _changing(self) -> Iterator[tuple[int, DType | None]]:
        """Values to lower, last first, with the dtype of those that only change and that every use agrees with. Most
        values are neither.
        """
        columns, line = self.graph.columns, self.line
        held, planned = self.problem.held, columns.holds(*line.dtypes)
        is_source = columns.is_kind(Kind.SOURCE)[columns.value_producer]
        # A source has no precision of its own that readers of any dtype could follow: they get its numbers as they are.
        wants = self.problem.wanted_at(self.levels)
        speaks = (columns.use_role != ANY) | is_source[columns.use_value]
        wanted = np.zeros((len(line.levels), len(held)), bool)  # by some use
        wanted[wants[speaks], columns.use_value[speaks]] = True
        stored = np.where(wanted.sum(axis=0) == 1, wanted.argmax(axis=0), held)
        makes = np.where(is_source, stored, self.problem.made_at(self.levels))
        is_cast = columns.is_kind(Kind.CAST)
        differs = speaks & (wants != makes[columns.use_value])
        close = is_cast[columns.value_producer]
        close[columns.use_value[differs | columns.use_aliased | is_cast[columns.use_node]]] = True
        if line.quantized is not None:
            close |= makes == line.quantized
        for number in self.problem.hands_on_base:
            close[[value for value in self.graph.nodes[number].outputs if value is not None]] = True
        for number in np.flatnonzero(planned & (close | (makes != held)))[::-1].tolist():
            yield number, None if close[number] else line.dtypes[makes[number]]

    def _is_in_group(self, producer: Node, value: int) -> bool:
        """Whether a value has its producer's precision. What a control node hands to a body is none of its outputs."""
        if value not in producer.outputs:
            return False
        return producer.signature.outputs[producer.outputs.index(value)] is Role.GROUP

    def _native(self, number: int) -> DType:
        """What an operator, input or tie makes of its value."""
        graph = self.graph
        producer = graph.nodes[graph.values[number].producer]
        if self._is_in_group(producer, number):
            level = self.levels[producer.id]
            return self.line.dtypes[min(level, self.line.base) if self.problem.stays_inside[number] else level]
        held = graph.values[number].dtype
        assert held is not None, "only values with a dtype are lowered"
        return held

    def _lower_value(self, number: int, held: DType) -> list[Edit]:
        graph = self.graph
        planning = self._wishes(number, held)
        producer = graph.nodes[graph.values[number].producer]
        if producer.kind is Kind.CAST and self._is_needless(producer.id, planning):
            operand = producer.inputs[0]
            assert operand is not None, "a Cast has an operand"
            moved = [wish._replace(must_rewire=True) for wish in planning]
            self.absorbed.setdefault(operand, []).extend(moved)
            return []
        if producer.kind is Kind.SOURCE:
            stored = {wish.dtype for wish in planning if wish.dtype not in (None, self.quantized)}
            native = held if held in stored or not stored else min(stored, key=self.line.dtypes.index)
        else:
            native = self._native(number)
        quantizing: list[Edit] = []
        wanted = {wish.dtype or native for wish in planning}
        if self.quantized is not None and self.quantized in (native, *wanted):
            planning, quantizing = self._quantize(number, native, planning)
            native = self.line.base_dtype if native is self.quantized else native
            # What is quantized is made from the base form, but for a source, which is stored in any.
            wanted = {wish.dtype or native for wish in planning}
            wanted |= set() if producer.kind is Kind.SOURCE else {self.line.base_dtype}
        edits: list[Edit] = [] if native is held else [Retype(number, native, self.limits.get(number))]
        forms = {edit.dtype: edit for edit in self._forms(number, native, wanted)}
        first = self.line.dtypes.index(native)
        # Every form stands behind the one that it is made from.
        for dtype in (*reversed(self.line.dtypes[:first]), *self.line.dtypes[first:]):
            readers = [wish for wish in planning if (wish.dtype or native) is dtype]
            edits += [forms[dtype]] if dtype in forms else []
            edits += [Rewire(*wish.use, number, dtype) for wish in readers if dtype is not native or wish.must_rewire]
        return edits + quantizing

    def _quantize(self, number: int, native: DType, planning: Sequence[_Wish]) -> tuple[list[_Wish], list[Edit]]:
        """What is left to wish of floats once a value is quantized, and the edits that quantize it."""
        assert self.problem.quantized is not None, "a line with such a level"
        assert self.quantized is not None, "the same"
        known, base, quantized = self.problem.quantized, self.line.base_dtype, self.quantized
        readers = [wish for wish in planning if wish.dtype is quantized]
        alone = [wish for wish in readers if wish.use in known.offsets]
        held = [Quantize(number, known.offsets[wish.use], takes_over=False, reader=wish.use) for wish in alone]
        readers = [wish for wish in readers if wish.use not in known.offsets]
        if native is not quantized:
            others = [wish for wish in planning if wish.dtype is not quantized]
            rewired = [Rewire(*wish.use, number, quantized) for wish in readers]
            shared = [Quantize(number, known.parameters[number], takes_over=False)] if readers else []
            return others, [*held, *shared, *rewired]
        others = [wish._replace(dtype=base) if wish.dtype is quantized else wish for wish in planning]
        if number in known.handed_on or (not readers and number in known.hand_on_either):
            return others, []  # nobody reads it quantized, so it may have no parameters
        return others, [Quantize(number, known.parameters[number], takes_over=True)]

    def _forms(self, number: int, native: DType, wanted: Set[DType]) -> Iterator[AddCast | AddCopy]:
        """The further forms of a value: a source's as they are wanted, others with what stands on the way to them."""
        graph, dtypes = self.graph, self.line.dtypes
        is_source = graph.nodes[graph.values[number].producer].kind is Kind.SOURCE
        first = dtypes.index(native)
        for level in between(first, [dtypes.index(dtype) for dtype in wanted]):
            dtype, neighbour = dtypes[level], dtypes[level - 1 if level > first else level + 1]
            if (number, dtype) in graph.forms or (is_source and dtype not in wanted):
                continue
            if is_source:
                yield AddCopy(number, dtype, None if level == self.line.base else self.limits.get(number))
            else:
                yield AddCast(number, dtype, None if neighbour is native else neighbour)

    def _wishes(self, number: int, held: DType) -> list[_Wish]:
        graph = self.graph
        maker = graph.nodes[graph.values[number].producer]
        base, dtypes = self.line.base_dtype, self.line.dtypes
        is_beside = self.levels[maker.id] != self.line.base and self._is_in_group(maker, number)
        hands_on_base = is_beside and maker.id in self.problem.hands_on_base
        found = []
        for use in graph.uses[number]:
            node = graph.nodes[use.node]
            if node.kind is Kind.CAST:
                continue  # it is its own cast, or needless and its users come through `absorbed`
            if node.id in self.dynamic and use.operand in self.dynamic[node.id].weight_operands:
                continue  # it is read as integers, which are made with the product
            role = node.signature.inputs[use.operand]
            must_rewire = use in graph.aliased
            if role is Role.ANY and maker.kind is not Kind.SOURCE:
                found.append(_Wish(use, base if hands_on_base else None, must_rewire))
            elif role is Role.GROUP:
                found.append(_Wish(use, dtypes[self.problem.capped(use, self.levels[node.id])], must_rewire))
            else:
                found.append(_Wish(use, base if use in graph.widened else held, must_rewire))
        return found + self.absorbed.get(number, [])

    def _is_needless(self, cast: int, planning: Sequence[_Wish]) -> bool:
        """Whether a narrowing Cast has nothing left to do: its operand is low, or another cast makes the same form.

        Whoever wants what it made in another dtype wants it rounded, so past another cast it has to stay for them.
        """
        graph = self.graph
        operand, result = graph.nodes[cast].inputs[0], graph.nodes[cast].outputs[0]
        assert operand is not None, "a Cast has an operand"
        assert result is not None, "a Cast has a result"
        made = graph.values[result].dtype
        maker = graph.nodes[graph.values[operand].producer]
        is_made_so = self._is_in_group(maker, operand) and self.line.dtypes[self.levels[maker.id]] is made
        if maker.kind is not Kind.SOURCE and is_made_so:
            return True
        is_other = made is not None and graph.forms.get((operand, made)) != cast
        return is_other and not any(wish.dtype not in (None, made) for wish in planning)
