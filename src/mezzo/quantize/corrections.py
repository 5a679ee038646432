"""Corrections of what INT8 does to a model, each tried on its own and kept only where data that it was not made from
shows that answers are nearer by more than samples vary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mezzo.contracts.corrections import BIAS, LEAVE, SMOOTH, WEIGHTS, Correction
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.request import Request
from mezzo.contracts.reading import Artifact
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.decided import Decided
from mezzo.formats.dtypes import STORED_AS, DType, integer_span
from mezzo.numerics.data.datasets import Dataset, OutOfTime, in_time
from mezzo.planner.options import Options, read_options
from mezzo.quantize.bias_correction import bias_of, corrected_biases
from mezzo.quantize.calibration import with_parameters
from mezzo.quantize.gptq_rounding import with_turned_weights
from mezzo.quantize.paired_error_test import Errors, Trials
from mezzo.quantize.sensitive_layer_fallback import with_floats_left
from mezzo.quantize.smooth_quant import smoothed


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """A model with the options to plan it by, and how far its answers are off on data held back, once that is known.

    `told` is what was corrected; `is_shown`: where that was shown on data held back, place by place, so that answers
    need only not be worse.
    """

    model: Model
    options: Options
    errors: Errors | None = None
    told: str = ""
    is_shown: bool = False

    def noting(self, note: str) -> "Corrected":
        """The same, and what is to be told of it."""
        return replace(self, options=replace(self.options, notes=(*self.options.notes, note)))


def correct_parameters(
    model: Model, options: Options, seen: Dataset, unseen: Dataset | None, calibrator: str,
    may_go_on: Callable[[], bool] = lambda: True,
) -> tuple[Model, Options]:  # fmt: skip
    """The model and its options with those corrections of constants and scales that help, with a note of each.

    `seen` is what scales are from, as the calibrator takes them again for a changed model; `unseen` decides.
    `may_go_on` is asked before each batch of either: where it may not, the correction that is tried is left.
    """
    now, can_show = Corrected(model=model, options=options), unseen is not None and _has_several(unseen)
    limited = in_time(seen, may_go_on)
    trials = None if unseen is None else Trials(in_time(unseen, may_go_on))
    for step in (step for step in options.steps if step in (LEAVE, SMOOTH, WEIGHTS)):
        if seen.seed is not None:
            now = now.noting(f"correction {step}: left, as data drawn at random shows nothing of what helps")
            continue
        if trials is None:
            now = now.noting(f"correction {step}: left, as no data was held back that could show that it helps")
            continue
        if not can_show:
            now = now.noting(f"correction {step}: left, as one sample held back shows nothing of how much they vary")
            continue
        if step == WEIGHTS and (uneven := _uneven(options)) is not None:
            now = now.noting(f"correction {step}: left, as it moves weights by even steps, which {uneven} has not")
            continue
        try:
            candidate = _tried(step, now, limited, trials.dataset, calibrator)
            if candidate is not None:
                now = _better_of(step, now, candidate, trials)
        except OutOfTime:
            now = now.noting(f"correction {step}: left, as the time limit came first")
    return now.model, now.options


def _has_several(data: Dataset) -> bool:
    """Whether data has more than one sample: of one nobody can tell what is chance."""
    samples = 0
    for batch in data:
        samples += batch.samples
        if samples > 1:
            return True
    return False


def _tried(step: str, now: Corrected, seen: Dataset, unseen: Dataset, calibrator: str) -> Corrected | None:
    """What one correction makes of a model; None where there is no place for it."""
    if step == SMOOTH:
        return _smoothed(now, seen, unseen, calibrator)
    return _turned(now, seen, unseen) if step == WEIGHTS else _left(now, seen)


def _uneven(options: Options) -> DType | None:
    """The format with scales that is planned for, where its numbers are no integers."""
    found = options.planning.line.quantized_format
    return found if found is not None and integer_span(STORED_AS[found][0]) is None else None


def _better_of(step: str, now: Corrected, candidate: Corrected, trials: Trials) -> Corrected:
    """What a correction has made, if it is nearer on data held back; else what there was."""
    before, after = now.errors or _errors(now, trials), _errors(candidate, trials)
    is_kept = after.root < before.root if candidate.is_shown else before.falls_to(after)
    held = _tell(candidate.told, before, after)
    if is_kept:
        return Corrected(model=candidate.model, options=candidate.options, errors=after).noting(
            f"correction {step}: kept, {held}"
        )
    return replace(now, errors=before).noting(f"correction {step}: left, {held}: {_why(before, after)}")


def _errors(held: Corrected, trials: Trials) -> Errors:
    return trials.errors_of(held.model, convert_model(held.model, held.options, None)[1])


def _turned(held: Corrected, seen: Dataset, unseen: Dataset) -> Corrected | None:
    """Weights held as suits their products."""
    turned = with_turned_weights(held.model, held.options, seen, unseen)
    if turned is None:
        return None
    told = f"{turned.nearer} of {turned.products} products are nearer on them"
    return Corrected(model=held.model, options=turned.options, told=told, is_shown=True)


def _smoothed(held: Corrected, seen: Dataset, unseen: Dataset, calibrator: str) -> Corrected | None:
    """The model with what channels have too much of moved into weights, and scales taken again; None where no place
    for it gains.
    """
    corrections = smoothed(held.model, held.options, seen, unseen)
    if not corrections:
        return None
    options = replace(held.options, corrected=(*held.options.corrected, *corrections))
    model = held.model.corrected(corrections)
    options = with_parameters(model, options, seen, calibrator)
    return Corrected(model=model, options=options, told=f"{len(corrections)} constants scaled", is_shown=True)


def _left(held: Corrected, seen: Dataset) -> Corrected | None:
    """Small products that bring much of the error left in floats."""
    left = with_floats_left(held.model, held.options, seen)
    if left is None:
        return None
    told = f"{', '.join(left.names)} in floats, {100 * left.share:.2g} % of the products' work"
    return Corrected(model=held.model, options=left.options, told=told)


class WithBiases(NamedTuple):
    """A result, with biases corrected if that is kept."""

    decided: Decided
    result: Artifact
    is_kept: bool


def correct_biases(
    model: Model, options: Options, made: tuple[Decided, Artifact], seen: Dataset, unseen: Dataset
) -> WithBiases:
    """A result of the same plan with biases that bring means back to where they are in floats, if answers on data held
    back are nearer by more than samples vary; else the result as it is. The plan notes which.
    """
    decided, result = made
    graph, line, given = decided.reading.graph, decided.problem.line, decided.plan
    nodes = [node.id for node in graph.nodes if decided.levels[node.id] == line.quantized and bias_of(graph, node.id)]
    if not nodes:
        return WithBiases(decided, result, False)
    settings = dict(given.settings)
    fuse = settings.get("fuse", Request().fuse)
    replaying = read_options(Request(to=settings["to"], target=options.planning.target, fuse=fuse))

    def carry_out(corrections: Sequence[Correction]) -> tuple[Decided, Artifact]:
        return convert_model(model, replaying, replace(given, corrected=tuple(corrections)))

    found = corrected_biases(
        model, decided.reading, nodes, dict(given.quantized), seen, lambda corrections: carry_out(corrections)[1]
    )
    if not found:
        return WithBiases(decided, result, False)
    changed, better = carry_out(found)
    trials = Trials(unseen)
    before, after = trials.errors_of(model, result), trials.errors_of(model, better)
    held = _tell(f"{len(found)} biases moved", before, after)
    if not before.falls_to(after):
        return WithBiases(_noting(decided, f"correction {BIAS}: left, {held}: {_why(before, after)}"), result, False)
    told = _noting(decided, f"correction {BIAS}: kept, {held}").plan
    plan = replace(told, corrected=(*given.corrected, *found), edits=changed.plan.edits)
    return WithBiases(replace(changed, plan=plan), better, True)


def _noting(decided: Decided, note: str) -> Decided:
    return replace(decided, plan=replace(decided.plan, notes=(*decided.plan.notes, note)))


def _tell(told: str, before: Errors, after: Errors) -> str:
    return (
        f"{told}; error {before.root:.3g} -> {after.root:.3g} on {len(after.squares)} samples held back from the scales"
    )


def _why(before: Errors, after: Errors) -> str:
    return "no more than chance may show" if after.root < before.root else "it does not help"
