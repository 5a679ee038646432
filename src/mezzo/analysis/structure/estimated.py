"""What estimates say without data: values that may pass the range, and values whose rounding their readers cannot take.

Their producers and those readers keep FP32.
"""

import math
from collections.abc import Iterable, Sequence

from mezzo.analysis.estimates.moments import INTEGER, LOST, Moments
from mezzo.analysis.structure import StructureRule, View
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.policy import Finding, Lifting


def _producer(view: View, value: int) -> Node | None:
    """The operator or tie that makes a value in its own precision, if one does."""
    node = view.graph.nodes[view.graph.values[value].producer]
    if not view.is_decided(node) or value not in node.outputs:
        return None
    return node if node.signature.outputs[node.outputs.index(value)] is Role.GROUP else None


def overflows(view: View) -> Iterable[Finding]:
    """Values whose plausible numbers pass the format's range."""
    graph = view.graph
    for value, size in view.estimates.overflowing:
        if value in view.limited:
            continue
        name = graph.values[value].name
        text = f"may reach {size:.3g}, past {view.low.dtype}'s {view.low.max_finite:.6g}"
        maker = _producer(view, value)
        if maker is not None:
            yield Finding(node=maker.id, rule="may-overflow", because=f"{name!r} {text}")
        for use in graph.uses[value]:
            reader = graph.nodes[use.node]
            if reader.signature.inputs[use.operand] is Role.GROUP and view.is_decided(reader):
                cause = None if maker is None else maker.id
                yield Finding(node=reader.id, rule="may-overflow", because=f"reads {name!r}, which {text}", cause=cause)


def coarse(view: View) -> Iterable[Finding]:
    """Values that rounding puts off by more than their readers tolerate."""
    graph = view.graph
    for value, number, size, error, tolerated in view.estimates.coarse:
        reader = graph.nodes[number]
        text = (
            f"{graph.values[value].name!r}, about {size:.3g} in size, is off by {error:.2g} in {view.low.dtype} "
            f"where {reader.name!r} tolerates {tolerated:.2g}"
        )
        maker, lifting = _producer(view, value), _lifting(view, value, reader)
        if maker is not None:
            yield Finding(
                node=maker.id,
                rule="too-coarse",
                because=text,
                cause=None if maker is reader else reader.id,
                lifting=lifting,
            )
        operand = reader.inputs.index(value)
        if reader.signature.inputs[operand] is Role.GROUP and view.is_decided(reader):
            cause = None if maker is None or maker is reader else maker.id
            yield Finding(node=reader.id, rule="too-coarse", because=text, cause=cause, lifting=lifting)


def _lifting(view: View, value: int, reader: Node) -> Lifting | None:
    """Integers and loop state grow with lengths that data need not show, so no data lifts what is said of them."""
    is_integer = bool(view.estimates.held[value].flags & INTEGER)
    is_state = reader.kind is Kind.TIE or view.graph.nodes[view.graph.values[value].producer].kind is Kind.TIE
    return Lifting.NEVER if is_integer or is_state else None


# A number of so few of the format's smallest steps has lost its digits.
_STEPS = 8
# So many inputs and operators are named in a note.
_NAMED = 4


def notes_of(view: View) -> tuple[str, ...]:
    """What the estimates rest on, for people: what inputs were taken to hold, and operators that were not followed."""
    estimates = view.estimates
    assumptions = [held for held in estimates.assumptions if not held.held.flags & LOST]
    taken = [f"{held.name!r} {held.because} ({_span(held.held)})" for held in assumptions]
    notes = [f"where no data shows it, inputs are taken to hold: {_listed(taken)}; --assume NAME=LO..HI says otherwise"]
    strange = [op if count == 1 else f"{op} ({count})" for op, count in estimates.not_followed]
    if strange:
        notes.append(
            f"sizes are not followed through {_listed(strange)}: what they make is neither suspected nor cleared"
        )
    notes += [f"{said}; whether it is so, data shows" for said in _faded(view)]
    return tuple(notes) if taken else tuple(notes[1:])


def _faded(view: View) -> list[str]:
    """Outputs that all but vanish in the format. Untrained nets fade like that, so no rule keeps them in FP32."""
    low, held = view.low, view.estimates.held
    ends = [node.inputs[0] for node in view.graph.nodes if node.kind is Kind.OUTPUT]
    said = []
    for value in dict.fromkeys(value for value in ends if value is not None):
        size = math.hypot(held[value].mean, held[value].std)
        if not held[value].flags & LOST and 0 < size < _STEPS * low.smallest_subnormal:
            name = repr(view.graph.values[value].name)
            said.append(f"{name} seems to be about {size:.2g} in size, of which {low.dtype} keeps next to nothing")
    return said


def _span(x: Moments) -> str:
    return f"{x.low:.4g} to {x.high:.4g}"


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")


RULES = (
    StructureRule("may-overflow", "a value that plausible inputs bring past the range", overflows, Lifting.BY_RANGES),
    StructureRule("too-coarse", "a value whose rounding its readers cannot take", coarse, Lifting.BY_OUTPUTS),
)
ESTIMATED = frozenset(rule.name for rule in RULES)
