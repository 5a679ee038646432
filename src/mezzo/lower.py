"""Turn an assignment into edits. The only place that places casts."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from mezzo.columns import ANY
from mezzo.dtypes import DType
from mezzo.graph import Graph, Kind, Node, Role, Use
from mezzo.plans import AddCast, AddCopy, Edit, Retype, Rewire


class _Wish(NamedTuple):
    """What a use wants: None takes the value as it comes. `must_rewire`: it reads through a Cast or another value
    today.
    """

    use: Use
    dtype: DType | None
    must_rewire: bool


def lower(
    graph: Graph,
    high: DType,
    low: DType,
    is_low: Sequence[bool],
    limits: Mapping[int, float] | None = None,
    hands_on_high: Set[int] = frozenset(),
) -> tuple[Edit, ...]:
    """List the edits that give every node its precision, values in graph order.

    A value has one native form: its producer's dtype, or for a source the dtype it has today while any use wants that.
    Every other dtype that some use wants is one further form, made once and shared by all uses in all scopes. `limits`
    bounds constants that are stored low, by value id. What nodes of `hands_on_high` make is cast up at once: uses that
    take any dtype get the high form, and only uses that run low themselves read what was rounded anyway.
    """
    return tuple(_Lowering(graph, high, low, is_low, limits or {}, hands_on_high).edits())


class _Lowering:
    def __init__(
        self,
        graph: Graph,
        high: DType,
        low: DType,
        is_low: Sequence[bool],
        limits: Mapping[int, float],
        hands_on_high: Set[int],
    ) -> None:
        self.graph, self.high, self.low, self.is_low, self.limits = graph, high, low, is_low, limits
        self.hands_on_high = hands_on_high
        self.absorbed: dict[int, list[_Wish]] = {}  # by value: wishes of uses that read it through a needless Cast

    def edits(self) -> list[Edit]:
        found: list[Edit] = []
        # Backwards, so that the uses of a needless Cast are known before its operand is lowered.
        for number, native in self._changing():
            if native is not None:
                found.append(Retype(number, native, self.limits.get(number)))
            else:
                dtype = self.graph.values[number].dtype
                assert dtype is not None, "only values with a dtype are lowered"
                found += reversed(self._lower_value(number, dtype))
        found.reverse()
        return found

    def _changing(self) -> Iterator[tuple[int, DType | None]]:
        """Values to lower, last first, with the dtype of those that only change and that every use agrees with. Most
        values are neither.
        """
        columns = self.graph.columns
        low = np.array(self.is_low, bool)
        held_low = columns.holds(self.low)
        planned = held_low | columns.holds(self.high)
        is_source = columns.is_kind(Kind.SOURCE)[columns.value_producer]
        # A source has no precision of its own that readers of any dtype could follow: they get its numbers as they are.
        wants_low, speaks = columns.wanted_in(self.low, low), (columns.use_role != ANY) | is_source[columns.use_value]
        wanted = np.zeros((2, len(held_low)), bool)  # by some use: high, low
        wanted[wants_low[speaks].astype(int), columns.use_value[speaks]] = True
        stored_low = np.where(wanted[0] == wanted[1], held_low, wanted[1])
        makes_low = np.where(is_source, stored_low, columns.made_in(self.low, low))
        is_cast = columns.is_kind(Kind.CAST)
        differs = speaks & (wants_low != makes_low[columns.use_value])
        close = is_cast[columns.value_producer]
        close[columns.use_value[differs | columns.use_aliased | is_cast[columns.use_node]]] = True
        for number in self.hands_on_high:
            close[[value for value in self.graph.nodes[number].outputs if value is not None]] = True
        for number in np.flatnonzero(planned & (close | (makes_low != held_low)))[::-1].tolist():
            yield number, None if close[number] else self.low if makes_low[number] else self.high

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
            return self.low if self.is_low[producer.id] else self.high
        held = graph.values[number].dtype
        assert held is not None, "only values with a dtype are lowered"
        return held

    def _lower_value(self, number: int, held: DType) -> list[Edit]:
        graph = self.graph
        wishes = self._wishes(number, held)
        producer = graph.nodes[graph.values[number].producer]
        if producer.kind is Kind.CAST and self._is_needless(producer.id, wishes):
            operand = producer.inputs[0]
            assert operand is not None, "a Cast has an operand"
            moved = [wish._replace(must_rewire=True) for wish in wishes]
            self.absorbed.setdefault(operand, []).extend(moved)
            return []
        if producer.kind is Kind.SOURCE:
            wanted = {wish.dtype for wish in wishes if wish.dtype is not None}
            native = held if held in wanted or not wanted else next(iter(wanted))
        else:
            native = self._native(number)
        limit = self.limits.get(number)
        edits: list[Edit] = [] if native is held else [Retype(number, native, limit)]
        for dtype in (self.high, self.low):
            readers = [wish for wish in wishes if (wish.dtype or native) is dtype]
            if dtype is not native and readers and (number, dtype) not in graph.forms:
                edits.append(
                    AddCopy(number, dtype, limit if dtype is self.low else None)
                    if producer.kind is Kind.SOURCE
                    else AddCast(number, dtype)
                )
            edits += [Rewire(*wish.use, number, dtype) for wish in readers if dtype is not native or wish.must_rewire]
        return edits

    def _wishes(self, number: int, held: DType) -> list[_Wish]:
        graph = self.graph
        maker = graph.nodes[graph.values[number].producer]
        hands_on_high = maker.id in self.hands_on_high and self.is_low[maker.id] and self._is_in_group(maker, number)
        found = []
        for use in graph.uses[number]:
            node = graph.nodes[use.node]
            if node.kind is Kind.CAST:
                continue  # it is its own cast, or needless and its users come through `absorbed`
            role = node.signature.inputs[use.operand]
            must_rewire = use in graph.aliased
            if role is Role.ANY and maker.kind is not Kind.SOURCE:
                found.append(_Wish(use, self.high if hands_on_high else None, must_rewire))
            elif role is Role.GROUP:
                found.append(_Wish(use, self.low if self.is_low[node.id] else self.high, must_rewire))
            else:
                found.append(_Wish(use, self.high if use in graph.widened else held, must_rewire))
        return found + self.absorbed.get(number, [])

    def _is_needless(self, cast: int, wishes: Sequence[_Wish]) -> bool:
        """Whether a narrowing Cast has nothing left to do: its operand is low, or another cast makes the same form.

        Whoever wants what it made high wants it rounded, so past another cast it has to stay for them.
        """
        graph = self.graph
        operand = graph.nodes[cast].inputs[0]
        assert operand is not None, "a Cast has an operand"
        maker = graph.nodes[graph.values[operand].producer]
        if maker.kind is not Kind.SOURCE and self._is_in_group(maker, operand) and self.is_low[maker.id]:
            return True
        is_other = graph.forms.get((operand, self.low)) != cast
        return is_other and not any(wish.dtype is self.high for wish in wishes)
