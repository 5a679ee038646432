"""Curves of trainings over seeds, and whether two ways end alike: as data.

Whether a way ends as the baseline does is judged by pairs: trainings of one seed began with the same weights and saw
the same batches, so the differences of their ends are a sample. Their mean has an interval of 90 % by Student's t, and
the ways are **equal within noise** where it lies within twice the standard deviation of the baseline's own ends: two
one-sided tests at 5 % (TOST). Fewer than three pairs tell nothing.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import aside, did_you_mean, join_with_or, names_meant
from mezzo.contracts.training_curves import Training
from mezzo.ir.display import Tabled
from mezzo.numerics.statistics.student import student_quantile

Doubles = npt.NDArray[np.float64]

TEST = (
    "paired by seed; Student's interval of 90 % for the mean difference, against twice the standard deviation of the "
    "baseline's ends (two one-sided tests at 5 %)"
)
_LEAST_PAIRS = 3
_SHARE = 0.95
_SPREADS = 2.0
_BASELINE = "fp32"
_WINDOW, _LEAST_WINDOWS = 20, 10
_MOST_LISTED = 16


class Ending(enum.Enum):
    """How a way ends beside the baseline."""

    BASELINE = "the baseline"
    EQUAL = "equal within noise"
    HIGHER = "higher"
    LOWER = "lower"
    ASTRAY = "not finite"
    UNKNOWN = "cannot tell"

    @property
    def is_reference(self) -> bool:
        """Whether the others are judged beside it."""
        return self is Ending.BASELINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """How a way ends beside the baseline. `difference` is from the baseline, over the seeds that both have, with its
    interval `low` to `high`; `margin` is what counts as equal. None: it cannot be told, and `because` says why.
    """

    ending: Ending
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One way on one network. Of each point: the `steps` made by then, and over seeds the `mean`, `lowest` and
    `highest` of the losses' running mean over `window` steps.

    `ends`: by seed, the loss on held-out data where every training of the network has one, else the mean of the last
    `window` losses.
    """

    way: str
    ends: Mapping[int, float]
    steps: Sequence[int]
    mean: Sequence[float]
    lowest: Sequence[float]
    highest: Sequence[float]
    judged: Judgment


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Curves(Tabled):
    """All ways on one network. `is_held_out`: the ends are losses on data that was not trained on."""

    network: str
    curves: tuple[Curve, ...]
    window: int
    is_held_out: bool


def judge_curves(trainings: Sequence[Training], baseline: str | None = None) -> tuple[Curves, ...]:
    """Curves by network, in the order in which they come. The baseline is the way of that name; without one, the way
    "FP32", else the first.

    Raises InputError: a network has no such way, or several that may be meant.
    """
    return tuple(
        _of_network(network, [one for one in trainings if one.network == network], baseline)
        for network in dict.fromkeys(one.network for one in trainings)
    )


def _of_network(network: str, trainings: Sequence[Training], named: str | None) -> Curves:
    shortest = min(len(one.losses) for one in trainings)
    window = max(1, min(_WINDOW, shortest // _LEAST_WINDOWS))
    is_held_out = all(one.held_out is not None for one in trainings)
    by_way: dict[str, list[Training]] = {}
    for one in trainings:
        by_way.setdefault(one.way, []).append(one)
    ends = {way: {one.seed: _end(one, window, is_held_out) for one in of} for way, of in by_way.items()}
    baseline = _usual_baseline(list(by_way)) if named is None else _find_baseline(network, list(by_way), named)
    curves = [_curve(way, of, window, ends[way], ends[baseline], way == baseline) for way, of in by_way.items()]
    return Curves(network=network, curves=tuple(curves), window=window, is_held_out=is_held_out)


def _usual_baseline(ways: Sequence[str]) -> str:
    return next((way for way in ways if way.casefold() == _BASELINE), ways[0])


def _find_baseline(network: str, ways: Sequence[str], named: str) -> str:
    """The way that a word stands for. Names are whoever's wrote the file, so they are quoted."""
    meant = names_meant(named, dict.fromkeys(ways, ()))
    if len(meant) == 1:
        return meant[0]
    where = f" of network {network!r}" if network else ""
    if meant:
        raise InputError(f"{option('baseline')} {named!r} may be {join_with_or(map(repr, meant))}{where}; write which")
    listed = ", ".join(map(repr, ways[:_MOST_LISTED])) + (", ..." if len(ways) > _MOST_LISTED else "")
    asked = aside(did_you_mean(named, ways, 1))
    raise InputError(f"{option('baseline')} {named!r} is no way{where}{asked}; choose one of {listed}")


def _end(training: Training, window: int, is_held_out: bool) -> float:
    if is_held_out and training.held_out is not None:
        return training.held_out
    return float(np.mean(training.losses[-window:]))


def _curve(
    way: str,
    trainings: Sequence[Training],
    window: int,
    ends: Mapping[int, float],
    baseline: Mapping[int, float],
    is_baseline: bool,
) -> Curve:
    length = min(len(one.losses) for one in trainings)
    running = np.stack([_running_mean(np.array(one.losses[:length]), window) for one in trainings])
    with np.errstate(invalid="ignore"):  # of both infinities, which have no mean
        mean = running.mean(0)
    return Curve(
        way=way,
        ends=ends,
        steps=tuple(range(window, length + 1)),
        mean=tuple(mean.tolist()),
        lowest=tuple(running.min(0).tolist()),
        highest=tuple(running.max(0).tolist()),
        judged=Judgment(ending=Ending.BASELINE) if is_baseline else judge_ends(ends, baseline),
    )


def _running_mean(losses: Doubles, window: int) -> Doubles:
    """The mean of each `window` losses in a row. What is not finite stays so to the end of its windows alone."""
    with np.errstate(invalid="ignore"):
        means: Doubles = np.lib.stride_tricks.sliding_window_view(losses, window).mean(1)
    return means


def judge_ends(ends: Mapping[int, float], baseline: Mapping[int, float]) -> Judgment:
    """How a way ends beside the baseline, from the ends of both by seed."""
    seeds = [seed for seed in ends if seed in baseline]
    if not all(map(math.isfinite, ends.values())):
        return Judgment(ending=Ending.ASTRAY)
    if not all(map(math.isfinite, baseline.values())):
        return Judgment(ending=Ending.UNKNOWN, because="the baseline's ends are not finite")
    if not seeds:
        return Judgment(ending=Ending.UNKNOWN, because="no seed is the baseline's too")
    differences = np.array([ends[seed] - baseline[seed] for seed in seeds])
    mean = float(differences.mean())
    if len(seeds) < _LEAST_PAIRS:
        said = f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'} in common, and {_LEAST_PAIRS} are needed"
        return Judgment(ending=Ending.UNKNOWN, difference=mean, because=said)
    reach = student_quantile(len(seeds) - 1, _SHARE) * float(differences.std(ddof=1)) / math.sqrt(len(seeds))
    low, high = mean - reach, mean + reach
    margin = _SPREADS * float(np.std(list(baseline.values()), ddof=1))
    ending, because = Ending.UNKNOWN, "the interval reaches past what counts as equal"
    if -margin <= low and high <= margin:
        ending, because = Ending.EQUAL, ""
    elif low > 0:
        ending, because = Ending.HIGHER, ""
    elif high < 0:
        ending, because = Ending.LOWER, ""
    return Judgment(ending=ending, difference=mean, low=low, high=high, margin=margin, because=because)
