"""Plan replay: levels read from the plan's nodes, lowered and checked anew."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.message_style import verb
from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Plan, PlannedNode
from mezzo.contracts.problem import Choice, LevelChoices, Problem
from mezzo.contracts.reading import Reading
from mezzo.conversion.decided import Decided, refuse_out_of_range
from mezzo.conversion.recall import spell_replay
from mezzo.formats.precision_line import floats_of, uniform
from mezzo.ir.nodes import Kind
from mezzo.planner.check import check, check_nodes
from mezzo.planner.choices.gains import recorded_gain
from mezzo.planner.choices.quantizing import REPLAYED
from mezzo.planner.lower import lower
from mezzo.planner.options import Options, check_levels
from mezzo.planner.planned_weights import planned_weights
from mezzo.planner.planner import judge
from mezzo.tables.target import Gain


def replay(model: Model, options: Options, given: Plan) -> Decided:
    """Read the levels from a plan, lower and check them.

    Raises:
        InputError: the plan is of another model, has too many levels, lacks a node, or asks for an
            illegal precision.
    """
    reading = read_for(model, given)
    graph = reading.graph
    if graph.fingerprint != given.fingerprint:
        raise InputError(
            "the plan was made for another model: their structures differ; make a new one with"
            f" {verb('plan')}"
        )
    planning = replace(
        options.planning,
        line=given.line,
        weight_bits=(),
        in_blocks=dict(given.in_blocks),
        weight_float=None,
        stored_floats=dict(given.stored_floats),
    )
    if given.line.quantized is not None:  # allow what the plan's policy allowed
        planning = replace(
            planning,
            quantized=dict(given.quantized),
            dynamic=frozenset(given.dynamic),
            quantize_mode=REPLAYED,
            include=("*",),
        )
    judged = judge(graph, planning)
    problem = judged.problem
    unknown = given.by_name.keys() - graph.by_name.keys()
    if unknown:
        raise InputError(
            f"the plan has a line for {min(unknown)!r}, which the model has not; take the line out"
        )
    levels, problem = _levels_of(given, problem)
    if options.out_of_range == "error":
        refuse_out_of_range(
            graph, planning, {n for n, level in enumerate(levels) if level != problem.line.base}
        )
    output_of = {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    limits = {
        value: limit for name, limit in given.limits if (value := output_of.get(name)) is not None
    }
    faults = check_nodes(problem, levels)
    edits = () if faults else lower(problem, levels, limits)
    faults = faults or check(problem, levels, edits)
    if faults:
        raise InputError(
            f"the plan cannot be carried out: {faults[0]}; change its precision in the plan"
        )
    # A plan of the policy "off" leaves later conversions as free as the model did.
    is_bound = dict(given.settings).get("policy") != "off"
    record = (
        spell_replay(model, reading, given)
        if options.is_recorded and is_bound and not given.dynamic
        else None
    )
    return Decided(
        reading=reading,
        plan=replace(
            given,
            edits=edits,
            notes=(*given.notes, *(note for note in options.notes if note not in given.notes)),
            gain=_gain_of(given),
            make_weights=lambda: planned_weights(problem, planning, edits),
        ),
        problem=problem,
        levels=levels,
        spell_record=record,
    )


def _gain_of(plan: Plan) -> Gain | None:
    if plan.gain is not None or not plan.lows:
        return plan.gain
    return recorded_gain(dict(plan.settings).get("target", ""), plan.lows[-1])


def read_for(model: Model, given: Plan) -> Reading:
    """Read a model in the plan's format and version.

    Raises InputError: the plan is of another dialect, or has too many levels.
    """
    own = model.frontend.dialect
    if given.dialect != own:
        raise InputError(
            f"the plan is of a model in dialect {given.dialect!r}, and {model.name} is in {own!r};"
            f" make a new one with {verb('plan')}"
        )
    check_levels(given)
    return model.read(*floats_of(given.line), version=given.version)


def _levels_of(plan: Plan, problem: Problem) -> tuple[list[int], Problem]:
    """The levels in a plan's lines, and the problem with every level allowed that the plan may use.

    Raises:
        InputError: a line is missing, or asks for a dtype outside the plan's.
    """
    graph, line = problem.graph, problem.line
    levels, base_outputs = [line.base] * len(graph.nodes), set[int]()
    for number in np.flatnonzero(~problem.is_absent).tolist():
        node = graph.nodes[number]
        entry = plan.by_name.get(node.name)
        if entry is None:
            raise InputError(
                f"the plan says nothing of node {node.name!r}; add it or make a new plan with"
                f" {verb('plan')}"
            )
        _check_precision(entry, plan)
        level = line.level_of(entry.precision.compute)
        assert level is not None, "every dtype of a line that was checked is a level's"
        levels[number] = level
        if level != line.base and entry.precision.output is line.base_dtype:
            base_outputs.add(number)

    def open_up(level: int, level_choices: LevelChoices) -> Iterator[Choice]:
        """Free all nodes but those low in the source model; keep the quantized level."""
        if level == line.quantized:
            yield from level_choices.choices
            return
        for node, choice in zip(graph.nodes, level_choices.choices, strict=True):
            is_port = node.kind in (Kind.INPUT, Kind.OUTPUT)
            yield (
                Choice.FREE
                if choice is not Choice.ABSENT and (is_port or choice is not Choice.LOW)
                else choice
            )

    return levels, replace(problem.rechosen(open_up), base_outputs=frozenset(base_outputs))


def _check_precision(entry: PlannedNode, plan: Plan) -> None:
    """Raises InputError: a plan's line asks for a precision outside the plan's dtypes."""
    dtypes, base = plan.line.dtypes, plan.line.base_dtype
    unknown = [dtype for dtype in entry.precision if dtype not in dtypes]
    if unknown:
        raise InputError(
            f"node {entry.name!r}: the plan asks for {unknown[0]}; this model can be replayed in "
            f"{' and '.join(map(str, dtypes))}"
        )
    if entry.precision.compute is base and entry.precision != uniform(base):
        low_dtypes = " or ".join(str(dtype) for dtype in dtypes if dtype is not base)
        raise InputError(
            f"node {entry.name!r}: the plan asks for products in {base} and less after them; write "
            f"{str(base)!r}, or {low_dtypes} for the products too"
        )
