"""Reading of a model at the smallest sufficient opset version, and the verdicts of its nodes."""

import numpy as np

from mezzo.contracts.frontend import Model
from mezzo.contracts.reading import Reading
from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind
from mezzo.planner.choices.choosing import refusal_of
from mezzo.planner.options import Options
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import Judged, judge
from mezzo.tables.policy import Category


def judge_model(model: Model, options: Options) -> tuple[Reading, Judged]:
    """Read a model at the smallest version that helps, and assign verdicts to its nodes."""
    planning = options.planning
    reading, judged = judge_at(model, options, None)
    limit = planning.target.newest.get(reading.dialect)
    while options.version == "auto":  # a node that one step lets run low may need the next step
        step = model.next_version(reading, barred_by_schema(reading, judged, planning), limit)
        if step is None:
            break
        reading, judged = judge_at(model, options, step)
    floor = least_for_weights(model, judged)
    if options.version == "auto" and floor is not None and (reading.version or floor) < floor:
        reading, judged = judge_at(model, options, floor)
    return reading, judged


def least_for_weights(model: Model, judged: Judged) -> int | None:
    """The version that the storage of weights in blocks or in a low float needs; None if any
    serves.
    """
    frontend = model.frontend
    forms = {storage.form for storage in judged.problem.in_blocks.values()}
    blocks = frontend.blocks_since if BlockForm.DEQUANTIZE in forms else None
    casts = [frontend.casts_since.get(dtype) for dtype in judged.problem.stored_floats.values()]
    return max((version for version in (blocks, *casts) if version is not None), default=None)


def judge_at(model: Model, options: Options, version: int | None) -> tuple[Reading, Judged]:
    """Read a model at a version (None: its own) and assign verdicts to its nodes."""
    reading = model.read(*options.planning.floats, version=version)
    return reading, judge(reading.graph, options.planning)


def barred_by_schema(
    reading: Reading, judged: Judged, planning: PlanningOptions
) -> dict[DType, list[int]]:
    """Nodes that only the schema of this version keeps out of a low format, by format."""
    return {
        low: _barred(judged, planning, reading.dialect, low) for low in planning.line.other_dtypes
    }


def _barred(judged: Judged, planning: PlanningOptions, dialect: str, low: DType) -> list[int]:
    """Nodes for which policy and target allow a format that the schema of this version does not."""
    columns, line = judged.problem.graph.columns, judged.problem.line
    needs_version = [
        s.dtype is HIGH and s.dialect == dialect and low not in s.legal for s in columns.signatures
    ]
    is_candidate = np.array(needs_version, bool)[columns.node_signature] & columns.is_kind(Kind.OP)
    nodes, verdicts = judged.problem.graph.nodes, judged.verdicts(line.level_of(low))
    return [
        number
        for number in np.flatnonzero(is_candidate).tolist()
        if verdicts[number].category is not Category.DENY
        and refusal_of(nodes[number], planning, low) is None
    ]
