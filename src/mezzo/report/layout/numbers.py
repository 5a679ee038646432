"""Number formats for people: errors, shares, intervals and durations, in ASCII."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mezzo.numerics.measures import DataSource, Interval, Load, Mean
    from mezzo.numerics.step_errors import StepErrors

_LONG_S = 120


def spell_error(error: float) -> str:
    """A relative error with three digits: 3.12e-04, 0.123, inf."""
    if error == 0 or not math.isfinite(error):
        return f"{error:g}"
    return f"{error:.2e}" if abs(error) < 0.01 or abs(error) >= 1000 else f"{error:.3g}"


def spell_number(value: float) -> str:
    """A number with four digits: 65504, 1.234e+05, -0.001."""
    return f"{value:.5g}" if value.is_integer() and abs(value) < 100_000 else f"{value:.4g}"


def spell_share(share: float) -> str:
    """A percentage that never rounds to none or all: "12.3 %", "<0.01 %", ">99.99 %"."""
    if not math.isfinite(share):
        return "nan"
    if 0 < share < 1e-4:
        return "<0.01 %"
    if 1 - 1e-4 < share < 1:
        return ">99.99 %"
    digits = 2 if 0 < share < 0.001 or 0.999 < share < 1 else 1
    return f"{100 * share:.{digits}f} %" if share not in (0, 1) else f"{100 * share:.0f} %"


def spell_cosine(cosine: float) -> str:
    """A cosine with seven digits, truncated: only 1 is "1"."""
    if not math.isfinite(cosine):
        return "nan"
    if cosine >= 1:
        return "1"
    return f"{math.floor(cosine * 1e7) / 1e7:.7f}"


def spell_interval(interval: "Interval") -> str:
    """Both ends of an error interval, two digits each."""
    return " .. ".join(
        f"{end:.1e}" if math.isfinite(end) and end else f"{end:g}"
        for end in (interval.low, interval.high)
    )


def spell_agreement(share: "Interval") -> str:
    """A share of rows with its interval: "98.4 % (95.1 % .. 99.8 %)"."""
    return f"{spell_share(share.estimate)} ({spell_share(share.low)} .. {spell_share(share.high)})"


def spell_mean(mean: "Mean") -> str:
    """A mean with its standard error, if that is known: "0.142 +- 0.0041"."""
    spread = "" if mean.standard_error is None else f" +- {mean.standard_error:.2g}"
    return f"{mean.value:.3g}{spread}"


def spell_steps(steps: "StepErrors") -> str:
    """How an error changes over the steps of a sequence."""
    worst, trend = "", "grows" if steps.grows else "does not grow"
    if steps.worst_at not in (1, steps.count):
        worst = f", {spell_error(steps.worst)} at worst, at step {steps.worst_at:,}"
    return (
        f"error {spell_error(steps.first)} at step 1, {spell_error(steps.last)} at step"
        f" {steps.count:,}{worst}: {trend}"
    )


def spell_data(data: "DataSource") -> str:
    """The data and how much of it there was."""
    amount = f"{spell_count(data.samples, 'sample')} in {spell_count(data.batches, 'batch')}"
    drawn = "" if data.seed is None else "; drawn at random, which proves little"
    return f"{data.name}: {amount}{drawn}"


def spell_time(time_s: float) -> str:
    """A duration: 0.4 s, 12 s, 3 min 20 s."""
    if time_s < _LONG_S:
        return f"{time_s:.2g} s" if time_s < 10 else f"{time_s:.0f} s"
    minutes, seconds = divmod(round(time_s), 60)
    return f"{minutes} min {seconds} s"


def spell_count(number: int, what: str) -> str:
    """A count with its noun: "1 node", "12 nodes", "2 batches"."""
    if number == 1:
        return f"1 {what}"
    return f"{number} {what}{'es' if what.endswith('ch') else 's'}"


def spell_load(load: "Load | None") -> str:
    """The machine's load, after other settings: "; load 0.1 before and 1.9 after"."""
    return "" if load is None else f"; load {load.before:.1f} before and {load.after:.1f} after"


def round_up(error: float) -> str:
    """A bound with two digits, rounded up, so that the printed number suffices."""
    power = math.floor(math.log10(error)) - 1
    return f"{math.ceil(error / 10.0**power) * 10.0**power:.2g}"
