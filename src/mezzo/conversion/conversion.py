"""Mixed-precision conversion of one model: read, judge, assign, lower, check, apply, verify.

A result that the checker refuses is planned again without the nodes that the checker names.
"""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from mezzo.analysis.structure.estimated import MAY_OVERFLOW
from mezzo.common.errors import ContractError, MezzoError, ModelError
from mezzo.contracts.frontend import Fault, Model
from mezzo.contracts.plans import Plan, Reason
from mezzo.contracts.problem import Choice, LevelChoices
from mezzo.contracts.reading import Artifact, Reading
from mezzo.conversion.decided import Decided, refuse_out_of_range
from mezzo.conversion.fusing import fused_as
from mezzo.conversion.judged_model import barred_by_schema, judge_at, judge_model
from mezzo.conversion.new_plan import make_plan
from mezzo.conversion.recall import asks_for_more, spell_record, spell_replay
from mezzo.conversion.replay import replay
from mezzo.conversion.rescaling import rescaled
from mezzo.conversion.rounded_weights import with_rounded_weights
from mezzo.conversion.stack_guard import call_with_room
from mezzo.conversion.version_steps import assign, settle
from mezzo.planner.options import Options
from mezzo.planner.planner import Judged, judge
from mezzo.planner.recalled import Recalled
from mezzo.planner.recording import RecordedDecisions

_log = logging.getLogger(__name__)

# How often a result that the checker refuses is planned again without the nodes it names.
_REPAIRS = 4
_LONGEST_FAULT = 300


def convert_model(model: Model, options: Options, given: Plan | None) -> tuple[Decided, Artifact]:
    """Plan, apply and verify, with the garbage collector paused; `given` is a plan to replay.

    An unexpected exception on a model that the checker refuses is raised as a `ModelError` with the
    checker's finding.

    Raises:
        ModelError: the model is not valid.
        InputError: the plan does not fit the model.
        ContractError: the result would break a promise.
    """
    try:
        with collector_paused():
            return call_with_room(lambda: _convert(model, options, given))
    except MezzoError:
        raise
    except Exception as error:
        if model.standing.fault is None:
            raise
        raise _not_valid(model, model.standing.fault) from error


def _convert(model: Model, options: Options, given: Plan | None) -> tuple[Decided, Artifact]:
    decided, result = decide_and_apply(model, options, given)
    if not options.planning.target.norm_quotients:
        return decided, result
    from mezzo.conversion.norm_quotients import with_norm_quotients

    return with_norm_quotients(model, options, decided, result)


def _not_valid(model: Model, fault: str) -> ModelError:
    form, text = model.frontend.words.form, fault[:_LONGEST_FAULT]
    return ModelError(f"{model.name} is not valid {form}: {text}; mend the model first")


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the cyclic garbage collector.

    A conversion creates millions of tuples and hardly any cycles; repeated collections would
    traverse all of them, which took a third of the run time and grew faster than linearly.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # Unfreeze() would also release objects frozen by the caller.
            if not gc.get_freeze_count():
                # Move new objects to the oldest generation: the next collection skips them.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def decide_and_apply(
    model: Model, options: Options, given: Plan | None
) -> tuple[Decided, Artifact]:
    """Plan, apply and verify; plan again without low nodes that the checker refuses.

    After `_REPAIRS` failures the model is returned unchanged, with the reason. A given plan is
    replayed on the same normal form that it was made of. Errors are those of `convert_model`.
    """
    if given is not None:
        fused = fused_as(model, given, options.planning.target.respellings)
        model = with_rounded_weights(fused, given)
        model = rescaled(model, given.scaled, options.planning.floats).corrected(given.corrected)
    if given is None and options.recalled is not None and not asks_for_more(options):
        return _keep(model, options, options.recalled)
    banned: dict[str, str] = {}
    words, fault = model.frontend.words, Fault("", frozenset())
    for attempt in range(_REPAIRS + 1):
        _tell(model, "planning")
        decided = (
            replay(model, options, given) if given is not None else _decide(model, options, banned)
        )
        graph = decided.reading.graph
        result = model.apply(decided.reading, decided.plan.edits)
        _tell(model, "checking")
        refusal = model.fault(graph, result)
        if refusal is None:
            return _with_note(model, decided), result
        fault = refusal
        if not model.standing.is_valid:
            raise _not_valid(model, model.standing.fault or "")
        if given is not None:
            text = fault.text[:_LONGEST_FAULT]
            raise ContractError(
                f"the plan's result would not be valid {words.form}: {text}; change the plan"
            )
        _log.debug("the checker refused attempt %d: %s", attempt, fault.text)
        # Nodes that are low in the source model cannot go back to the base.
        problem = decided.problem
        may_go_back = problem.allowed[problem.line.base]
        low = {
            n.id
            for n in graph.nodes
            if decided.levels[n.id] != problem.line.base and may_go_back[n.id]
        }
        culprits = fault.culprits & low if attempt < _REPAIRS - 1 else low
        for number in culprits or low:
            banned[graph.nodes[number].name] = f"{words.checker} refused it low: {fault.text[:200]}"
    return _leave_alone(model, options, fault.text)


def _with_note(model: Model, decided: Decided) -> Decided:
    """Add the model's leniency note: the result passed less than the full check."""
    if model.leniency is None or model.leniency in decided.plan.notes:
        return decided
    return replace(decided, plan=replace(decided.plan, notes=(*decided.plan.notes, model.leniency)))


def _tell(model: Model, stage: str) -> None:
    if model.progress is not None:
        model.progress(stage, 0, 0)


def _leave_alone(model: Model, options: Options, fault: str) -> tuple[Decided, Artifact]:
    """The unchanged model, with the reason: the checker refuses every conversion of it."""
    planning = replace(options.planning, in_blocks={}, stored_floats={})
    reading = model.read(*planning.floats)
    judged = judge(reading.graph, planning)
    because = f"{model.frontend.words.checker} refuses any change: {fault[:200]}"
    banned = {node.name: because for node in reading.graph.nodes}
    levels = judged.problem.given_levels
    judged = _ban(judged, banned)
    plan = make_plan(judged, levels, (), reading, None, options, banned)
    record = _recorder(model, reading, judged, levels, options, banned, plan)
    return _decided(reading, judged, levels, plan, record), model.unchanged(reading)


def _decided(
    reading: Reading,
    judged: Judged,
    levels: Sequence[int],
    plan: Plan,
    record: Callable[[], str] | None,
) -> Decided:
    return Decided(
        reading=reading,
        plan=plan,
        problem=judged.problem,
        levels=levels,
        units=judged.units,
        spell_record=record,
    )


def _keep(model: Model, options: Options, recalled: Recalled) -> tuple[Decided, Artifact]:
    """The unchanged model: its metadata records its decisions, and the options ask for no others.

    Raises:
        ModelError: the model is not valid.
    """
    reading = model.read(*options.planning.floats)
    judged = judge(reading.graph, replace(options.planning, in_blocks={}, stored_floats={}))
    levels = judged.problem.given_levels
    plan = make_plan(judged, levels, (), reading, None, options, {})
    _tell(model, "checking")
    result = model.unchanged(reading)
    fault = model.fault(reading.graph, result)
    if fault is not None:
        raise _not_valid(model, fault.text)
    record = (lambda: recalled.text) if options.is_recorded else None
    return _decided(reading, judged, levels, plan, record), result


def _recorder(
    model: Model,
    reading: Reading,
    judged: Judged,
    levels: Sequence[int],
    options: Options,
    banned: Mapping[str, str],
    plan: Plan,
) -> Callable[[], str] | None:
    """A function that writes these decisions as metadata; None if the result gets no record."""
    # Leaves the model unchanged.
    if not options.is_recorded or options.planning.policy.name == "off":
        return None
    if judged.problem.line.quantized is not None:
        # Dynamically quantized nodes have other names in the file: no record could find them.
        if plan.dynamic:
            return None
        return spell_replay(model, reading, plan, options.digests)
    refusals = {name: Reason("contract", because) for name, because in banned.items()}
    return spell_record(
        model, reading, RecordedDecisions(judged, levels, options.planning, refusals), options
    )


def _decide(model: Model, options: Options, banned: Mapping[str, str]) -> Decided:
    planning = options.planning
    reading, judged = judge_model(model, options)
    obstacle = None
    if options.version == "auto":
        limit = planning.target.newest.get(reading.dialect)
        obstacle = model.obstacle(reading, barred_by_schema(reading, judged, planning), limit)
    if options.out_of_range == "error":
        refuse_out_of_range(reading.graph, planning, range(len(reading.graph.nodes)))

    def judge_smaller(version: int | None) -> tuple[Reading, Judged]:
        # Measurements belong to the nodes of the first reading.
        reading, judged = judge_at(
            model, replace(options, planning=replace(planning, measured=None)), version
        )
        return reading, _ban(judged, banned)

    planned = assign(reading, _ban(judged, banned), planning.strategy)
    planned = settle(model, planned, planning.strategy, judge_smaller)
    reading, judged, levels = planned.reading, planned.judged, planned.levels
    version = reading.version if reading.version != model.given.version else None
    plan = make_plan(judged, levels, planned.edits, reading, version, options, banned)
    if obstacle is not None:
        plan = replace(plan, obstacle=obstacle, notes=(*plan.notes, obstacle))
    record = _recorder(model, reading, judged, levels, options, banned, plan)
    decided = _decided(reading, judged, levels, plan, record)
    suspected = any(v.rule == MAY_OVERFLOW for side in judged.sides for v in side)
    return replace(decided, may_overflow=suspected)


def _ban(judged: Judged, banned: Mapping[str, str]) -> Judged:
    if not banned:
        return judged
    nodes = judged.problem.graph.nodes

    def take(level: int, level_choices: LevelChoices) -> Iterator[Choice]:
        for node, choice in zip(nodes, level_choices.choices, strict=True):
            yield Choice.HIGH if choice is Choice.FREE and node.name in banned else choice

    return replace(judged, problem=judged.problem.rechosen(take))
