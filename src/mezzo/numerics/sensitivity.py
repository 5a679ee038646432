"""What each unit costs in output error when it alone runs low, found by running groups of units low.

Errors of separate units are nearly independent, so squares of errors add: what a group costs is shared out among its
units, and groups that cost much are split until the units that matter have runs of their own. So the number of runs
follows the number of units that matter, not the size of the model.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Runs a set of units low, all else high, and gives the largest relative L2 error of the outputs; infinite where an
# output is NaN or infinite and the reference is not.
Run = Callable[[Sequence[int]], float]

_FIRST_GROUPS = 8
# Groups below this share of the whole squared error are not worth another run.
_NEGLIGIBLE = 0.01


@dataclass(frozen=True, slots=True)
class UnitCost:
    """Squared output error of one unit; infinite where the unit alone breaks an output. `is_measured` by its own run"""

    square: float
    is_measured: bool


@dataclass(frozen=True, slots=True)
class Probing:
    """What was found: a cost per unit, the error with all units low, and how many runs it took."""

    costs: tuple[UnitCost, ...]
    all_low: float
    runs: int
    is_complete: bool  # no group was left unsplit for want of runs


def probe_units(
    weights: Sequence[float],
    run: Run,
    max_runs: int,
    all_low: float | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Probing:
    """Find what each unit costs, in at most `max_runs` runs. Neighbours in the order of units are grouped.

    `weights` are guesses of each unit's squared error, from which a group's error is shared out; only their ratios
    count. `all_low` is the error of all units low, if known: it saves a run. `may_go_on` is asked before each run.
    """
    prober = _Prober(weights, run, max_runs, may_go_on)
    return prober.probe(all_low)


class _Prober:
    def __init__(self, weights: Sequence[float], run: Run, max_runs: int, may_go_on: Callable[[], bool]) -> None:
        # No unit is free of error, whatever the guess says.
        floor = max(sum(w for w in weights if math.isfinite(w)), 1e-30) / max(len(weights), 1) * 1e-3
        self.weights = [w if math.isfinite(w) and w > floor else floor for w in weights]
        self.run, self.left, self.runs, self.may_go_on = run, max_runs, 0, may_go_on
        self.costs = [UnitCost(0.0, False)] * len(weights)
        # (negative squared error, first unit, end): the most costly group first.
        self.queue: list[tuple[float, int, int]] = []

    def probe(self, all_low: float | None) -> Probing:
        if not self.weights:
            return Probing((), 0.0, 0, True)
        everything = self._measure(range(len(self.weights))) if all_low is None else all_low
        if everything == 0.0:
            return Probing(tuple(UnitCost(0.0, True) for _ in self.weights), 0.0, self.runs, True)
        whole = sum(self.weights)
        # What stands for units that no run is left for.
        self.costs = [UnitCost(weight / whole * everything**2, False) for weight in self.weights]
        for first, end in self._cut(0, len(self.weights), _FIRST_GROUPS):
            self._try(first, end)
        is_complete = True
        while self.queue:
            square, first, end = heapq.heappop(self.queue)
            total = sum(c.square for c in self.costs if math.isfinite(c.square))
            if -square <= _NEGLIGIBLE * total:
                break
            if self.left < 2 or not self.may_go_on():
                is_complete = False
                break
            for part in self._cut(first, end, 2):
                self._try(*part)
        return Probing(tuple(self.costs), everything, self.runs, is_complete)

    def _measure(self, units: Sequence[int]) -> float:
        self.runs, self.left = self.runs + 1, self.left - 1
        return self.run(units)

    def _try(self, first: int, end: int) -> None:
        """Measure a group, share its error out, and note it for splitting."""
        if self.left < 1 or not self.may_go_on():
            return
        square = self._measure(range(first, end)) ** 2
        whole = sum(self.weights[first:end])
        is_single = end - first == 1
        for unit in range(first, end):
            # Of a group that breaks an output nobody knows yet which unit does: infinite only where it is alone.
            share = self.weights[unit] / whole * square if math.isfinite(square) or is_single else math.inf
            self.costs[unit] = UnitCost(share, is_single)
        if not is_single:
            heapq.heappush(self.queue, (-square, first, end))

    def _cut(self, first: int, end: int, parts: int) -> list[tuple[int, int]]:
        """Cut a group into at most `parts` of about equal weight, none of them empty."""
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
