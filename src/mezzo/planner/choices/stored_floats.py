"""Weights stored in a low float and cast to FP32, in which their readers compute."""

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.formats.dtypes import FLOATING, FORMATS, HIGH, LOW_DTYPES, DType
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Kind, Role
from mezzo.ir.weight_reads import nodes_of, weight_reads
from mezzo.planner.choices.choosing import named_weight

# Of a weight: with fewer, a Cast and its names take a good part of the bytes saved.
LEAST_ELEMENTS = 1 << 12
_STORED = "low-float"


class StoredFloat(NamedTuple):
    """Whether a weight is stored in a low float, and why. `rule`: kind of reason; `because`: a
    sentence.
    """

    value: int
    is_stored: bool
    rule: str
    because: str


def judge_floats(graph: Graph, low: DType, excluded: Set[int]) -> Iterator[StoredFloat]:
    """Every float constant of a model that something reads, in graph order: whether it can be
    stored in `low`. `excluded`: nodes that read weights as they are.
    """
    for number in graph.constants:
        is_weight = graph.producer(number).kind is Kind.SOURCE and graph.uses[number]
        if is_weight and graph.values[number].dtype in FLOATING:
            obstacle = _obstacle(graph, number, low, excluded)
            if obstacle is None:
                because = (
                    f"its numbers lie in the range of {low}, and a Cast gives its readers {HIGH}"
                )
                yield StoredFloat(number, True, _STORED, because)
            else:
                yield StoredFloat(number, False, *obstacle)


def _obstacle(graph: Graph, number: int, low: DType, excluded: Set[int]) -> tuple[str, str] | None:
    """Why a weight stays as it is: a rule and a sentence."""
    facts, dtype = graph.constants[number], graph.values[number].dtype
    if dtype is not HIGH:
        return "not-f32", f"it is {dtype} in the model, and only weights in {HIGH} are rounded"
    if facts.elements < LEAST_ELEMENTS:
        return "too-small", f"with fewer than {LEAST_ELEMENTS} elements it is not worth a Cast"
    for use in graph.uses[number]:
        reader = graph.nodes[use.node]
        if reader.kind is not Kind.OP or reader.signature.inputs[use.operand] is not Role.GROUP:
            return "other-reader", f"{reader.name!r} reads it as more than an operand in {HIGH}"
    readers = nodes_of(weight_reads(graph, number))
    kept = next((graph.nodes[node].name for node in readers if node in excluded), None)
    if kept is not None:
        options = f"{option('exclude')} or {option('keep_region')}"
        return "excluded", f"{kept!r} reads it, which {options} leaves as it is"
    return _loss(facts, low)


def _loss(facts: ConstantFacts, low: DType) -> tuple[str, str] | None:
    """What a low float would lose of a weight beyond its rounding: a rule and a sentence."""
    row = FORMATS[low]
    wider = next(
        (word for word, dtype in LOW_DTYPES.items() if FORMATS[dtype].max_finite > row.max_finite),
        None,
    )
    other = f"; {setting('to', f'{wider}w')} holds it" if wider else ""
    if facts.largest >= row.overflow_from:
        because = f"it reaches {facts.largest:.4g}, past {low}'s {row.max_finite:.6g}{other}"
        return "out-of-range", because
    if facts.is_whole and facts.largest > 2 / row.eps:
        because = (
            f"it holds whole numbers to {facts.largest:.6g}, and {low} only to {2 / row.eps:g}"
        )
        return "whole-numbers", because
    typical = facts.rms if facts.faint is None else facts.faint
    if typical is not None and 0.0 < typical < row.smallest_normal:
        because = (
            f"its numbers are about {typical:.2g}, below {low}'s smallest normal number"
            f" {row.smallest_normal:.2g}{other}"
        )
        return "underflow", because
    return None


def floats_stored(graph: Graph, by_name: Mapping[str, DType]) -> dict[int, DType]:
    """Weights of a plan that are stored in a low float, by value id. `by_name`: by a source's node
    name.

    Raises InputError: a name is of no weight in FP32, or its readers cannot read a Cast.
    """
    stored = {}
    for name, dtype in by_name.items():
        value = named_weight(graph, name, dtype, HIGH)
        if any(graph.nodes[use.node].kind is not Kind.OP for use in graph.uses[value]):
            raise InputError(
                f"the plan stores {name!r} in {dtype}, and what reads it is more than operators;"
                " take its line out of the plan"
            )
        stored[value] = dtype
    return stored
