"""Cuts a run of many steps into segments that fit in memory, where few bytes cross from one to the next.

A segment is loaded once; all batches go through it before the next is loaded, and what later segments read waits on the
disk meanwhile. Nothing here knows what a step computes.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

# To load one more segment takes about as long as to write and read so much.
_LOADING_BYTES = 16 << 20
# In longer runs only the cheapest places of each stretch are tried at first.
_MOST_PLACES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step reads and makes, by the numbers of values, and the weights that it reads, by theirs."""

    reads: tuple[int, ...]
    makes: tuple[int, ...]
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A run: steps in an order in which each comes after what it reads.

    `sizes_bytes` are of values, `weights_bytes` of weights, `scratch_bytes` what each step takes for itself while it
    runs. `given` values are there from the start, `results` are wanted at the end, and `kept` cannot leave memory, so
    that no cut may part those who read one from who makes it.
    """

    steps: Sequence[Step]
    sizes_bytes: Sequence[int]
    weights_bytes: Sequence[int]
    scratch_bytes: Sequence[int]
    given: Set[int]
    results: Set[int]
    kept: Set[int]


class Segment(NamedTuple):
    """Steps from `start` to before `stop`, and what they hold at most: weights, values and scratch."""

    start: int
    stop: int
    most_bytes: int


class Misfit(Exception):
    """A step, with those that cannot be parted from it, takes more than there is. `needed_bytes` is how much."""

    def __init__(self, step: int, needed_bytes: int) -> None:
        super().__init__(step, needed_bytes)
        self.step, self.needed_bytes = step, needed_bytes


def cut_course(course: Course, room_bytes: int) -> tuple[Segment, ...]:
    """Segments that each fit, such that the fewest bytes cross between them; loading one counts as some megabytes.

    Quadratic in the steps of a segment at worst. Raises Misfit: some steps fit in no segment.
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
    """What goes over each place before a step, the first and the last end included; None where no cut may be."""
    last = _last_reads(course)
    change, barred = [0] * (len(course.steps) + 1), [0] * (len(course.steps) + 1)
    for number, step in enumerate(course.steps):
        for value in step.makes:
            if last.get(value, number) > number:
                tally, size = (barred, 1) if value in course.kept else (change, course.sizes_bytes[value])
                tally[number + 1] += size
                tally[last[value] + 1] -= size
    result: list[int | None] = []
    held = stuck = 0
    for gained, lost in zip(change, barred, strict=True):
        held, stuck = held + gained, stuck + lost
        result.append(None if stuck else held)
    return result


def _last_reads(course: Course) -> dict[int, int]:
    return {value: number for number, step in enumerate(course.steps) for value in step.reads}


def _cheapest_places(crossing: Sequence[int | None], places: Sequence[int]) -> list[int]:
    """Some of the places: the first, the last, and the cheapest of each stretch between."""
    stretch = -(-len(places) // _MOST_PLACES)
    if stretch == 1:
        return [*places]
    parts = [places[start : start + stretch] for start in range(0, len(places), stretch)]
    return sorted({places[0], places[-1], *(min(part, key=lambda place: crossing[place] or 0) for part in parts)})


def _cut_at(
    course: Course, crossing: Sequence[int | None], places: Sequence[int], room_bytes: int
) -> tuple[Segment, ...]:
    """The cheapest way from the first place to the last, over segments that fit."""
    last = _last_reads(course)
    cost: dict[int, int] = {0: 0}
    way: dict[int, Segment] = {}
    ends = set(places)
    for start in places[:-1]:
        if start not in cost:
            continue
        for stop, needed in _growing(course, last, start):
            if needed > room_bytes:
                break
            if stop in ends:
                over = crossing[stop]
                assert over is not None, "a place where a cut may be"
                whole = cost[start] + over + _LOADING_BYTES
                if stop not in cost or whole < cost[stop]:
                    cost[stop], way[stop] = whole, Segment(start, stop, needed)
    if len(course.steps) not in way:
        furthest = max(cost)
        raise _misfit(course, last, furthest, next(place for place in places if place > furthest))
    segments, stop = list[Segment](), len(course.steps)
    while stop:
        segments.append(way[stop])
        stop = way[stop].start
    return tuple(reversed(segments))


def _misfit(course: Course, last: dict[int, int], start: int, stop: int) -> Misfit:
    """The step that takes most of those that fit in no segment together."""
    needed = dict(_growing(course, last, start))[stop]
    alone = [next(_growing(course, last, step))[1] for step in range(start, stop)]
    return Misfit(start + alone.index(max(alone)), needed)


def _growing(course: Course, last: dict[int, int], start: int) -> Iterator[tuple[int, int]]:
    """Ends of segments that start at a step, with what each segment holds at most, which never falls.

    A segment holds its weights and what it reads of earlier ones from its begin to its end, what it makes until nobody
    reads it any more, and what later ones read until its end.
    """
    held = alive = peak = 0
    weights, made, read = set[int](), set[int](), set[int]()
    for number in range(start, len(course.steps)):
        step = course.steps[number]
        held += sum(course.weights_bytes[weight] for weight in {*step.weights} - weights)
        weights |= {*step.weights}
        outer = {*step.reads} - made - read
        held += sum(course.sizes_bytes[value] for value in outer)
        read |= outer
        made |= {*step.makes}
        alive += sum(course.sizes_bytes[value] for value in step.makes)
        peak = max(peak, alive + course.scratch_bytes[number])
        yield number + 1, held + peak
        ending = {value for value in (*step.reads, *step.makes) if value in made and last.get(value, number) == number}
        alive -= sum(course.sizes_bytes[value] for value in ending - course.results)
