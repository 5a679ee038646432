"""Budgets of compiled modules: a module's graph is captured with its arguments on data, and the
search of `mezzo.tune` finds the cheapest plan whose error stays within the budget.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NoReturn

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.conversion.judged_model import judge_model
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.quantize.corrections import calibrated_for_search
from mezzo.torch.capturing import CapturedGraph, captured_graphs
from mezzo.torch.compiler.settings import CompilerSettings
from mezzo.torch.inspect.accounts import NO_GRAPH
from mezzo.torch.saved_plans import SavedPlans, plans_made
from mezzo.tuning.costs import table_costs
from mezzo.tuning.final_plan import FinalPlan
from mezzo.tuning.goals import ScoreCache, margin_of, read_goal
from mezzo.tuning.repair.range_findings import with_lifts
from mezzo.tuning.tuner import Tuner


def plans_within(
    model: Callable[..., Any],
    settings: CompilerSettings,
    data: Iterable[object],
    max_error: float,
) -> SavedPlans:
    """The plan of a module whose error on data is at most `max_error`. Some data is held out.

    Raises InputError: there is no data, or it comes to more than one graph.
    """
    called = captured_graphs(model, settings, data)
    if not called:
        raise InputError(f"max_error is held by a graph: {NO_GRAPH}")
    if len(called) != 1:
        raise InputError(
            f"max_error is held by one graph, and the data came to {len(called)}: the code breaks"
            " graphs (fullgraph=True says where), or batches take other ways through it"
        )
    return plans_made([_plan_within(called[0], max_error)])


def _plan_within(captured: CapturedGraph, max_error: float) -> Plan:
    model, options, session = captured.opened()
    session = session.hold_out(model)
    goal = read_goal(max_error, None, None, margin=margin_of(session))
    options = options.with_settings(**goal.settings())
    model, options = calibrated_for_search(model, options, session)
    ranges = measure_ranges(model, session)
    options = with_lifts(model, options, ranges)  # the search judges what is cleared
    problem = judge_model(model, options)[1].problem
    costs, table = table_costs(problem, f"table of {options.planning.target.name}")
    options = replace(options, planning=replace(options.planning, measured=costs))
    scores = ScoreCache.of(session, problem.graph, dict(options.settings))
    tuner = Tuner(model, options, goal, session, scores, costs=table)
    final = FinalPlan(tuner=tuner, ranges=ranges, measurement=None, convert_alone=_race_nothing)
    return final.verified()[0].plan


def _race_nothing(path: object) -> NoReturn:
    raise AssertionError("costs are the table's, so nothing is timed")
