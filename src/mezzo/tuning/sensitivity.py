"""Sensitivity analysis: each unit's output error in low precision, measured on groups of units.

Errors of separate units are nearly independent, so squared errors add up: a group's error is
divided among its units, and groups with a large error are split until the units that matter have
runs of their own. So the number of runs follows the number of those units, not the size of the
model. In a model of repeated blocks, the units at one position of all blocks form a group: they are
similar, and far enough apart to round independently, unlike neighbours.

A divided error is an estimate. The last runs measure single units of the groups with the largest
error, and the deviation from their estimates bounds the others.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from mezzo.numerics.statistics.intervals import next_factor

# Runs a set of units in low precision, all else in high, and returns the largest relative L2 error
# of the outputs; infinite if an output is NaN or infinite where the reference is not.
Run = Callable[[Sequence[int]], float]
# Receives sets of units that are likely to run next, the likeliest first, so that workers can start
# early.
Foresee = Callable[[Sequence[Sequence[int]]], None]

_FIRST_GROUPS = 8
# Groups below this fraction of the total squared error need no further run.
_NEGLIGIBLE = 0.01
# Fractions of all runs for positions in blocks, before any group is split, and for checks of
# estimates.
_FOR_PLACES = 0.6
_FOR_CHECKS = 1 / 6
_MOST_CHECKS = 8
# Number of groups whose halves are announced: those with the largest error are split next in any
# case.
_FORESEEN = 8


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Squared output error of one unit; infinite if its run breaks an output. `together`: units in
    the run that it comes from, whose squared error is `group_square`; 1 for a run of its own.
    """

    square: float
    together: int
    group_square: float

    @property
    def is_measured(self) -> bool:
        """Whether it comes from a run of its own, and is not a group's share."""
        return self.together == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """The result: a cost per unit, the error with all units in low precision, and the number of
    runs.

    `off`: ratios of measured errors of single units to their estimates, one per check.
    """

    costs: tuple[UnitCost, ...]
    all_low: float
    runs: int
    off: tuple[float, ...] = ()

    def interval(self, unit: int) -> tuple[float, float]:
        """Bounds of a unit's error. For an estimate: the 95 % prediction interval by the checks,
        capped at the error of its whole group.
        """
        cost = self.costs[unit]
        error, most = math.sqrt(cost.square), math.sqrt(cost.group_square)
        if cost.is_measured:
            return error, error
        low, high = next_factor(self.off)
        if not math.isfinite(error):
            return 0.0, most
        return error * min(1.0, low), min(error * max(1.0, high), max(most, error))


def probe_units(
    weights: Sequence[float],
    run: Run,
    max_runs: int,
    all_low: float | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
    places: Sequence[int] | None = None,
    foresee: Foresee | None = None,
) -> Probing:
    """Measure each unit's error in at most `max_runs` runs. Units of one position form a group,
    otherwise neighbours do.

    `weights`: prior guesses of squared errors by which a group's error is divided; only ratios
    matter. `all_low`: the error of all units, if known, which saves a run. `may_go_on` is called
    before each run; `foresee` does not change the result.
    """
    return _Prober(
        weights, run, max_runs, may_go_on, places, foresee or (lambda chosen: None)
    ).probe(all_low)


class _Prober:
    """The state of one sensitivity analysis."""

    def __init__(
        self, weights: Sequence[float], run: Run, max_runs: int, may_go_on: Callable[[], bool],
        places: Sequence[int] | None, foresee: Foresee,
    ) -> None:  # fmt: skip
        # No unit is free of error, whatever the prior says.
        floor = (
            max(sum(w for w in weights if math.isfinite(w)), 1e-30) / max(len(weights), 1) * 1e-3
        )
        self.run, self.left, self.runs, self.may_go_on, self.foresee = (
            run,
            max_runs,
            0,
            may_go_on,
            foresee,
        )
        self.checks = min(int(max_runs * _FOR_CHECKS), _MOST_CHECKS)
        # Groups are ranges of units in this order: positions of blocks one after the other, then
        # the rest.
        self.order, self.sizes = _arrange(places if places is not None else range(len(weights)))
        most = max(1, int(max_runs * _FOR_PLACES))
        while len(self.sizes) > most:  # neighbours share a run, in pairs
            self.sizes = [sum(self.sizes[at : at + 2]) for at in range(0, len(self.sizes), 2)]
        self.weights = [weights[unit] for unit in self.order]
        self.weights = [w if math.isfinite(w) and w > floor else floor for w in self.weights]
        self.costs = [UnitCost(0.0, len(weights), 0.0)] * len(weights)
        # (negative squared error, first unit, end): the group with the largest error first.
        self.queue: list[tuple[float, int, int]] = []
        self.off: list[float] = []

    def probe(self, all_low: float | None) -> Probing:
        if not self.weights:
            return Probing(costs=(), all_low=0.0, runs=0)
        groups = self._first_groups()
        self._foresee([(0, len(self.weights))] * (all_low is None) + groups)
        everything = self._measure(range(len(self.weights))) if all_low is None else all_low
        if everything == 0.0:
            return Probing(
                costs=tuple(UnitCost(0.0, 1, 0.0) for _ in self.weights),
                all_low=0.0,
                runs=self.runs,
            )
        whole = sum(self.weights)
        # Estimates for units that no run is left for.
        together, square = len(self.weights), everything**2
        self.costs = [
            UnitCost(weight / whole * square, together, square) for weight in self.weights
        ]
        for number, (first, end) in enumerate(groups):
            self._foresee(groups[number:])
            self._try(first, end)
        self._split()
        self._check()
        costs: list[UnitCost] = [self.costs[0]] * len(self.costs)
        for at, unit in enumerate(self.order):
            costs[unit] = self.costs[at]
        return Probing(
            costs=tuple(costs),
            all_low=everything,
            runs=self.runs,
            off=tuple(self.off),
        )

    def _first_groups(self) -> list[tuple[int, int]]:
        groups, at = [], 0
        for size in self.sizes:
            groups.append((at, at + size))
            at += size
        return groups + (
            self._cut(at, len(self.weights), _FIRST_GROUPS) if at < len(self.weights) else []
        )

    def _split(self) -> None:
        """Split the group with the largest error until none matters, or runs run out."""
        while self.queue:
            square, first, end = self.queue[0]
            total = sum(c.square for c in self.costs if math.isfinite(c.square))
            if -square <= _NEGLIGIBLE * total:
                return
            # Which unit breaks an output matters more than the accuracy of the others.
            reserve = self.checks if math.isfinite(square) else 0
            if self.left < 2 + reserve or not self.may_go_on():
                return
            costliest = heapq.nsmallest(_FORESEEN, self.queue)
            self._foresee(
                [part for _, first, end in costliest for part in self._cut(first, end, 2)]
            )
            heapq.heappop(self.queue)
            for part in self._cut(first, end, 2):
                self._try(*part)

    def _check(self) -> None:
        """Measure single units, the middle one of a group, and store the ratios to their estimates:
        half of them from the groups with the largest error, half spread over the others, so that
        the ratios apply to all.
        """
        open_groups = [group for group in self.queue if math.isfinite(group[0])]
        by_share = sorted(
            open_groups, key=lambda group: (group[0] / (group[2] - group[1]), group[1])
        )
        costly = self.checks - self.checks // 2
        chosen, rest = by_share[:costly], by_share[costly:]
        step = max(1.0, len(rest) / max(1, self.checks // 2))
        chosen += [
            rest[int((number + 0.5) * step)] for number in range(min(self.checks // 2, len(rest)))
        ]
        self._foresee([((first + end) // 2, (first + end) // 2 + 1) for _, first, end in chosen])
        for square, first, end in chosen:
            if self.left < 1 or not self.may_go_on():
                return
            unit = (first + end) // 2
            share = math.sqrt(self.costs[unit].square)
            alone = self._measure([unit])
            self.costs[unit] = UnitCost(alone**2, 1, alone**2)
            if share > 0.0 and 0.0 < alone < math.inf:
                self.off.append(alone / share)
            left = max(-square - alone**2, 0.0) if math.isfinite(alone) else -square
            whole = sum(self.weights[first:end]) - self.weights[unit]
            for other in (other for other in range(first, end) if other != unit and left):
                self.costs[other] = UnitCost(
                    self.weights[other] / whole * left, end - first, -square
                )

    def _foresee(self, groups: Sequence[tuple[int, int]]) -> None:
        self.foresee(
            [
                [self.order[place] for place in range(first, end)]
                for first, end in groups[: self.left]
            ]
        )

    def _measure(self, places: Sequence[int]) -> float:
        self.runs, self.left = self.runs + 1, self.left - 1
        return self.run([self.order[place] for place in places])

    def _try(self, first: int, end: int) -> None:
        """Measure a group, divide its error among its units, and queue it for splitting."""
        if self.left < 1 or not self.may_go_on():
            return
        square = self._measure(range(first, end)) ** 2
        whole = sum(self.weights[first:end])
        is_single = end - first == 1
        for unit in range(first, end):
            # In a group that breaks an output it is unknown which unit does: infinite, with
            # `together` above 1.
            share = (
                self.weights[unit] / whole * square
                if math.isfinite(square) or is_single
                else math.inf
            )
            self.costs[unit] = UnitCost(share, end - first, square)
        if not is_single:
            heapq.heappush(self.queue, (-square, first, end))

    def _cut(self, first: int, end: int, parts: int) -> list[tuple[int, int]]:
        """Split a group into at most `parts` of about equal weight, none of them empty."""
        parts = min(parts, end - first)
        cuts, at = [first], first
        whole = sum(self.weights[first:end])
        for part in range(1, parts):
            reached = sum(self.weights[first:at])
            while at < end - (parts - part) and (at == cuts[-1] or reached < whole * part / parts):
                reached += self.weights[at]
                at += 1
            cuts.append(at)
        return list(zip(cuts, [*cuts[1:], end], strict=True))


def _arrange(places: Sequence[int]) -> tuple[list[int], list[int]]:
    """Units ordered by position, and the number at each repeated position; units with a unique
    position come last, in their own order, and are not counted.
    """
    count: dict[int, int] = {}
    for place in places:
        count[place] = count.get(place, 0) + 1
    first = {place: at for at, place in reversed(list(enumerate(places)))}
    alone = [at for at, place in enumerate(places) if count[place] == 1]
    repeated = sorted(
        (at for at, place in enumerate(places) if count[place] > 1),
        key=lambda at: (first[places[at]], at),
    )
    sizes = [len(list(group)) for _, group in groupby(repeated, key=lambda at: places[at])]
    return [*repeated, *alone], sizes
