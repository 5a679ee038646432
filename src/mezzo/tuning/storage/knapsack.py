"""Multiple-choice knapsack: exactly one option per item, at the least cost within an error budget
or at the least error within a cost budget.

Dynamic programming over Pareto-optimal states, cut by the bounds of the linear relaxation. Source:
Pisinger, "A minimal algorithm for the multiple-choice knapsack problem", 1995.

Costs are exact integers. Errors under a budget are rounded to multiples of 2**-48 of it, so a total
error of n items counts as within the budget if it exceeds it by at most n * 32 * eps of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Items = Sequence[Sequence["Option"]]

_COST, _ERROR = 0, 1  # fields of an option: one total is minimized, the other has a budget
_PARTS = 1 << 48
_EPS = float(np.finfo(np.float64).eps)
_LARGEST = 1e250  # of errors; larger ones count as infinite, so that no sum overflows


class Option(NamedTuple):
    """What an option adds to both totals. An option with an infinite error is never taken."""

    cost: int
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One option per item, by index, and both totals.

    `bound`: a lower bound of the minimized total, equal to it if `is_exact`: that is then proved to
    be the least.
    """

    options: tuple[int, ...]
    cost: int
    error: float
    bound: float
    is_exact: bool


def least_cost(items: Items, max_error: float, most_states: int = 1 << 16) -> Selection | None:
    """Minimize the total cost, then the total error; None if no selection is within the budget.

    `most_states` bounds time and memory, 8 bytes each per item: of more, the most promising are
    kept, and the result is exact only if its bound still proves it.
    """
    return _select(items, _COST, max_error, most_states)


def least_error(items: Items, max_cost: int, most_states: int = 1 << 16) -> Selection | None:
    """Minimize the total error, then the total cost; otherwise like `least_cost`."""
    return _select(items, _ERROR, max_cost, most_states)


def lower_hull(items: Items) -> tuple[Option, ...]:
    """Totals on the lower convex hull of all selections, cheapest first; empty if there is none."""
    tabulated = _tabulate(items, _ERROR, math.inf)
    if tabulated is None:
        return ()
    costs, errors = _Relaxation(tabulated[0]).suffix(0)
    return tuple(map(Option, costs.tolist(), errors.tolist()))


@dataclass(frozen=True, slots=True)
class _Item:
    """Pareto-optimal options of the item `index`: weights, which have a budget, grow, and values,
    which are minimized, fall.
    """

    index: int
    weights: Array
    values: Array
    options: Array


def _select(items: Items, minimized: int, budget: float, most_states: int) -> Selection | None:
    tabulated = _tabulate(items, minimized, budget)
    if tabulated is None:
        return None
    choice, bound = _search(*tabulated, most_states)
    options = [item[place] for item, place in zip(items, choice, strict=True)]
    cost, error = sum(option.cost for option in options), math.fsum(o.error for o in options)
    total = cost if minimized == _COST else error
    bound = min(total, bound)
    if minimized == _COST:
        bound = math.ceil(bound)
    return Selection(
        options=tuple(choice),
        cost=cost,
        error=error,
        bound=bound,
        is_exact=bound == total,
    )


def _tabulate(items: Items, minimized: int, budget: float) -> tuple[list[_Item], int] | None:
    """The items, those whose weights differ most first, then one that adds nothing; and the largest
    total weight. None if no selection is within the budget.
    """
    usable = [
        [
            (option[1 - minimized], option[minimized], place)
            for place, option in enumerate(options)
            if option.error <= _LARGEST and option[1 - minimized] <= budget
        ]
        for options in [*items, [Option(0, 0.0)]]
    ]
    limit = min(budget, sum(max(rows, default=(0,))[0] for rows in usable))
    types = _integers(usable, 0), np.dtype(np.float64)
    if minimized == _COST:
        usable = [
            [(round(w / limit * _PARTS) if limit else 0, v, place) for w, v, place in rows]
            for rows in usable
        ]
        limit, types = _PARTS + len(items), (_integers(usable, 0), _integers(usable, 1))
    if not all(usable) or sum(min(rows)[0] for rows in usable) > limit:
        return None
    tables = []
    for index, rows in enumerate(usable):
        pareto: list[tuple[float, float, int]] = []
        for row in sorted(rows):
            if not pareto or row[1] < pareto[-1][1]:
                pareto.append(row)
        weights, values, places = zip(*pareto, strict=True)
        columns = np.array(weights, types[0]), np.array(values, types[1]), np.array(places)
        tables.append(_Item(index, *columns))
    return sorted(tables, key=lambda item: item.weights[0] - item.weights[-1]), int(limit)


def _integers(usable: Sequence[Sequence[tuple[float, ...]]], column: int) -> np.dtype[Any]:
    """An integer type that holds every total."""
    most = sum(max((row[column] for row in rows), default=0) for rows in usable)
    return np.dtype(np.int64 if most < 1 << 62 else object)


class _Relaxation:
    """The linear relaxation: steps along each item's lower convex hull, steepest first."""

    def __init__(self, items: Sequence[_Item]) -> None:
        hulls = [_hull(item) for item in items]
        slopes = [slope for _, item_slopes in hulls for slope in item_slopes]
        order = np.argsort(slopes, kind="stable")
        rows = [(item, hull) for item, (hull, _) in zip(items, hulls, strict=True)]
        self._weights = np.concatenate([np.diff(item.weights[hull]) for item, hull in rows])[order]
        self._values = np.concatenate([-np.diff(item.values[hull]) for item, hull in rows])[order]
        counts = [len(item_slopes) for _, item_slopes in hulls]
        self._positions = np.repeat(np.arange(len(items)), counts)[order]
        # Sums over the items from each position on.
        self._lightest = np.cumsum([item.weights[:1] for item in reversed(items)], 0)[::-1]
        self._least = np.cumsum([item.values[-1:] for item in reversed(items)], 0)[::-1]

    def suffix(self, first: int) -> tuple[Array, Array]:
        """Weights and values of the greedy selections of the items from `first` on, lightest first.

        The optimum of the relaxation interpolates between them. Terms of all sums are positive:
        differences would lose small errors to the rounding of large ones.
        """
        is_later = self._positions >= first
        weights = np.concatenate([self._lightest[first], self._weights[is_later]])
        values = np.concatenate([self._least[first], self._values[is_later][::-1]])
        return np.cumsum(weights), np.cumsum(values)[::-1]


def _hull(item: _Item) -> tuple[list[int], list[float]]:
    """Rows on the lower convex hull, lightest first, and the slopes between them."""
    points = list(zip(item.weights.tolist(), item.values.tolist(), strict=True))
    rows, slopes = [0], [-math.inf]
    for row, (weight, value) in enumerate(points[1:], 1):
        while True:
            last_weight, last_value = points[rows[-1]]
            slope = (value - last_value) / (weight - last_weight)
            if slope > slopes[-1]:
                break
            del rows[-1], slopes[-1]
        rows.append(row)
        slopes.append(slope)
    return rows, slopes[1:]


def _search(items: Sequence[_Item], limit: int, most_states: int) -> tuple[list[int], float]:
    """The best selection that is found, and a lower bound of those that were dropped."""
    relaxation, rounding = _Relaxation(items), 1 + 4 * (len(items) + 8) * _EPS
    values, weights = np.zeros(1, items[0].values.dtype), np.zeros(1, items[0].weights.dtype)
    least_value, least_dropped, steps = math.inf, math.inf, []
    for first, item in enumerate(items[:-1], 1):
        count = len(values)
        values = (item.values[:, None] + values).ravel()
        weights = (item.weights[:, None] + weights).ravel()
        later_weights, later_values = relaxation.suffix(first)
        fitting = np.searchsorted(later_weights, limit - weights, "right")
        greedy = (values + later_values[fitting - 1]).astype(np.float64)
        greedy[fitting == 0] = math.inf
        least_value = min(least_value, float(greedy.min()))
        # A little more than the weight that is left: rounding makes no bound too high.
        left = (limit - weights).astype(np.float64) * (1 + 8 * _EPS)
        later = np.interp(left, later_weights.astype(np.float64), later_values.astype(np.float64))
        bounds = values.astype(np.float64) + later
        is_useful = (fitting > 0) & (bounds <= least_value * rounding)
        states = _pareto(np.flatnonzero(is_useful), values, weights)
        if len(states) > most_states:
            states = states[np.argpartition(greedy[states], most_states)]
            least_dropped = min(least_dropped, float(bounds[states[most_states:]].min()))
            states = np.sort(states[:most_states])
        steps.append((item, states, count))
        values, weights = values[states], weights[states]
    choice, state = [0] * len(steps), int(np.argmin(values))
    for item, states, count in reversed(steps):
        row, state = divmod(int(states[state]), count)
        choice[item.index] = int(item.options[row])
    return choice, least_dropped / rounding


def _pareto(states: Array, values: Array, weights: Array) -> Array:
    """The Pareto-optimal states, lightest first; of equal ones the first."""
    states = states[np.argsort(weights[states], kind="stable")]
    is_better = values[states[1:]] < np.minimum.accumulate(values[states])[:-1]
    states = states[np.append(True, is_better)]
    is_last = weights[states[1:]] > weights[states[:-1]]
    optimal: Array = states[np.append(is_last, True)]
    return optimal
