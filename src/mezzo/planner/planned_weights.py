"""The weights of a plan that may store them in blocks or in a low float: how each is stored, its
bytes, and why.
"""

from collections.abc import Iterable, Sequence

from mezzo.common.message_style import setting
from mezzo.common.name_matching import join_with_or
from mezzo.contracts.plans import AddCopy, Edit, PlannedWeight, Quantize, Retype, RunDynamic
from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import FORMATS, STORED_AS, DType, size_bits
from mezzo.formats.format_words import weight_word
from mezzo.ir.graph import Graph
from mezzo.ir.weight_reads import bytes_in_blocks, nodes_of, weight_reads
from mezzo.planner.choices.block_weights import BlockWeight, FloatWeight, judge_weights
from mezzo.planner.choices.stored_floats import judge_floats
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import nodes_in_floats

_BLOCKS = "blocks"
_LEFT = "left-in-floats"
_QUANTIZED = "quantized"


def planned_weights(
    problem: Problem, planning: PlanningOptions, edits: Sequence[Edit]
) -> tuple[PlannedWeight, ...]:
    """Every float constant of a model; empty if no weight was to be stored in blocks or in a low
    float.
    """
    graph, in_blocks = problem.graph, problem.in_blocks
    if planning.weight_float is not None or problem.stored_floats:
        return _weights_in_floats(problem, planning)
    bits = sorted({*planning.weight_bits, *(storage.bits for storage in in_blocks.values())})
    excluded = nodes_in_floats(graph, planning)
    by_bits = {
        count: {w.value: w for w in judge_weights(graph, planning.target, count, excluded)}
        for count in bits
    }
    dtypes, quantized = _float_dtypes(graph, edits), _quantized(graph, edits)
    weights = []
    for number in by_bits[bits[0]] if bits else ():
        storage = in_blocks.get(number)
        judged = {count: by_value[number] for count, by_value in by_bits.items()}
        elements = graph.values[number].elements
        before = graph.values[number].dtype
        assert before is not None, "a float has a dtype"
        if storage is not None:
            stored_bytes = bytes_in_blocks(graph, number, storage)
            rule, because = _why_blocks(judged[storage.bits], planning)
        else:
            integers = quantized.get(number)
            kept = dtypes.get(number, {before}) if integers is None else STORED_AS[integers][:1]
            stored_bytes = sum(elements * size_bits(dtype) // 8 for dtype in kept)
            rule, because = (
                _why_floats(judged, planning, kept)
                if integers is None
                else _why_quantized(integers)
            )
        weights.append(
            PlannedWeight(
                name=graph.producer(number).name,
                value=graph.values[number].name,
                size_bytes=elements * size_bits(before) // 8,
                stored_bytes=stored_bytes,
                storage=storage,
                rule=rule,
                because=because,
                readers=tuple(graph.nodes[n].name for n in nodes_of(weight_reads(graph, number))),
                quantized=quantized.get(number),
            )
        )
    return tuple(weights)


def _weights_in_floats(problem: Problem, planning: PlanningOptions) -> tuple[PlannedWeight, ...]:
    """Every float constant of a model whose weights are stored in a low float."""
    graph, stored = problem.graph, problem.stored_floats
    low = planning.weight_float or next(iter(stored.values()))
    weights = []
    for judged in judge_floats(graph, low, nodes_in_floats(graph, planning)):
        value, dtype = graph.values[judged.value], stored.get(judged.value)
        assert value.dtype is not None, "a float has a dtype"
        rule, because = judged.rule, judged.because
        if judged.is_stored is (dtype is None):  # a plan may say other than the rules
            rule, because = "plan", "the plan says so"
        weights.append(
            PlannedWeight(
                name=graph.producer(judged.value).name,
                value=value.name,
                size_bytes=value.elements * size_bits(value.dtype) // 8,
                stored_bytes=value.elements * size_bits(dtype or value.dtype) // 8,
                storage=None,
                rule=rule,
                because=because,
                readers=tuple(
                    graph.nodes[n].name for n in nodes_of(weight_reads(graph, judged.value))
                ),
                low=dtype,
            )
        )
    return tuple(weights)


def _why_blocks(weight: BlockWeight | FloatWeight, planning: PlanningOptions) -> tuple[str, str]:
    """The kernels that read a weight in blocks."""
    if isinstance(weight, FloatWeight):  # a plan may say more than the table
        return (
            _BLOCKS,
            f"the plan stores it so, and {planning.target.name} does not: {weight.because}",
        )
    evidence = dict.fromkeys(f"{row.source}; {row.since}" for row in weight.rows)
    return _BLOCKS, f"{planning.target.name} reads it so ({', '.join(evidence)})"


def _why_floats(
    judged: dict[int, BlockWeight | FloatWeight], planning: PlanningOptions, kept: Iterable[DType]
) -> tuple[str, str]:
    """Why a weight stays in floats: no kernel reads it in blocks, its matmuls are faster in a low
    float, or the plan does not say so. `kept`: the types that it is stored in.
    """
    words = [weight_word(bits) for bits, each in judged.items() if isinstance(each, BlockWeight)]
    kernels = [
        row
        for each in judged.values()
        if isinstance(each, BlockWeight)
        for row in each.rows
        if not row.reads_floats
    ]
    base = planning.line.base_dtype
    if words and not any(base in row.floats for row in kernels):
        floats = sorted({str(dtype) for row in kernels for dtype in row.floats})
        because = (
            f"{planning.target.name} reads it so with operands in {join_with_or(floats)} alone"
        )
        return _LEFT, f"{because}, and its readers run in {base}"
    lows = sorted(str(dtype) for dtype in kept if dtype in planning.line.other_dtypes)
    if words and lows and planning.in_blocks is None:
        share = setting("decode", planning.decode)
        because = f"its matmuls are faster in {' and '.join(lows)} at {share}, casts included"
        return "faster-in-floats", because
    if words:
        chooser = "the search" if planning.weight_bits else "the plan"
        return _LEFT, f"{' and '.join(words)} would do, and {chooser} keeps it in floats"
    reason = next(each for each in judged.values() if isinstance(each, FloatWeight))
    return reason.rule, reason.because


def _why_quantized(dtype: DType) -> tuple[str, str]:
    return _QUANTIZED, f"its readers multiply in {FORMATS[dtype].words[0]}"


def _quantized(graph: Graph, edits: Sequence[Edit]) -> dict[int, DType]:
    """Weights whose readers multiply integers, with the quantized format."""
    stored: dict[int, DType] = {}
    for edit in edits:
        if isinstance(edit, Quantize) and edit.value in graph.constants:
            stored[edit.value] = edit.how.dtype
        elif isinstance(edit, RunDynamic):
            for weight in edit.product.weights:
                value = graph.nodes[weight.use.node].inputs[weight.use.operand]
                assert value is not None, "a product has its weight"
                stored[value] = weight.how.dtype
    formats = {dtype: row for row, dtypes in STORED_AS.items() for dtype in dtypes}
    return {value: formats[dtype] for value, dtype in stored.items() if dtype in formats}


def _float_dtypes(graph: Graph, edits: Sequence[Edit]) -> dict[int, set[DType]]:
    """The types in which the result stores constants, where they are not the model's."""
    dtypes: dict[int, set[DType]] = {}
    for edit in edits:
        if isinstance(edit, Retype):
            dtypes[edit.value] = {edit.dtype}
    for edit in edits:
        if isinstance(edit, AddCopy):
            own = graph.values[edit.value].dtype
            dtypes.setdefault(edit.value, set() if own is None else {own}).add(edit.dtype)
    return dtypes
