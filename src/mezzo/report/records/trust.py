"""Sentences on a comparison: the verdict and the largest remaining risk."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mezzo.common.message_style import setting
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import FORMATS
from mezzo.formats.format_words import FP32
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import (
    spell_count,
    spell_error,
    spell_mean,
    spell_number,
    spell_share,
    spell_steps,
)
from mezzo.report.records.groups import is_operator
from mezzo.report.records.headline import ResultStanding

if TYPE_CHECKING:
    from mezzo.numerics.measures import Comparison, Deviation, Measured, Verdict

# Values within this factor of a format's limit on this data may exceed it on other data.
_CLOSE = 8.0
# Above this share of the budget, other samples may well exceed it.
_MUCH = 0.5
# Above this share of the budget, an error that grows over steps is a risk.
_NOTED = 0.1
_SHARED = "judged on the data that decided: other data may be worse"
_RANDOM = "random inputs prove little: real ones are correlated and have outliers"


def judge(comparison: "Comparison") -> tuple[ResultStanding, str]:
    """The verdict of a comparison, and a sentence with its numbers."""
    verdict, is_random = comparison.verdict, comparison.data.seed is not None
    error, bound, samples = error_of(comparison), spell_bound(verdict), spell_samples(comparison)
    match verdict.ruling.value:
        case "same" if is_random:
            return ResultStanding.UNREFUTED, f"not refuted: {error} within bound {bound}{samples}"
        case "same":
            return ResultStanding.RIGHT, f"right: {error} within bound {bound}{samples}"
        case "different" if any(output.fault for output in comparison.outputs):
            because = clean(verdict.because)
            return ResultStanding.WRONG, f"wrong: {because}{_spell_divergence(comparison)}"
        case "different":
            return ResultStanding.WRONG, f"wrong: {error} past bound {bound}{samples}"
        case "undecided":
            high = verdict.error.high
            more = (
                f"but may be {spell_error(high)}"
                if math.isfinite(high)
                else "too few to tell of others"
            )
            return ResultStanding.OPEN, f"undecided: {error} within bound {bound}{samples}, {more}"
        case _:
            return ResultStanding.OPEN, f"cannot tell: {clean(verdict.because)}"


def risk_of(comparison: "Comparison") -> str:
    """The largest risk that a comparison leaves."""
    verdict, is_random = comparison.verdict, comparison.data.seed is not None
    ruling, bound = verdict.ruling.value, verdict.budget
    growing = _find_growing(comparison)
    if growing is not None:
        return growing
    if ruling == "different":
        return _where_wrong(comparison, is_random=is_random)
    worry = next(
        (f"output {clean(o.name)!r}: {clean(o.worry)}" for o in comparison.outputs if o.worry), None
    )
    if worry is not None:
        return worry
    if is_random:
        return _RANDOM
    if ruling == "undecided":
        return f"{spell_count(comparison.data.samples, 'sample')} do not decide: more would"
    if ruling == "cannot tell":
        return "unknown whether the answers are the same: this data shows nothing"
    if comparison.run == "native":
        return "run natively: what the runtime computes in FP32 was not rounded"
    quantity = "error" if comparison.metric is None or bounds_errors(comparison) else "drop"
    share = max(0.0, verdict.error.estimate / bound) if bound else 0.0
    if share > _MUCH:
        return f"the {quantity} takes {spell_share(share)} of the bound: other data may pass it"
    return f"none seen on this data: the {quantity} takes {spell_share(share)} of the bound"


def _find_growing(comparison: "Comparison") -> str | None:
    """How the largest error over steps grows; None if none does."""
    growing = [
        output
        for output in comparison.outputs
        if output.steps is not None and output.steps.grows
        and output.steps.worst > _NOTED * (output.budget or 0.0)
    ]  # fmt: skip
    worst = max(growing, key=lambda output: output.relative_l2.estimate, default=None)
    if worst is None or worst.steps is None:
        return None
    return f"output {clean(worst.name)!r}: {spell_steps(worst.steps)}"


def _where_wrong(comparison: "Comparison", *, is_random: bool) -> str:
    """The layer at which an excessive error begins, if the comparison has layers."""
    begins = where_error_begins(comparison)
    if begins is None:
        return _RANDOM if is_random else "this model gives other answers than the reference"
    where = f"the error begins at {clean(begins.name)}"
    if is_random:
        return f"{where}, on random inputs, which prove little"
    before = comparison.layers.index(begins)
    return (
        f"{where}; {spell_count(before, 'layer')} before it {'keeps' if before == 1 else 'keep'}"
        " the bound"
    )


def risk_on_data(comparison: "Comparison", plan: Plan, measured: "Measured") -> str:
    """The largest risk of a result that was compared on data."""
    ruling, is_random = comparison.verdict.ruling.value, comparison.data.seed is not None
    if ruling == "different" and is_random:
        return "the result was written all the same; random inputs prove little"
    if ruling == "different":
        return "the result was written all the same: it is not fit for use"
    has_lost = any(output.worry for output in comparison.outputs)
    shared = _SHARED if measured.shares_data else None
    worry = None if has_lost else _blind(measured) or _close_to_overflow(plan, measured) or shared
    return (
        worry if worry is not None and ruling == "same" and not is_random else risk_of(comparison)
    )


def _blind(measured: "Measured") -> str | None:
    """What the calibration data could not show, if anything: the verdict is from other samples."""
    if measured.ranges is None or not measured.ranges.unknown:
        return None
    return f"the data that decided does not show all: {clean(measured.ranges.unknown[0])}"


def _close_to_overflow(plan: Plan, measured: "Measured") -> str | None:
    """A sentence on values of low nodes near the format's limit; None if there are none."""
    if measured.ranges is None:
        return None
    limits = {
        name: FORMATS[node.precision.output].max_finite
        for name, node in plan.by_name.items()
        if is_operator(node) and node.precision.output in plan.lows
    }
    close = [
        value
        for value in measured.ranges.values
        if value.node in limits and value.largest * _CLOSE > limits[value.node]
    ]
    if not close:
        return None
    worst = max(close, key=lambda value: value.largest / limits[value.node])
    if worst.largest > limits[worst.node] and plan.by_name[worst.node].rule == "typed":
        return (
            f"the file itself overflows: {spell_number(worst.largest)} at {clean(worst.node)}, so"
            f" the answers compared with are wrong too; {setting('to', FP32)} widens it, to be"
            " planned anew"
        )
    words = "value comes" if len(close) == 1 else "values come"
    return (
        f"{len(close)} {words} close to overflow: {spell_number(worst.largest)} at"
        f" {clean(worst.node)}"
    )


def bounds_errors(comparison: "Comparison") -> bool:
    """Whether a verdict is on output errors, and not on the drop of a metric."""
    # Compared as text, in which NaN equals NaN.
    return any(
        str(output.relative_l2) == str(comparison.verdict.error) for output in comparison.outputs
    )


def where_error_begins(comparison: "Comparison") -> "Deviation | None":
    """The first layer in graph order that exceeds the comparison's budget."""
    # A metric's budget does not bound errors: then only a faulty or infinite error counts.
    budget = comparison.verdict.budget if bounds_errors(comparison) else math.inf
    return find_beginning(comparison.layers, budget)


def find_beginning(layers: "Sequence[Deviation]", budget: float) -> "Deviation | None":
    """The first layer in graph order that has a fault or an error past the budget."""
    return next(
        (layer for layer in layers if layer.fault or not layer.relative_l2.estimate <= budget), None
    )


def spell_bound(verdict: "Verdict") -> str:
    """The budget; with the requested one if FP32's own noise replaced it."""
    bound = spell_error(verdict.budget)
    if verdict.budget_asked is None:
        return bound
    return f"{bound} (FP32's noise; {spell_error(verdict.budget_asked)} was asked)"


def error_of(comparison: "Comparison") -> str:
    """The bounded quantity: the error, or the drop of the user's metric."""
    estimate = comparison.verdict.error.estimate
    if comparison.metric is None or bounds_errors(comparison):
        return f"error {spell_error(estimate)}"
    return f"{clean(comparison.metric.name)} drops by {spell_error(max(0.0, estimate))}"


def spell_samples(comparison: "Comparison") -> str:
    """The number of samples, and of running text the divergence of the next tokens."""
    random = "random " if comparison.data.seed is not None else ""
    unit = "step" if any(output.steps for output in comparison.outputs) else "sample"
    samples = f" on {spell_count(comparison.data.samples, f'{random}{unit}')}"
    return f"{samples}{_spell_divergence(comparison)}"


def _spell_divergence(comparison: "Comparison") -> str:
    """The largest divergence of next tokens, in parentheses; empty if none was measured."""
    judged = [output.next_tokens for output in comparison.outputs if output.next_tokens is not None]
    if not judged:
        return ""
    worst = max(judged, key=lambda next_tokens: next_tokens.kl.value)
    return f" (KL {spell_mean(worst.kl)} nats per token)"
