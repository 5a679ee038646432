"""The speed of a result: measured, or expected by the target's table."""

from typing import TYPE_CHECKING, NamedTuple

from mezzo.contracts.plans import Plan
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count
from mezzo.report.records.groups import count_precisions, runs_low
from mezzo.tables.target import Gain

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.numerics.measures import Measured

# Rules of INT8 nodes that the source model already has.
_KEPT_QUANTIZED = frozenset({"quantized-part", "quantized-unit", "quantized-weight"})


class Speed(NamedTuple):
    """The expected speed of a result: a sentence, and yes, no or None for unknown."""

    sentence: str
    is_faster: bool | None


def expect_speed(
    gain: Gain | None, target: str, machine: "Machine", why_not: str | None = None
) -> Speed:
    """The speed that a target's table predicts for a format, if the result runs on this machine.

    `why_not` is the reason why a result was not checked. A gain that was not measured is expected,
    so `is_faster` is None.
    """
    if gain is None:
        return Speed(f"no performance data for target {target!r}", None)
    if not gain.is_faster:
        return Speed(f"no speed gain: {gain.in_short}", False)
    is_faster_here = gain.is_faster_on(machine)
    if is_faster_here is False:
        return Speed(f"no speed gain on this machine: it lacks {' and '.join(gain.needs)}", False)
    needed = "" if is_faster_here else f" with {' or '.join(gain.needs)}"
    checked = "not measured:" if why_not is None else f"not checked: {why_not};"
    return Speed(f"faster expected{needed}, {checked} {gain.in_short}", None)


def speed_of(plan: Plan, machine: "Machine", why_not: str | None = None) -> Speed:
    """The expected speed of a plan's result; none is gained if no node runs low."""
    if not runs_low(plan):
        count = sum(node.rule in _KEPT_QUANTIZED for node in plan.nodes)
        if count:
            why = (
                f"the model came quantized, and {spell_count(count, 'node')} of its integer kernels"
                " stay as they are"
            )
            return Speed(f"no further speed gain: {why}", False)
        is_planned = sum(count_precisions(plan).values())
        status = (
            f"every node stays in {plan.high}" if is_planned else f"no node computes in {plan.high}"
        )
        return Speed(f"no speed gain: {status}", False)
    if plan.stored_floats and not plan.lows:
        return Speed(f"no speed gain expected: every node computes in {plan.high}", None)
    target = dict(plan.settings).get("target", "")
    return expect_speed(plan.gain, clean(target), machine, why_not)


def result_speed(plan: Plan, measured: "Measured | None", machine: "Machine") -> Speed:
    """The speed of a written result: measured if it was timed, else expected."""
    if measured is None:
        return speed_of(plan, machine)
    why_not = None if measured.runtime is None else measured.runtime.why_not
    return _measured_speed(measured, plan, machine) or speed_of(plan, machine, why_not)


def _measured_speed(measured: "Measured", plan: Plan, machine: "Machine") -> Speed | None:
    """The measured speed, if the result was timed."""
    timed = measured.timing
    if timed is None or not runs_low(plan):
        return None
    base, result = timed.models[:2]
    if base.median_ns is None or result.median_ns is None or result.speed is None:
        return None
    times = f"a run takes {result.median_ns / 1e6:.3g} ms, {base.median_ns / 1e6:.3g} ms in FP32"
    feature = None if plan.gain is None else plan.gain.feature_on(machine)
    needed = "" if feature is None else f" with {feature}"
    text = f"measured on {clean(timed.runtime)}{needed}: {times}"
    ends = f"{result.speed.low:.2f} to {result.speed.high:.2f}"
    if result.speed.low <= 1.0 <= result.speed.high:
        return Speed(
            f"{text}: no significant difference from FP32"
            f" ({result.speed.estimate:.2f} times as fast, {ends})",
            None,
        )
    return Speed(
        f"{text}: {result.speed.estimate:.2f} times as fast ({ends})", result.speed.low > 1.0
    )
