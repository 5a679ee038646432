"""Segmentation of a long run into parts that fit in memory, with the fewest bytes crossing between
them.

A segment is loaded once and processes all batches before the next is loaded; values for later
segments wait on the disk. This module does not know what a step computes.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

# Loading one more segment takes about as long as writing and reading this many bytes.
_LOADING_BYTES = 16 << 20
# With more possible cuts, only the cheapest of each stretch are tried at first.
_MOST_PLACES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStep:
    """Inputs and outputs of one step as value numbers, and its weights as weight numbers."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A run: steps in topological order.

    `sizes_bytes`: of values; `weights_bytes`: of weights; `scratch_bytes`: temporary memory of each
    step. `given`: values available from the start; `results`: values needed at the end; `kept`:
    values that cannot leave memory, so no cut may separate their producer from their users.
    """

    steps: Sequence[SegmentStep]
    sizes_bytes: Sequence[int]
    weights_bytes: Sequence[int]
    scratch_bytes: Sequence[int]
    given: Set[int]
    results: Set[int]
    kept: Set[int]


class Segment(NamedTuple):
    """Steps from `start` up to, excluding, `stop`, and their peak memory: weights, values and
    scratch.
    """

    start: int
    stop: int
    most_bytes: int


class Misfit(Exception):
    """Raised if a step, with those inseparable from it, needs more memory than available.
    `needed_bytes`: how much.
    """

    def __init__(self, step: int, needed_bytes: int) -> None:
        super().__init__(step, needed_bytes)
        self.step, self.needed_bytes = step, needed_bytes


def cut_course(course: Course, room_bytes: int) -> tuple[Segment, ...]:
    """Segments that each fit in memory, with the fewest bytes crossing; loading a segment counts as
    some megabytes.

    At worst quadratic in the steps of a segment. Raises Misfit: some steps fit in no segment.
    """
    if not course.steps:
        return ()
    crossing = crossing_bytes(course)
    places = [place for place, size in enumerate(crossing) if size is not None]
    few = _cheapest_places(crossing, places)
    try:
        return _cut_at(course, crossing, few, room_bytes)
    except Misfit:
        if len(few) == len(places):
            raise
    return _cut_at(course, crossing, places, room_bytes)


def crossing_bytes(course: Course) -> list[int | None]:
    """Bytes that cross each cut position, both ends included; None where no cut is allowed."""
    last_use = _last_reads(course)
    change, blockers = [0] * (len(course.steps) + 1), [0] * (len(course.steps) + 1)
    for number, step in enumerate(course.steps):
        for value in step.makes:
            if last_use.get(value, number) > number:
                target, size = (
                    (blockers, 1) if value in course.kept else (change, course.sizes_bytes[value])
                )
                target[number + 1] += size
                target[last_use[value] + 1] -= size
    result: list[int | None] = []
    crossing = blocking = 0
    for size_change, blocking_change in zip(change, blockers, strict=True):
        crossing, blocking = crossing + size_change, blocking + blocking_change
        result.append(None if blocking else crossing)
    return result


def _last_reads(course: Course) -> dict[int, int]:
    return {value: number for number, step in enumerate(course.steps) for value in step.reads}


def _cheapest_places(crossing: Sequence[int | None], places: Sequence[int]) -> list[int]:
    """Some cut positions: first, last, and the cheapest of each stretch between."""
    stretch = -(-len(places) // _MOST_PLACES)
    if stretch == 1:
        return [*places]
    parts = [places[start : start + stretch] for start in range(0, len(places), stretch)]
    return sorted(
        {
            places[0],
            places[-1],
            *(min(part, key=lambda place: crossing[place] or 0) for part in parts),
        }
    )


def _cut_at(
    course: Course, crossing: Sequence[int | None], places: Sequence[int], room_bytes: int
) -> tuple[Segment, ...]:
    """The cheapest path from the first to the last cut position over segments that fit."""
    last_use = _last_reads(course)
    cost: dict[int, int] = {0: 0}
    best_segment: dict[int, Segment] = {}
    ends = set(places)
    for start in places[:-1]:
        if start not in cost:
            continue
        for stop, needed in _growing(course, last_use, start):
            if needed > room_bytes:
                break
            if stop in ends:
                crossed = crossing[stop]
                assert crossed is not None, "a place where a cut may be"
                total = cost[start] + crossed + _LOADING_BYTES
                if stop not in cost or total < cost[stop]:
                    cost[stop], best_segment[stop] = total, Segment(start, stop, needed)
    if len(course.steps) not in best_segment:
        furthest = max(cost)
        raise _misfit(
            course, last_use, furthest, next(place for place in places if place > furthest)
        )
    segments, stop = list[Segment](), len(course.steps)
    while stop:
        segments.append(best_segment[stop])
        stop = best_segment[stop].start
    return tuple(reversed(segments))


def _misfit(course: Course, last: dict[int, int], start: int, stop: int) -> Misfit:
    """The step that needs most memory among those that fit in no segment together."""
    needed = dict(_growing(course, last, start))[stop]
    alone = [next(_growing(course, last, step))[1] for step in range(start, stop)]
    return Misfit(start + alone.index(max(alone)), needed)


def _growing(course: Course, last_use: dict[int, int], start: int) -> Iterator[tuple[int, int]]:
    """Ends of the segments that start at a step, with the peak memory of each, which never falls.

    A segment holds its weights and its inputs from earlier segments throughout, each value it
    produces until its last use, and values for later segments until its end.
    """
    resident = alive = peak = 0
    weights, produced, loaded = set[int](), set[int](), set[int]()
    for number in range(start, len(course.steps)):
        step = course.steps[number]
        resident += sum(course.weights_bytes[weight] for weight in {*step.weights} - weights)
        weights |= {*step.weights}
        outer = {*step.reads} - produced - loaded
        resident += sum(course.sizes_bytes[value] for value in outer)
        loaded |= outer
        produced |= {*step.makes}
        alive += sum(course.sizes_bytes[value] for value in step.makes)
        peak = max(peak, alive + course.scratch_bytes[number])
        yield number + 1, resident + peak
        ending = {
            value
            for value in (*step.reads, *step.makes)
            if value in produced and last_use.get(value, number) == number
        }
        alive -= sum(course.sizes_bytes[value] for value in ending - course.results)
