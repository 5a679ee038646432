"""Plans of compiled modules in INT8 from data: scales, corrections where weights are constants
(SmoothQuant, GPTQ rounding, bias correction, float fallback), and a check of the answers. Each
graph has its own, from the inputs that it gets.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from mezzo.contracts.corrections import BIAS
from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Plan
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.measures import Comparison
from mezzo.quantize.calibration import with_parameters
from mezzo.quantize.corrections import correct_biases, correct_parameters
from mezzo.torch.capturing import CapturedGraph, captured_graphs
from mezzo.torch.compiler.settings import CompilerSettings
from mezzo.torch.inspect.accounts import NO_GRAPH
from mezzo.torch.saved_plans import SavedPlans, plans_made
from mezzo.tuning.repair.attempts import check, is_wrong
from mezzo.tuning.repair.runtime_check import (
    PlannedResult,
    at_run_time,
    convert_planned,
    static_products,
)


def plans_from_data(
    model: Callable[..., Any], settings: CompilerSettings, data: Iterable[object]
) -> SavedPlans | None:
    """The plan of each graph that a module runs on data, with the corrections that help there. A
    quarter of the data decides that, and gives no scales. None: it runs no graph.

    Raises InputError: there is no batch, or the calibrator is unknown.
    """
    graphs = captured_graphs(model, settings, data)
    if not graphs:
        warnings.warn(f"nothing runs in INT8: {NO_GRAPH}", stacklevel=2)
        return None
    return plans_made([_plan_of(captured) for captured in graphs])


def _plan_of(captured: CapturedGraph) -> Plan:
    """The plan of a graph. If its answers are wrong on the data that judges, matmuls find ranges at
    run time if that errs less; warns if they are wrong even then.
    """
    model, options, session = captured.opened()
    session = session.hold_out(model)
    options = with_parameters(model, options, session)
    model, options = correct_parameters(model, options, session)
    planned = convert_planned(model, options)
    if BIAS in options.steps and session.held_out is not None:
        converted = planned.decided, planned.result
        better = correct_biases(model, options, converted, session.data, session.held_out)
        planned = replace(planned, decided=better.decided, result=better.result)
    comparison = check(model, planned, session.judging)
    if is_wrong(comparison):
        planned, comparison = _with_ranges_of_rows(model, planned, comparison, session.judging)
    if is_wrong(comparison):
        warnings.warn(
            f"answers in INT8 are wrong on {session.judging.name}: {comparison.verdict.because};"
            " give max_error, which keeps what errs in floats",
            stacklevel=2,
        )
    return planned.decided.plan


def _with_ranges_of_rows(
    model: Model, planned: PlannedResult, comparison: Comparison, data: Dataset
) -> tuple[PlannedResult, Comparison]:
    """A result that is wrong on data, and how wrong, or the same with matmuls that find ranges of
    rows at run time if that errs less.
    """
    other = at_run_time(model, planned, static_products(planned))
    if other is None:
        return planned, comparison
    better, before = check(model, other, data), comparison.verdict
    if better.verdict.error.estimate >= before.error.estimate:
        return planned, comparison
    note = (
        f"with ranges of data the answers are wrong on {data.name} ({before.because}): matmuls find"
        " the range of each row as they run"
    )
    plan = other.decided.plan
    decided = replace(other.decided, plan=replace(plan, notes=(*plan.notes, note)))
    return replace(other, decided=decided), better
