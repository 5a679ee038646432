"""Corrections of INT8 error: smooth quant, GPTQ rounding, bias correction, float fallback of
sensitive layers.

Each is tried alone and applied only if held-out data shows a significantly smaller output error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from mezzo.contracts.corrections import BIAS, LEAVE, SMOOTH, WEIGHTS, Correction
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.request import Request
from mezzo.contracts.reading import Artifact
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.decided import Decided
from mezzo.evaluate.data_session import DataSession
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
    """A model with its options, and its errors on held-out data once they are measured.

    `told`: a summary of the correction; `is_shown`: each of its parts was already verified on
    held-out data, so that the whole only has to be no worse.
    """

    model: Model
    options: Options
    errors: Errors | None = None
    told: str = ""
    is_shown: bool = False

    def noting(self, note: str) -> "Corrected":
        """A copy with one more note."""
        return replace(self, options=replace(self.options, notes=(*self.options.notes, note)))


def correct_parameters(
    model: Model, options: Options, session: DataSession
) -> tuple[Model, Options]:
    """The model and options with the corrections of constants and scales that help, and a note
    about each.

    Scales come from the session's data, which is used again to calibrate a corrected model; its
    held-out data decides. At the time limit the correction in progress is dropped.
    """
    seen, unseen = session.data, session.held_out
    now, can_show = (
        Corrected(model=model, options=options),
        unseen is not None and _has_several(unseen),
    )
    limited = in_time(seen, session.has_time)
    trials = None if unseen is None else Trials(in_time(unseen, session.has_time))
    for step in (step for step in options.steps if step in (LEAVE, SMOOTH, WEIGHTS)):
        if seen.seed is not None:
            now = now.noting(
                f"correction {step}: left, as data drawn at random shows nothing of what helps"
            )
            continue
        if trials is None:
            now = now.noting(
                f"correction {step}: left, as no data was held back that could show that it helps"
            )
            continue
        if not can_show:
            now = now.noting(
                f"correction {step}: left, as one sample held back shows nothing of how much they"
                " vary"
            )
            continue
        if step == WEIGHTS and (uneven := _uneven(options)) is not None:
            now = now.noting(
                f"correction {step}: left, as it moves weights by even steps, which {uneven}"
                " has not"
            )
            continue
        try:
            candidate = _tried(step, now, limited, trials.dataset)
            if candidate is not None:
                now = _better_of(step, now, candidate, trials)
        except OutOfTime:
            now = now.noting(f"correction {step}: left, as the time limit came first")
    return now.model, now.options


def calibrated_for_search(
    model: Model, options: Options, session: DataSession
) -> tuple[Model, Options]:
    """Calibrate the model's options on the search data, and apply corrections of its constants.

    A correction is kept if it helps on a part of the data that gave no scales, and if there is
    time.
    """
    if options.planning.line.quantized is None or not options.steps:
        return model, with_parameters(model, options, session)
    parts = session.hold_out(model)
    options = with_parameters(model, options, parts)
    # The search itself does.
    searched = replace(options, steps=tuple(step for step in options.steps if step != LEAVE))
    return correct_parameters(model, searched, parts)


def _has_several(data: Dataset) -> bool:
    """Whether data has more than one sample: one shows no variation."""
    samples = 0
    for batch in data:
        samples += batch.samples
        if samples > 1:
            return True
    return False


def _tried(step: str, now: Corrected, data: Dataset, held_out: Dataset) -> Corrected | None:
    """The model with one correction applied; None if it applies nowhere."""
    if step == SMOOTH:
        return _smoothed(now, data, held_out)
    return _turned(now, data, held_out) if step == WEIGHTS else _left(now, data)


def _uneven(options: Options) -> DType | None:
    """The planned quantized format, if it is a float (FP8); None for integers."""
    dtype = options.planning.line.quantized_format
    return dtype if dtype is not None and integer_span(STORED_AS[dtype][0]) is None else None


def _better_of(step: str, now: Corrected, candidate: Corrected, trials: Trials) -> Corrected:
    """The candidate if its error on held-out data is smaller, otherwise the current model."""
    before, after = now.errors or _errors(now, trials), _errors(candidate, trials)
    is_kept = after.root < before.root if candidate.is_shown else before.falls_to(after)
    description = _tell(candidate.told, before, after)
    if is_kept:
        return Corrected(model=candidate.model, options=candidate.options, errors=after).noting(
            f"correction {step}: kept, {description}"
        )
    return replace(now, errors=before).noting(
        f"correction {step}: left, {description}: {_why(before, after)}"
    )


def _errors(corrected: Corrected, trials: Trials) -> Errors:
    return trials.errors_of(
        corrected.model, convert_model(corrected.model, corrected.options, None)[1]
    )


def _turned(corrected: Corrected, data: Dataset, held_out: Dataset) -> Corrected | None:
    """Apply GPTQ rounding."""
    turned = with_turned_weights(corrected.model, corrected.options, data, held_out)
    if turned is None:
        return None
    summary = f"{turned.nearer} of {turned.products} products are nearer on them"
    return Corrected(model=corrected.model, options=turned.options, told=summary, is_shown=True)


def _smoothed(corrected: Corrected, data: Dataset, held_out: Dataset) -> Corrected | None:
    """Apply smooth quant and calibrate again; None if it helps nowhere."""
    corrections = smoothed(corrected.model, corrected.options, data, held_out)
    if not corrections:
        return None
    options = replace(corrected.options, corrected=(*corrected.options.corrected, *corrections))
    model = corrected.model.corrected(corrections)
    options = with_parameters(model, options, DataSession(data=data))
    return Corrected(
        model=model, options=options, told=f"{len(corrections)} constants scaled", is_shown=True
    )


def _left(corrected: Corrected, data: Dataset) -> Corrected | None:
    """Keep small layers with much of the error in floats."""
    left = with_floats_left(corrected.model, corrected.options, data)
    if left is None:
        return None
    summary = f"{', '.join(left.names)} in floats, {100 * left.share:.2g} % of the products' work"
    return Corrected(model=corrected.model, options=left.options, told=summary)


class WithBiases(NamedTuple):
    """A result; `is_kept`: whether it has corrected biases."""

    decided: Decided
    result: Artifact
    is_kept: bool


def correct_biases(
    model: Model, options: Options, made: tuple[Decided, Artifact], seen: Dataset, unseen: Dataset
) -> WithBiases:
    """The result with bias correction if that significantly lowers the error on held-out data;
    otherwise unchanged. The plan notes which.
    """
    decided, result = made
    graph, line, original = decided.reading.graph, decided.problem.line, decided.plan
    nodes = [
        node.id
        for node in graph.nodes
        if decided.levels[node.id] == line.quantized and bias_of(graph, node.id)
    ]
    if not nodes:
        return WithBiases(decided, result, False)
    settings = dict(original.settings)
    fuse = settings.get("fuse", Request().fuse)
    replaying = read_options(Request(to=settings["to"], target=options.planning.target, fuse=fuse))

    def carry_out(corrections: Sequence[Correction]) -> tuple[Decided, Artifact]:
        # The model has the scales of its values already.
        given = replace(original, corrected=tuple(corrections), scaled=())
        return convert_model(model, replaying, given)

    bias_corrections = corrected_biases(
        model,
        decided.reading,
        nodes,
        dict(original.quantized),
        seen,
        lambda corrections: carry_out(corrections)[1],
    )
    if not bias_corrections:
        return WithBiases(decided, result, False)
    changed, better = carry_out(bias_corrections)
    trials = Trials(unseen)
    before, after = trials.errors_of(model, result), trials.errors_of(model, better)
    description = _tell(f"{len(bias_corrections)} biases moved", before, after)
    if not before.falls_to(after):
        return WithBiases(
            _noting(decided, f"correction {BIAS}: left, {description}: {_why(before, after)}"),
            result,
            False,
        )
    noted = _noting(decided, f"correction {BIAS}: kept, {description}").plan
    plan = replace(
        noted, corrected=(*original.corrected, *bias_corrections), edits=changed.plan.edits
    )
    return WithBiases(replace(changed, plan=plan), better, True)


def _noting(decided: Decided, note: str) -> Decided:
    return replace(decided, plan=replace(decided.plan, notes=(*decided.plan.notes, note)))


def _tell(text: str, before: Errors, after: Errors) -> str:
    return (
        f"{text}; error {before.root:.3g} -> {after.root:.3g} on {len(after.squares)} samples held"
        " back from the scales"
    )


def _why(before: Errors, after: Errors) -> str:
    return "no more than chance may show" if after.root < before.root else "it does not help"
