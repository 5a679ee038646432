"""Default formats and faster targets, from the targets' performance rows."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mezzo.common.errors import InputError
from mezzo.common.machine import Machine, find_gpus
from mezzo.common.packages import find_version
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import FORMAT_DTYPES
from mezzo.plugins.discovery import built_in_targets, runnable_targets
from mezzo.plugins.discovery import target as find_target
from mezzo.tables.runtime import NVIDIA_GPU, Runtime
from mezzo.tables.sums import PairSum
from mezzo.tables.target import Gain, Target

# The format for results that gain size alone.
SMALLEST = "fp16"
_OTHERWISE = "--to overrides"
_OUTCOMES = ("gains", "unknown", "not here", "no gain")
_WORDS = {dtype: word for word, dtype in FORMAT_DTYPES.items()}


def choose_format(target: Target, machine: Machine) -> tuple[str, str]:
    """The default format of a target, with the reason: the first that is or may be faster on this
    machine; else the first it runs, for its size.
    """
    for gain in target.gains:
        # Without CPU features, only unconditional gains count.
        is_known = machine.features is not None or not gain.needs
        if (
            gain.dtype in LOW_DTYPES.values()
            and is_known
            and gain.is_faster_on(machine) is not False
        ):
            word = _WORDS[gain.dtype]
            where = " on this machine" if gain.needs and gain.is_faster_on(machine) else ""
            return word, f"to {word}: what gains on {target.name}{where}; {_OTHERWISE}"
    word = next(
        (word for word, dtype in LOW_DTYPES.items() if target.covers(dtype)),
        next(iter(LOW_DTYPES)),
    )
    return word, f"to {word}, for the size alone; {_OTHERWISE}"


def find_gaining(machine: Machine) -> tuple[str, str] | None:
    """An installed target that is faster on this machine, and its format; None if none."""
    floats = (each for each in find_candidates(machine) if not each.is_quantized)
    return next(((each.target, each.to) for each in floats), None)


def find_better(gain: Gain | None, machine: Machine) -> tuple[str, str] | None:
    """A faster target and format, if the chosen ones are known not to be; else None."""
    return (
        find_gaining(machine) if gain is not None and gain.is_faster_on(machine) is False else None
    )


def recorded_gain(target: str, low: DType) -> Gain | None:
    """Performance row of a format, by the target's name; None if the target is unknown."""
    try:
        return find_target(target).gain(low)
    except InputError:  # a target from a file, or of a package that is not installed
        return None


def recorded_sums(target: str | None, low: DType | None) -> Accumulation | None:
    """How the kernels of a target sum in a format, by the target's name; None if in FP32, or if
    the target is unknown.
    """
    if target is None or low is None:
        return None
    try:
        return Accumulation.of(find_target(target), (low,))
    except InputError:
        return None


def saturating_sums(target: str | None, machine: Machine) -> PairSum | None:
    """How INT8 kernels add on a machine where they may saturate, by the target's name; without one,
    the kernels of the runtime that `run="native"` takes. None if they do not.
    """
    name = target if target is not None else next(iter(runnable_targets()))
    try:
        sums = find_target(name).pair_sum
    except InputError:
        return None
    return sums if sums is not None and sums.saturates_on(machine) else None


class Candidate(NamedTuple):
    """A target whose runtime is installed here, and the formats that its table expects to gain on
    this machine, as an option: "bf16", "int8", "int8,bf16". `is_timed`: whether mezzo can run it.
    """

    target: str
    to: str
    is_timed: bool

    @property
    def is_quantized(self) -> bool:
        """Whether a format takes scales."""
        return self.to not in LOW_DTYPES


class FormatHere(NamedTuple):
    """What a target's table expects of a format on this machine. `outcome`: "gains", "no gain",
    "unknown" (whether the hardware has what it needs) or "not here"; `why`: the reason, or what to
    install.
    """

    target: str
    to: str
    outcome: str
    why: str


def find_candidates(machine: Machine) -> list[Candidate]:
    """The targets and formats that gain on this machine by their tables, for installed runtimes
    whose hardware is here. Those of a GPU come first: it is faster than any CPU format.
    """
    installed = [row for row in _runtimes() if find_version(row[1].package) is not None]
    # nvidia-smi takes seconds on some machines.
    gpus = find_gpus() if any(runtime.hardware == NVIDIA_GPU for _, runtime in installed) else ()
    candidates = [
        Candidate(target.name, to, is_timed=runtime.can_time)
        for target, runtime in installed
        if _has_hardware(runtime, gpus)
        for to in _gaining_formats(target, machine)
    ]
    return sorted(candidates, key=lambda candidate: candidate.is_timed)


def list_formats(machine: Machine, gpus: Sequence[str]) -> list[FormatHere]:
    """What each target that is a runtime of ONNX models gains on this machine, by format; what
    gains comes first.
    """
    rows = [
        FormatHere(target.name, _WORDS[gain.dtype], *_expect(gain, runtime, machine, gpus))
        for target, runtime in _runtimes()
        for gain in target.gains
    ]
    return sorted(rows, key=lambda row: _OUTCOMES.index(row.outcome))


def _expect(gain: Gain, runtime: Runtime, machine: Machine, gpus: Sequence[str]) -> tuple[str, str]:
    """The outcome of a format on this machine, and the reason."""
    is_faster, needs = gain.is_faster_on(machine), " or ".join(gain.needs)
    if not gain.is_faster:
        return "no gain", gain.in_short
    if not _has_hardware(runtime, gpus):
        return "not here", f"needs {runtime.hardware}"
    if is_faster is False:
        return "no gain", f"this CPU has no {needs}"
    if find_version(runtime.package) is None:
        return "not here", f"pip install {runtime.package}"
    if is_faster is None:
        return "unknown", f"needs {needs}"
    return "gains", gain.feature_on(machine) or gain.in_short


def _has_hardware(runtime: Runtime, gpus: Sequence[str]) -> bool:
    """Whether this machine has the hardware of a runtime."""
    return runtime.hardware is None or (runtime.hardware == NVIDIA_GPU and bool(gpus))


def _runtimes() -> Iterator[tuple[Target, Runtime]]:
    """mezzo's own targets that are runtimes of ONNX models: those with a driver, then others."""
    order = [*runnable_targets()]
    targets = built_in_targets()
    for name in [*order, *(name for name in targets if name not in order)]:
        runtime = targets[name].runtime
        if runtime is not None and runtime.device is None:
            yield targets[name], runtime


def choose_by_tables(machine: Machine) -> tuple[str, str | None, str]:
    """The float format, its target (None: the usual one) and the reason, where nothing is timed.

    INT8 changes answers more than a float does, and is not taken without a measurement.
    """
    candidates = find_candidates(machine)
    for each in candidates:
        if not each.is_quantized:
            reason = f"to {each.to}: {each.target} is installed and gains by it"
            return each.to, each.target, f"{reason}; {_OTHERWISE}"
    reason = f"to {SMALLEST}, for the size alone: no installed runtime gains speed by a float here"
    if candidates:
        reason += f"; {candidates[0].target} gains by {candidates[0].to}"
    return SMALLEST, None, f"{reason}; {_OTHERWISE}"


def _gaining_formats(target: Target, machine: Machine) -> list[str]:
    """The formats that gain on a machine, and INT8 with the float where both do."""
    gaining = [gain.dtype for gain in target.gains if gain.is_faster_on(machine)]
    floats = [_WORDS[dtype] for dtype in gaining if dtype in LOW_DTYPES.values()]
    scaled = [_WORDS[dtype] for dtype in gaining if dtype is DType.QUANTIZED8]
    return [*floats, *scaled, *(f"{word},{floats[0]}" for word in scaled if floats)]
