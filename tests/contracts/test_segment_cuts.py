"""Where runs are cut so that each segment fits: the fewest bytes cross, and nothing that cannot leave memory."""

import itertools
import random
from dataclasses import replace

import pytest
from sweeps import swept

from mezzo.contracts.segments import Course, Misfit, Segment, SegmentStep, crossing_bytes, cut_course

# A step a line: what it reads, what it makes, the weights it takes, each with its size in MB, and `+4` for scratch. `!`
# after a value: it cannot leave memory. `x` is given, `y` the result.
CHAIN = """
x -> a:2 w1:10
a -> b:8 w2:10
b -> c:2 w3:10
c -> y:1 w4:10
"""
SKIP = """
x -> a:6 w1:10
a -> b:1 w2:10
b -> c:1 w3:10
c -> d:1 w4:10
a d -> y:1 w5:10
"""
STUCK = """
x -> s!:1 w1:10
s -> b:8 w2:10
b s -> c:8 w3:10
c -> y:1 w4:10
"""
SHARED = """
x -> a:1 w:20
a -> b:1 w:20
b -> c:1 v:20
c -> y:1 w:20
"""
UNUSED = """
x -> a:1 lost:30 w1:10
a -> y:1 w2:10
"""
SCRATCH = """
x -> a:1 w1:1
a -> b:1 w2:1 +20
b -> y:1 w3:1
"""
MB = 1 << 20


def course_of(text: str) -> Course:
    values, weights, sizes, of_weights = {"x": 0}, dict[str, int](), [1 * MB], list[int]()
    steps, scratch, kept = [], [], set[int]()
    for line in filter(None, text.split("\n")):
        reads, rest = (part.split() for part in line.split("->"))
        makes, takes, own = list[int](), list[int](), 0
        for word in rest:
            name, _, size = word.partition(":")
            if word.startswith("+"):
                own = int(word[1:]) * MB
            elif name[0] in "wv":
                if name not in weights:
                    weights[name] = len(weights)
                    of_weights.append(int(size) * MB)
                takes.append(weights[name])
            else:
                number = values[name.rstrip("!")] = len(values)
                sizes.append(int(size) * MB)
                makes.append(number)
                kept |= {number} if name.endswith("!") else set()
        steps.append(
            SegmentStep(reads=tuple(values[name] for name in reads), makes=tuple(makes), weights=tuple(takes)),
        )
        scratch.append(own)
    return Course(
        steps=steps,
        sizes_bytes=sizes,
        weights_bytes=of_weights,
        scratch_bytes=scratch,
        given=frozenset({0}),
        results=frozenset({values["y"]}),
        kept=kept,
    )


def spell(segments: tuple[Segment, ...]) -> str:
    return " | ".join(f"{one.start}-{one.stop - 1}: {one.most_bytes // MB}" for one in segments)


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        (CHAIN, 99, "0-3: 51"),  # weights, x, and b beside a
        (CHAIN, 50, "0-0: 13 | 1-3: 42"),  # a is as small as c, and the later cut leaves no more
        (CHAIN, 41, "0-2: 41 | 3-3: 13"),
        (CHAIN, 32, "0-1: 31 | 2-3: 31"),  # over b: one more segment would cost more
        (SKIP, 59, "0-4: 59"),
        (SKIP, 50, "0-0: 17 | 1-4: 48"),  # a alone crosses once, later with b or c
        (STUCK, 48, "0-2: 48 | 3-3: 19"),  # not behind s, though less crosses there
        (SHARED, 44, "0-3: 43"),  # w counts once
        (SHARED, 30, "0-1: 23 | 2-2: 22 | 3-3: 22"),
        (UNUSED, 50, "0-0: 42 | 1-1: 12"),  # what nobody reads is there as it is made, and never waits
        (SCRATCH, 23, "0-0: 3 | 1-1: 23 | 2-2: 3"),
    ],
)
def test_cuts_go_where_little_crosses(text: str, room: int, expected: str) -> None:
    assert spell(cut_course(course_of(text), room * MB)) == expected


@pytest.mark.parametrize(
    ("text", "room", "step", "needed"), [(STUCK, 47, 2, 48), (CHAIN, 19, 1, 20), (SCRATCH, 22, 1, 23)]
)
def test_what_fits_in_no_segment_is_told(text: str, room: int, step: int, needed: int) -> None:
    with pytest.raises(Misfit) as told:
        cut_course(course_of(text), room * MB)
    assert (told.value.step, told.value.needed_bytes // MB) == (step, needed)


def test_a_run_without_steps_has_no_segments() -> None:
    nothing = Course(
        steps=(), sizes_bytes=(), weights_bytes=(), scratch_bytes=(), given=frozenset(), results=frozenset(),
        kept=frozenset(),
    )  # fmt: skip
    assert cut_course(nothing, 0) == ()


def random_course(rng: random.Random, length: int) -> Course:
    steps = []
    for number in range(length):
        reads = {rng.randrange(max(0, number - 6), number + 1) for _ in range(rng.randint(1, 3))}
        weights = {rng.randrange(9) for _ in range(rng.randint(0, 2))}
        steps.append(SegmentStep(reads=tuple(reads), makes=(number + 1,), weights=tuple(weights)))
    return Course(
        steps=steps,
        sizes_bytes=[rng.randint(0, 40) * MB for _ in range(length + 1)],
        weights_bytes=[rng.randint(0, 60) * MB for _ in range(9)],
        scratch_bytes=[rng.choice((0, 0, 9)) * MB for _ in range(length)],
        given=frozenset({0}),
        results=frozenset({length}),
        kept=frozenset(number for number in range(1, length) if rng.random() < 0.1),
    )


def held_by(course: Course, start: int, stop: int) -> int:
    """What a segment holds at most, counted anew for each step."""
    inside = course.steps[start:stop]
    made = {value for step in inside for value in step.makes}
    held = sum(course.weights_bytes[w] for w in {w for step in inside for w in step.weights})
    held += sum(course.sizes_bytes[v] for v in {v for step in inside for v in step.reads} - made)
    peak = 0
    for at in range(start, stop):
        alive = {
            value
            for step in course.steps[start : at + 1]
            for value in step.makes
            if value in course.results
            or value in course.steps[at].makes
            or any(value in later.reads for later in course.steps[at:])
        }
        peak = max(peak, sum(course.sizes_bytes[v] for v in alive) + course.scratch_bytes[at])
    return held + peak


@pytest.mark.parametrize("seed", range(swept(60)))
def test_segments_fit_and_no_other_cut_is_cheaper(seed: int) -> None:
    """Against all ways of cutting a short run."""
    rng = random.Random(seed)
    course, room = random_course(rng, 9), rng.randint(60, 260) * MB
    crossing = crossing_bytes(course)
    places = [place for place in range(1, 9) if crossing[place] is not None]
    costs = []
    for count in range(len(places) + 1):
        for chosen in itertools.combinations(places, count):
            ends = (0, *chosen, 9)
            if all(held_by(course, start, stop) <= room for start, stop in itertools.pairwise(ends)):
                costs.append(sum((crossing[place] or 0) + 16 * MB for place in chosen))
    try:
        found = cut_course(course, room)
    except Misfit:
        assert not costs, f"seed {seed}"
        return
    assert [one.most_bytes for one in found] == [held_by(course, one.start, one.stop) for one in found], f"seed {seed}"
    assert max(one.most_bytes for one in found) <= room, f"seed {seed}"
    assert sum((crossing[one.start] or 0) + 16 * MB for one in found[1:]) == min(costs), f"seed {seed}"


def test_long_runs_are_cut_as_well() -> None:
    """Where only some places are tried, and where those do not do."""
    course = replace(random_course(random.Random(1), 2000), kept=frozenset())
    tight = max(held_by(course, start, start + 1) for start in range(2000))
    for room in (tight * 4, tight * 2):
        found = cut_course(course, room)
        assert max(one.most_bytes for one in found) <= room
        assert [one.start for one in found] == [0, *(one.stop for one in found[:-1])]
        assert found[-1].stop == 2000
