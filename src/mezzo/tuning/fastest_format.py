"""Choice of target and formats by measurement: what the targets' tables expect to gain on this
machine is converted, run and timed on the installed runtimes, and the fastest result with right
outputs is kept.

Without data, INT8 is tried only if no float is faster: it finds ranges at run time, and is kept
only if its outputs on random inputs are within the bound.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mezzo.common.errors import MezzoError
from mezzo.common.machine import find_machine
from mezzo.contracts.calibrator import NO_CALIBRATOR
from mezzo.contracts.corrections import NONE
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import Converted
from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import Measured, Ruling, TriedFormat
from mezzo.planner.choices.gains import SMALLEST, Candidate, find_candidates
from mezzo.plugins.discovery import target as find_target

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Data

# Converts with a request's options, on data or without.
Convert = Callable[[Request, "Data | None"], Converted]

# Less is not worth a change of runtime, or INT8's error.
_LEAST_SPEED = 1.05
# Trials of larger models would take minutes: they take what the tables expect.
_LARGEST_BYTES = 500 << 20
# No trial starts later than this.
_LONGEST_S = 30.0
_OTHERWISE = "--to and --target override"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A candidate's result, None if there is none, and what was found."""

    candidate: Candidate
    converted: Converted | None
    found: TriedFormat

    @property
    def is_faster(self) -> bool:
        """Whether the result can be taken, and is faster than FP32: measurably so for INT8; a float
        that its table expects to gain needs the estimate alone.
        """
        speed = self.found.speed
        if self.found.fault is not None or speed is None or speed.estimate < _LEAST_SPEED:
            return False
        return speed.low > 1.0 or not self.candidate.is_quantized


def convert_to_fastest(
    model: Model, request: Request, convert: Convert, data: "Data | None"
) -> Converted:
    """The fastest right result of all candidates, with the reason in its plan; the smallest float's
    result if nothing gains.

    `data`: the user's; None if there is none. The result is in memory.
    """
    candidates = find_candidates(find_machine())
    if candidates and not candidates[0].is_timed:
        first = candidates[0]
        reason = f"{first.target}, installed here with a GPU, gains by it; not measured here"
        return _explained(convert(_requesting(request, first), data), reason)
    if not candidates or model.size_bytes > _LARGEST_BYTES:
        return convert(request, data)  # as the tables say
    trials = list(_try_all(request, candidates, convert, has_data=data is not None))
    trials.sort(key=lambda trial: trial.found.median_ns or math.inf)
    for index, trial in enumerate(trials):
        if data is not None and trial.is_faster:
            tried = _requesting(request, trial.candidate)
            trials[index] = _try(convert, tried, data, trial.candidate, is_judged=True)
        chosen = trials[index]
        if chosen.is_faster:
            assert chosen.converted is not None, "a timed trial has a result"
            return _explained(chosen.converted, "the fastest on this machine", trials)
    smallest = convert(replace(request, to=SMALLEST), data)
    reason = "for the size alone: nothing is faster on this machine"
    return _explained(smallest, reason, trials)


def _try_all(
    request: Request, candidates: Iterable[Candidate], convert: Convert, *, has_data: bool
) -> Iterator[_Trial]:
    """Trials for the speed. With data of the user, INT8 is tried on random inputs, uncorrected: its
    speed is that of the real scales, and the answers are judged later, on the data.
    """
    until_s, has_gained = time.monotonic() + _LONGEST_S, False
    for candidate in sorted(candidates, key=lambda each: each.is_quantized):
        if time.monotonic() > until_s:
            return
        tried = _requesting(request, candidate)
        if not candidate.is_quantized:
            trial = _try(convert, tried, None, candidate)
            has_gained |= trial.is_faster
            yield trial
        elif has_data:
            yield _try(convert, replace(tried, correct=NONE), "random", candidate)
        elif not has_gained and find_target(candidate.target).finds_ranges(DType.QUANTIZED8):
            tried = replace(tried, calibrator=NO_CALIBRATOR)
            yield _try(convert, tried, None, candidate, needs_evidence=True)


def _try(
    convert: Convert,
    request: Request,
    data: "Data | None",
    candidate: Candidate,
    *,
    is_judged: bool = False,
    needs_evidence: bool = False,
) -> _Trial:
    """Convert to a candidate. `is_judged`: the data is the user's, and answers on it count;
    `needs_evidence`: the result counts only with outputs seen to be right.
    """
    found = TriedFormat(to=candidate.to, target=candidate.target)
    try:
        converted = convert(request, data)
    except MezzoError:
        found = replace(found, fault="cannot be converted")
        return _Trial(candidate=candidate, converted=None, found=found)
    measured = converted.measured or Measured()
    fault = _find_fault(measured, is_judged=is_judged, needs_evidence=needs_evidence)
    found = replace(found, fault=fault)
    if measured.timing is not None and len(measured.timing.models) > 1:
        timed = measured.timing.models[1]  # the first is FP32
        found = replace(found, median_ns=timed.median_ns, speed=timed.speed)
    return _Trial(candidate=candidate, converted=converted, found=found)


def _find_fault(measured: Measured, *, is_judged: bool, needs_evidence: bool) -> str | None:
    """Why a result cannot be taken; None if it can. `is_judged`: it was compared on the user's
    data.
    """
    comparison = None if measured.runtime is None else measured.runtime.comparison
    if measured.runtime is not None and measured.runtime.fault is not None:
        return "does not run"
    if comparison is not None and comparison.is_wrong:
        return "gives wrong answers"
    if is_judged and measured.comparison is not None and measured.comparison.is_wrong:
        return "gives wrong answers on the data"
    if needs_evidence and (comparison is None or comparison.verdict.ruling is not Ruling.SAME):
        return "cannot be judged without data"
    return None


def _requesting(request: Request, candidate: Candidate) -> Request:
    return replace(request, to=candidate.to, target=candidate.target)


def _explained(converted: Converted, reason: str, trials: Sequence[_Trial] = ()) -> Converted:
    """The result with the reason for its formats, and what the trials found."""
    plan, tried = converted.plan, tuple(trial.found for trial in trials)
    settings = dict(plan.settings)
    found = f" ({', '.join(map(_spell, tried))}; FP32 is 1)" if tried else ""
    choice = f"to {settings['to']} for {settings['target']}: {reason}{found}; {_OTHERWISE}"
    notes = (choice, *(note for note in plan.notes if note != plan.choice))
    return replace(
        converted,
        plan=replace(plan, choice=choice, notes=notes),
        measured=replace(converted.measured or Measured(), tried=tried),
    )


def _spell(found: TriedFormat) -> str:
    """Formats, target and speed: "int8 on onnxruntime-cpu 2.10 times"."""
    outcome = found.fault
    if outcome is None:
        outcome = "not timed"
        if found.speed is not None:
            in_doubt = ", uncertain" if found.speed.low <= 1.0 < found.speed.estimate else ""
            outcome = f"{found.speed.estimate:.2f} times{in_doubt}"
    return f"{found.to} on {found.target} {outcome}"
