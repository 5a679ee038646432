"""What is planned in place of a model that is to be quantized: its normal form, with operators folded."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Plan
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import HIGH, size_bits
from mezzo.formats.precision_line import PrecisionLine, float_of
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import Options
from mezzo.planner.planner import matched, rows_of
from mezzo.planner.verdicts.rules import nodes_in
from mezzo.report.layout.numbers import spell_count
from mezzo.tables.facts import Cost, Transfer
from mezzo.tables.target import Respelling

_WIDENED = "integer kernels read and make f32: the model, of lower floats, is widened first; its weights are exact so"


def fuse(model: Model, options: Options) -> tuple[Model, Options]:
    """The model to plan, with the options for it: both as they are where nothing is to be quantized, unless it is asked
    for.

    Kernels of integers read and make FP32, so a model of lower floats is widened first.

    Raises InputError: the model is of lower floats, and the target runs none of it in the quantized format.
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
            f"{model.name}: is of lower floats than {HIGH}, and target {target!r} runs none of its operators in "
            f"{dtype}; use it as it is, or choose another {option('target')}"
        )
    return fused, options


def _fuse(model: Model, options: Options) -> tuple[Model, Options]:
    """The same for a model on FP32.

    What the options leave out, or fix at a float, stays an operator of its own. What they only ask for runs as what it
    was folded into does, so patterns that select nothing else are done with. What came quantized was given its form by
    whoever did that, and is left in it: quantizing twice changes nothing more.
    """
    planning = options.planning
    if not _is_fused(planning.line, options.fuse):
        return model, options
    reading = model.read(planning.low)
    graph, quantized = reading.graph, planning.line.quantized_format
    if _came_quantized(graph):
        return model, options
    regions = [*planning.keep_regions, *(region for region, dtype in planning.fixed_regions if dtype is not quantized)]
    apart = {node.id for pattern in planning.exclude for node in matched(graph, pattern)}
    kept = sorted(apart.union(*(nodes_in(graph, region) for region in regions)))
    fused = model.fused(reading, kept, _copied(planning.line), planning.target.respellings)
    if fused is model:
        return model, options
    left = fused.read(planning.low).graph
    include = tuple(_still_asked(planning.include, graph, left))
    notes = (*options.notes, _tell(graph, left))
    return fused, replace(options, planning=replace(planning, include=include), notes=notes)


def fused_as(model: Model, given: Plan, respellings: Sequence[Respelling] = ()) -> Model:
    """The model that a plan was made of: what has a line in it, as the operator that it is, stayed as it was.
    `respellings` are those of its target.
    """
    fuse = dict(given.settings).get("fuse", "standard")
    if given.line.quantized is not None:
        model = model.widened()
    if not _is_fused(given.line, fuse):
        return model
    reading = model.read(float_of(given.line), given.version)
    if _came_quantized(reading.graph):
        return model
    ops = {name: node.op for name, node in given.by_name.items()}
    apart = [node.id for node in reading.graph.nodes if ops.get(node.name) == node.op]
    return model.fused(reading, apart, _copied(given.line), respellings)


def _came_quantized(graph: Graph) -> bool:
    """Whether a model holds integer kernels; a weight that is dequantized and nothing more makes none."""
    rows = [row for row in rows_of(graph) if row is not None and row.cost is Cost.QUANTIZE]
    return any(row.transfer is not Transfer.DEQUANTIZE for row in rows)


def _is_fused(line: PrecisionLine, fuse: str) -> bool:
    return fuse == "simplify" or (fuse != "none" and line.quantized is not None)


def _copied(line: PrecisionLine) -> float:
    """Bytes of a weight that is stored as the line's lowest level has it, as a share of its bytes in FP32."""
    return 1.0 if line.quantized_format is None else size_bits(line.quantized_format) / size_bits(HIGH)


def _tell(before: Graph, after: Graph) -> str:
    """What was folded, and what is said in other words, in words."""
    nodes = [node for node in before.nodes if node.kind is Kind.OP]
    gone = [node.op for node in nodes if node.name not in after.by_name]
    left = {node.name: after.nodes[after.by_name[node.name]].op for node in nodes if node.name in after.by_name}
    said = [f"{node.op} as {left[node.name]}" for node in nodes if left.get(node.name, node.op) != node.op]
    parts = []
    if gone:
        parts.append(
            f"{_counted(gone)} folded into constants, or into the operators beside them, whose names stand for both"
        )
    if said:
        parts.append(f"{_counted(said)} written in other words")
    if completed := [node.op for node in nodes if len(node.inputs) < _count_inputs(after, node.name)]:
        parts.append(f"{_counted(completed)} given a bias next to zero, as several read what it makes")
    return "; ".join(parts)


def _count_inputs(graph: Graph, name: str) -> int:
    return len(graph.nodes[graph.by_name[name]].inputs) if name in graph.by_name else 0


def _counted(words: Sequence[str]) -> str:
    return f"{spell_count(len(words), 'operator')} ({', '.join(sorted({*words}))}) {'is' if len(words) == 1 else 'are'}"


def _still_asked(patterns: Iterable[str], before: Graph, after: Graph) -> Iterable[str]:
    """Patterns but for those that select only what is gone; a wrong one stays, to be told as one."""
    return (pattern for pattern in patterns if matched(after, pattern) or not matched(before, pattern))
