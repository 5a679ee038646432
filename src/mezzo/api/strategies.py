"""Comparison of all cast-placement strategies on one model."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, verb
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import documents_options
from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import casts_of, conversions, cost
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import open_source, read_plan_options
from mezzo.ir.nodes import Kind
from mezzo.quantize.calibration import without_data
from mezzo.report.records.strategies import StrategyRow

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.planner.planner import Judged

_log = logging.getLogger(__name__)


@documents_options
def compare_strategies(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    *,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> tuple[StrategyRow, ...]:
    """Plan a model with every strategy, the cheapest first. Arguments as of `mezzo.plan`."""
    judged = judged_without_data(src, options, progress)
    return tuple(row for row, _ in try_strategies(judged.problem, progress))


def judged_without_data(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    options: PlanOptions,
    progress: Progress | None,
) -> "Judged":
    """The verdicts that `mezzo.plan` decides from, after fusion, with placeholder scales."""
    chosen, trust = read_plan_options(src, options)
    if not chosen.planning.line.others:
        raise InputError(
            f"{option('to')} is {dict(chosen.settings)['to']!r}, which changes how weights are"
            f" stored and places no casts; take {verb('plan')}"
        )
    return judge_model(*without_data(open_source(src, trust, progress), chosen))[1]


def try_strategies(
    problem: Problem, progress: Progress | None = None
) -> list[tuple[StrategyRow, Sequence[int]]]:
    """Every strategy's row and levels (indices into the line's dtypes), the cheapest first."""
    from mezzo.plugins.discovery import strategies

    results: list[tuple[StrategyRow, Sequence[int]]] = []
    table = strategies()
    for line in table.broken:
        _log.warning("%s", line)
    for number, name in enumerate(sorted(table)):
        if progress is not None:
            progress(f"strategy {name}", number, len(table))
        levels = table[name].assign(problem)
        results.append((_measure(problem, name, levels), levels))
    lowest_cost = min(row.cost for row, _ in results)
    related = [(_relate(row, lowest_cost), levels) for row, levels in results]
    return sorted(related, key=lambda entry: (entry[0].cost, entry[0].casts, entry[0].strategy))


def _measure(problem: Problem, name: str, levels: Sequence[int]) -> StrategyRow:
    columns = problem.graph.columns
    decided = columns.is_kind(Kind.OP) & ~problem.is_absent
    line = problem.line
    cast_bytes = sum(
        int(columns.value_elements[value] * columns.value_repeats[value])
        * line.conversion_bits(threshold)
        // 8
        for value, threshold, _ in conversions(problem, levels)
    )
    node_levels = np.array(levels, np.int64)
    counts = {
        line.dtypes[level]: int((decided & (node_levels == level)).sum()) for level in line.others
    }
    return StrategyRow(
        strategy=name,
        low_nodes=sum(counts.values()),
        nodes=int(decided.sum()),
        casts=len(casts_of(problem, levels)),
        cast_bytes=cast_bytes,
        cost=cost(problem, levels),
        to_least=None,
        by_format=counts,
    )


def _relate(row: StrategyRow, lowest_cost: int) -> StrategyRow:
    return replace(
        row, to_least=row.cost / lowest_cost if lowest_cost else 1.0 if not row.cost else None
    )
