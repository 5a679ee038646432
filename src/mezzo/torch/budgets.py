"""Budgets of compiled modules: a module's graph is captured with its arguments on data, and the
search of `mezzo.tune` finds the cheapest plan whose error stays within the budget.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import fx

from mezzo.aten.lab.arithmetic import AsTyped
from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.runner import AtenRunner, numbers_of
from mezzo.aten.model import TorchModel
from mezzo.aten.program import Program
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.conversion.judged_model import judge_model
from mezzo.evaluate.data_session import open_session
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.planner.options import Options
from mezzo.quantize.calibration import needs_of, with_parameters
from mezzo.torch.capturing import run_captured
from mezzo.torch.compiler.scales import without_kernels
from mezzo.torch.compiler.settings import CompilerSettings
from mezzo.torch.inspect.reference_runs import compute
from mezzo.torch.saved_plans import SavedPlans, spell_plans
from mezzo.tuning.costs import table_costs
from mezzo.tuning.final_plan import FinalPlan
from mezzo.tuning.goals import ScoreCache, margin_of, read_goal
from mezzo.tuning.repair.range_findings import with_lifts
from mezzo.tuning.tuner import Tuner


@dataclass(eq=False, kw_only=True)
class _Captured:
    """A graph, its options, and the arguments of each call, by placeholder."""

    program: Program
    options: Options
    calls: list[Mapping[str, torch.Tensor]]


def plans_within(
    model: Callable[..., Any],
    settings: CompilerSettings,
    data: Iterable[object],
    max_error: float,
) -> SavedPlans:
    """The plan of a module whose error on data is at most `max_error`. Some data is held out.

    Raises InputError: there is no data, or it comes to more than one graph.
    """
    graphs: list[_Captured] = []
    run_captured(model, settings, data, lambda program, of: _keep(program, of, graphs))
    called = [captured for captured in graphs if captured.calls]
    if len(called) != 1:
        raise InputError(
            f"max_error is held by one graph, and the data came to {len(called)}: batches have"
            " other sizes, or the code breaks graphs (fullgraph=True says where)"
        )
    plan = _plan_within(called[0], max_error)
    return SavedPlans(spell_plans([plan]), "the plan within max_error")


def _keep(program: Program, options: Options, graphs: list[_Captured]) -> Callable[..., Any]:
    """Add a graph to those that were captured; returns its interpreter, which keeps arguments."""
    captured = _Captured(program=program, options=options, calls=[])
    graphs.append(captured)
    runner = AtenRunner(program, AsTyped())

    def call(*args: object) -> object:
        if not captured.calls:
            captured.program = _with_states(program, args)
        captured.calls.append(_fed(captured.program, args))
        return compute(runner, args, (), lambda name, numbers: None)

    return call


def _with_states(program: Program, args: Sequence[object]) -> Program:
    """The program with its buffers as they are at a call, since code after it may write to them."""
    states = {
        name: replace(program.states[name], tensor=_copy_of(value))
        for name, value in zip(_inputs_of(program), args, strict=True)
        if name in program.states and isinstance(value, torch.Tensor)
    }
    return replace(program, states=states)


def _copy_of(value: torch.Tensor) -> Callable[[], torch.Tensor]:
    kept = value.detach().clone()
    return lambda: kept


def _fed(program: Program, args: Sequence[object]) -> dict[str, torch.Tensor]:
    """The arguments of a call that are read, and no weights or buffers with their first value."""
    return {
        name: value.detach().clone()
        for (name, node), value in zip(_inputs_of(program).items(), args, strict=True)
        if isinstance(value, torch.Tensor)
        and node.users
        and name not in program.weights
        and not _is_state(program, name, value)
    }


def _inputs_of(program: Program) -> dict[str, fx.Node]:
    return {node.name: node for node in program.graph.find_nodes(op="placeholder")}


def _is_state(program: Program, name: str, value: torch.Tensor) -> bool:
    """Whether an argument is a buffer as it was at the first call."""
    state = program.states.get(name)
    return state is not None and torch.equal(numbers_of(state, name), value)


def _plan_within(captured: _Captured, max_error: float) -> Plan:
    program = captured.program
    for node in program.graph.find_nodes(op="placeholder"):
        if not node.users:  # those of weights' copies among them
            program.graph.erase_node(node)
    model, options = TorchModel(program), captured.options
    feeds = [
        {program.names.get(name, name): array_of(value) for name, value in call.items()}
        for call in captured.calls
    ]
    session = open_session(model, feeds).hold_out(model)
    goal = read_goal(max_error, None, None, margin=margin_of(session))
    options = with_parameters(model, options.with_settings(**goal.settings()), session)
    if options.planning.line.quantized is not None:
        coarse = (*options.planning.coarse, *without_kernels(needs_of(model, options)))
        options = replace(options, planning=replace(options.planning, coarse=coarse))
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
