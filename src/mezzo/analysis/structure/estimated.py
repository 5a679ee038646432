"""Findings from static estimates: values that may overflow, and values whose rounding error exceeds
a reader's tolerance. Their producers and those readers stay in FP32.
"""

import math
from collections.abc import Iterable, Sequence

from mezzo.analysis.estimates.moments import INTEGER, LOST, Moments
from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.policy import Lifting


def _producer(view: StructureView, value: int) -> Node | None:
    """The operator or tie that produces a value in its compute group; None if there is none."""
    node = view.graph.producer(value)
    if not view.is_decided(node) or value not in node.outputs:
        return None
    return node if node.signature.outputs[node.outputs.index(value)] is Role.GROUP else None


def overflows(view: StructureView) -> Iterable[Detection]:
    """Values whose plausible range exceeds the format's."""
    graph = view.graph
    for value, size in view.estimates.overflowing:
        if value in view.limited:
            continue
        name = graph.values[value].name
        text = f"may reach {size:.3g}, past {view.low.dtype}'s {view.low.max_finite:.6g}"
        maker = _producer(view, value)
        if maker is not None:
            yield Detection(maker, f"{name!r} {text}")
        for use in graph.uses[value]:
            reader = graph.nodes[use.node]
            if reader.signature.inputs[use.operand] is Role.GROUP:
                yield Detection(reader, f"reads {name!r}, which {text}", maker)


def coarse(view: StructureView) -> Iterable[Detection]:
    """Values whose rounding error exceeds what a reader tolerates."""
    graph = view.graph
    for value, number, size, error, tolerated in view.estimates.coarse:
        reader = graph.nodes[number]
        text = (
            f"{graph.values[value].name!r}, about {size:.3g} in size, is off by {error:.2g} in"
            f" {view.low.dtype} where {reader.name!r} tolerates {tolerated:.2g}"
        )
        maker, lifting = _producer(view, value), _lifting(view, value, reader)
        if maker is not None:
            yield Detection(maker, text, reader, lifting)
        if reader.signature.inputs[reader.inputs.index(value)] is Role.GROUP:
            yield Detection(reader, text, maker, lifting)


def _lifting(view: StructureView, value: int, reader: Node) -> Lifting | None:
    """Findings on integers and loop state are never cleared by data, since both grow with lengths
    that calibration data may lack.
    """
    is_integer = bool(view.estimates.moments[value].flags & INTEGER)
    is_state = Kind.TIE in (reader.kind, view.graph.producer(value).kind)
    return Lifting.NEVER if is_integer or is_state else None


MAY_OVERFLOW = "may-overflow"
# Outputs below this many smallest subnormals have lost their precision.
_STEPS = 8
# Maximum number of names in a note.
_NAMED = 4


def notes_of(view: StructureView) -> tuple[str, ...]:
    """Notes on the basis of the estimates: assumed inputs, operators without a law, and outputs
    that nearly vanish.
    """
    estimates = view.estimates
    assumptions = [entry for entry in estimates.assumptions if not entry.estimate.flags & LOST]
    texts = [f"{entry.name!r} {entry.because} ({_span(entry.estimate)})" for entry in assumptions]
    notes = [
        f"where no data shows it, inputs are taken to hold: {_listed(texts)}; --assume NAME=LO..HI"
        " says otherwise"
    ]
    strange = [op if count == 1 else f"{op} ({count})" for op, count in estimates.not_followed]
    if strange:
        notes.append(
            f"sizes are not followed through {_listed(strange)}: what they make is neither"
            " suspected nor cleared"
        )
    notes += [f"{text}; whether it is so, data shows" for text in _faded(view)]
    return tuple(notes) if texts else tuple(notes[1:])


def _faded(view: StructureView) -> list[str]:
    """Sentences about outputs that nearly underflow. Untrained models have such outputs, so no rule
    keeps them in FP32.
    """
    low, estimates = view.low, view.estimates.moments
    ends = [node.inputs[0] for node in view.graph.nodes if node.kind is Kind.OUTPUT]
    sentences = []
    for value in dict.fromkeys(value for value in ends if value is not None):
        size = math.hypot(estimates[value].mean, estimates[value].std)
        if not estimates[value].flags & LOST and 0 < size < _STEPS * low.smallest_subnormal:
            name = repr(view.graph.values[value].name)
            sentences.append(
                f"{name} seems to be about {size:.2g} in size, of which {low.dtype} keeps next to"
                " nothing"
            )
    return sentences


def _span(x: Moments) -> str:
    return f"{x.low:.4g} to {x.high:.4g}"


def _listed(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")


RULES = (
    StructureRule(
        MAY_OVERFLOW,
        "a value that plausible inputs bring past the range",
        overflows,
        Lifting.BY_RANGES,
    ),
    StructureRule(
        "too-coarse", "a value whose rounding its readers cannot take", coarse, Lifting.BY_OUTPUTS
    ),
)
ESTIMATED = frozenset(rule.name for rule in RULES)
