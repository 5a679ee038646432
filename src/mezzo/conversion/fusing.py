"""Normal form of a model before quantization: constant folding and fusion of adjacent operators."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Plan
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.raising import raise_operators, raised_as
from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HIGH, size_bits
from mezzo.formats.precision_line import PrecisionLine, floats_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import Options
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import matched, nodes_in_floats, rows_of
from mezzo.planner.verdicts.rules import nodes_in
from mezzo.report.layout.numbers import spell_count
from mezzo.tables.facts import Cost, Transfer
from mezzo.tables.target import Respelling

_WIDENED = (
    "integer kernels read and make f32: the model, of lower floats, is widened first; its weights"
    " are exact so"
)


def fuse(model: Model, options: Options) -> tuple[Model, Options]:
    """The normal form to plan, and its options; both unchanged if the options ask for no fusion.

    Integer kernels read and write FP32, so a model in lower floats is cast to FP32 first.

    Raises InputError: the model is in lower floats, and the target can quantize none of its nodes.
    """
    if options.planning.line.quantized is None:
        return _fuse(model, options)
    widened = model.widened()
    if widened is model:
        return _fuse(model, options)
    fused, options = _fuse(widened, replace(options, notes=(*options.notes, _WIDENED)))
    if not judge_model(fused, options)[1].units:
        target, dtype = options.planning.target.name, options.planning.line.quantized_format
        raise InputError(
            f"{model.name}: is of lower floats than {HIGH}, and target {target!r} runs none of its"
            f" operators in {dtype}; use it as it is, or choose another {option('target')}"
        )
    return fused, options


def _fuse(model: Model, options: Options) -> tuple[Model, Options]:
    """Raise operators of an FP32 model, and fold it, for `fuse`.

    Nodes that the options exclude, or fix at a float, keep their own operators. Include patterns
    that match only folded nodes are dropped, as the fused node is planned instead. A model that is
    already quantized is returned unchanged, so quantizing twice is idempotent.
    """
    model, options = raise_operators(model, options)
    planning = options.planning
    if not _is_fused(planning.line, options.fuse, bool(planning.weight_bits)):
        return model, options
    reading = model.read(*planning.floats)
    graph, quantized = reading.graph, planning.line.quantized_format
    if _came_quantized(graph):
        return model, options
    fixed = (
        nodes_in(graph, region)
        for region, dtype in planning.fixed_regions
        if dtype is not quantized
    )
    unfused = sorted(nodes_in_floats(graph, planning).union(*fixed))
    fused = model.fused(
        reading,
        unfused,
        _copied(planning.line, planning.weight_bits, _forms(planning)),
        planning.target.respellings,
    )
    if fused is model:
        return model, options
    fused_graph = fused.read(*planning.floats).graph
    include = tuple(_still_asked(planning.include, graph, fused_graph))
    notes = (*options.notes, _tell(graph, fused_graph))
    return fused, replace(options, planning=replace(planning, include=include), notes=notes)


def fused_as(model: Model, given: Plan, respellings: Sequence[Respelling] = ()) -> Model:
    """The normal form that a plan was made of: nodes that it lists with the same operator stay.

    `respellings` are those of the plan's target.
    """
    fuse = dict(given.settings).get("fuse", "standard")
    if given.line.quantized is not None:
        model = model.widened()
    model = raised_as(model, given)
    if not _is_fused(given.line, fuse, bool(given.in_blocks)):
        return model
    reading = model.read(*floats_of(given.line), version=given.version)
    if _came_quantized(reading.graph):
        return model
    ops = {name: node.op for name, node in given.by_name.items()}
    unfused = [node.id for node in reading.graph.nodes if ops.get(node.name) == node.op]
    storages = [storage for _, storage in given.in_blocks]
    bits, forms = {each.bits for each in storages}, {each.form for each in storages}
    return model.fused(reading, unfused, _copied(given.line, bits, forms), respellings)


def _came_quantized(graph: Graph) -> bool:
    """Whether a model has quantized operators other than weights that are only dequantized."""
    rows = [row for row in rows_of(graph) if row is not None and row.cost is Cost.QUANTIZE]
    return any(row.transfer is not Transfer.DEQUANTIZE for row in rows)


def _is_fused(line: PrecisionLine, fuse: str, is_in_blocks: bool) -> bool:
    """Whether the normal form is planned: scales, and weights in blocks, are of its constants."""
    return fuse == "simplify" or (
        fuse == "standard" and (line.quantized is not None or is_in_blocks)
    )


def _forms(planning: PlanningOptions) -> Collection[BlockForm]:
    """The forms of the weights in blocks that a target's kernels read."""
    return {row.form for row in planning.target.in_blocks if row.bits in planning.weight_bits}


def _copied(
    line: PrecisionLine, weight_bits: Collection[int], forms: Collection[BlockForm]
) -> float:
    """Bytes of a stored weight at the line's lowest level, or in blocks, relative to FP32; infinite
    if kernels read a weight both as it is and transposed.
    """
    if line.quantized is None and any(form.is_fused for form in forms):
        return math.inf
    levels = [] if line.quantized_format is None else [size_bits(line.quantized_format)]
    return min([*levels, *weight_bits, size_bits(HIGH)]) / size_bits(HIGH)


def _tell(before: Graph, after: Graph) -> str:
    """A note on nodes that were folded, replaced by another operator, or given a bias."""
    nodes = [node for node in before.nodes if node.kind is Kind.OP]
    folded = [node.op for node in nodes if node.name not in after.by_name]
    ops_after = {
        node.name: after.nodes[after.by_name[node.name]].op
        for node in nodes
        if node.name in after.by_name
    }
    replaced = [
        f"{node.op} as {ops_after[node.name]}"
        for node in nodes
        if ops_after.get(node.name, node.op) != node.op
    ]
    parts = []
    if folded:
        parts.append(
            f"{_counted(folded)} folded into constants, or into neighbouring operators, whose"
            " names stand for both"
        )
    if replaced:
        parts.append(f"{_counted(replaced)} written in other words")
    if completed := [
        node.op for node in nodes if len(node.inputs) < _count_inputs(after, node.name)
    ]:
        parts.append(
            f"{_counted(completed)} given a bias next to zero, as several read what it makes"
        )
    return "; ".join(parts)


def _count_inputs(graph: Graph, name: str) -> int:
    return len(graph.nodes[graph.by_name[name]].inputs) if name in graph.by_name else 0


def _counted(words: Sequence[str]) -> str:
    return (
        f"{spell_count(len(words), 'operator')} ({', '.join(sorted({*words}))})"
        f" {'is' if len(words) == 1 else 'are'}"
    )


def _still_asked(patterns: Iterable[str], before: Graph, after: Graph) -> Iterable[str]:
    """Include patterns without those that match only folded nodes; invalid ones stay."""
    return (
        pattern for pattern in patterns if matched(after, pattern) or not matched(before, pattern)
    )
