"""Range selection by a calibrator, and union of the ranges of values in one group."""

from collections.abc import Iterable, Mapping, Sequence

from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary


def choose_range(calibrator: Calibrator, seen: Summary, grid: Grid) -> Range | None:
    """The range for a grid to cover, including zero; None if no finite element was observed.

    Never wider than the observed range.
    """
    if seen.extremes is None:
        return None
    most = seen.extremes.with_zero()
    if most.low == most.high:
        return most
    chosen = calibrator.choose(seen, grid).with_zero()
    clipped = Range(max(chosen.low, most.low), min(chosen.high, most.high))
    return clipped if clipped.low < clipped.high else most


def align(ranges: Mapping[str, Range], groups: Iterable[Sequence[str]]) -> dict[str, Range]:
    """Replace the ranges of values in a group by their union; groups with a common value are
    merged. Values without a range are ignored.
    """
    aligned, leader = dict(ranges), {name: name for name in ranges}

    def lead(name: str) -> str:
        while leader[name] != name:
            leader[name] = name = leader[leader[name]]
        return name

    for group in groups:
        leaders = [lead(name) for name in group if name in leader]
        for name in leaders[1:]:
            leader[lead(name)] = lead(leaders[0])
    for name, value_range in ranges.items():
        aligned[lead(name)] = aligned[lead(name)].union(value_range)
    return {name: aligned[lead(name)] for name in ranges}
