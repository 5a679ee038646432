"""Ranges of tensors by a calibrator, with the cases in which there is nothing to choose; ranges that tensors share."""

from collections.abc import Iterable, Mapping, Sequence

from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary


def choose_range(calibrator: Calibrator, seen: Summary, grid: Grid) -> Range | None:
    """The range that a grid is to cover, zero with it; None where no finite number was seen.

    Never wider than what the grid needs to hold all that was seen.
    """
    if seen.extremes is None:
        return None
    most = seen.extremes.with_zero()
    if most.low == most.high:
        return most
    chosen = calibrator.choose(seen, grid).with_zero()
    held = Range(max(chosen.low, most.low), min(chosen.high, most.high))
    return held if held.low < held.high else most


def align(ranges: Mapping[str, Range], groups: Iterable[Sequence[str]]) -> dict[str, Range]:
    """The ranges of values, of which those in a group get one that holds all of theirs; groups that share a value are
    one. Values without a range are taken as if they were not there.
    """
    aligned, leader = dict(ranges), {name: name for name in ranges}

    def lead(name: str) -> str:
        while leader[name] != name:
            leader[name] = name = leader[leader[name]]
        return name

    for group in groups:
        known = [lead(name) for name in group if name in leader]
        for name in known[1:]:
            leader[lead(name)] = lead(known[0])
    for name, held in ranges.items():
        aligned[lead(name)] = aligned[lead(name)].union(held)
    return {name: aligned[lead(name)] for name in ranges}
