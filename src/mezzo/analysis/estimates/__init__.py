"""Sizes and tolerances of every value without data: one walk forward, one back, over the graph that is planned.

Forward, each value gets a plausible mean, spread and range, from what inputs are taken to hold, from the weights, and
from each operator's law. Backward, each value gets the error that its readers tolerate, from a share of what the
outputs are worth. A value is found where it may pass the format's range, or where rounding it errs by more than that:
whatever its operators are called.

A law is one member of `mezzo.tables.facts.Transfer`; an operator names its law in its facts. Linear in the graph.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mezzo.analysis.estimates.backward import Backward, Coarse
from mezzo.analysis.estimates.forward import Forward
from mezzo.analysis.estimates.inputs import Assumption
from mezzo.analysis.estimates.laws import (
    activations,
    arithmetic,
    contractions,
    integers,
    movement,
    norms,
    reductions,
    sums,
)
from mezzo.analysis.estimates.laws.law import Laws
from mezzo.analysis.estimates.loops import find_loops
from mezzo.analysis.estimates.moments import UNKNOWN, Moments, largest
from mezzo.analysis.estimates.site import Site
from mezzo.analysis.estimates.sizes import measure
from mezzo.formats.dtypes import HIGH, QUANTIZED, Format
from mezzo.ir.graph import Graph
from mezzo.tables.facts import OpFacts

LAWS: Laws = {
    **arithmetic.LAWS, **contractions.LAWS, **activations.LAWS, **integers.LAWS, **movement.LAWS, **norms.LAWS,
    **reductions.LAWS, **sums.LAWS,
}  # fmt: skip


# An output may be off by this many eps of the format: roundings on the way add up to about as much.
_TOLERATED_EPS = 4.0
# Nor by more than this, unless two eps are more of what is quantized: who asks for so few bits has data that judges.
_MOST_TOLERATED, _FEWEST_EPS = 0.02, 2.0
# Ends of evenly spread numbers of unit size.
_UNIT_END = 3.0**0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What was estimated of a graph in one low format.

    `held` are the estimates by value id. `overflowing` are values that may pass the format's range, with their largest
    magnitude; `coarse` what readers cannot take rounded. `not_followed` are operators without a law, with their number.
    """

    held: Sequence[Moments]
    assumptions: tuple[Assumption, ...]
    overflowing: tuple[tuple[int, float], ...]
    coarse: tuple[Coarse, ...]
    not_followed: tuple[tuple[str, int], ...]


def estimate(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    given: Mapping[str, tuple[float, float]],
    limited: Collection[int] = (),
    masks: Collection[int] = (),
) -> Estimates:
    """Estimate every value of a graph. `given` are ends of inputs by name, in place of what is assumed.

    An input that is divided by much may be of that scale, or of unit scale and made small; one that a little is taken
    off may have that offset, or none: what either would find is found.

    `limited` are constants that will be stored within bounds, by value id: of those past the range on the positive side
    the caller takes it on himself what becomes, so nothing follows from them. `masks` are constants that hide what they
    are added to from all who read it.
    """
    first = _walk(graph, rows, low, given, limited, masks)
    doubtful = {a.name: (-_UNIT_END, _UNIT_END) for a in first.assumptions if a.is_doubtful}
    if not doubtful:
        return first
    return _united(first, _walk(graph, rows, low, {**given, **doubtful}, limited, masks))


def _united(first: Estimates, second: Estimates) -> Estimates:
    """What either of two estimates of a graph finds; sizes are the first one's."""
    sizes = dict(second.overflowing)
    sizes |= {value: max(size, sizes.get(value, 0.0)) for value, size in first.overflowing}
    coarse = {(c.value, c.reader): c for c in (*second.coarse, *first.coarse)}
    return replace(first, overflowing=tuple(sorted(sizes.items())), coarse=tuple(coarse.values()))


def _walk(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    given: Mapping[str, tuple[float, float]],
    limited: Collection[int],
    masks: Collection[int],
) -> Estimates:
    size = len(graph.values)
    fewest = _FEWEST_EPS * low.eps if low.dtype in QUANTIZED else 0.0
    site = Site(
        graph=graph,
        rows=rows,
        held=[UNKNOWN] * size,
        origin=list(range(size)),
        kept=list(range(size)),
        tolerance=min(_TOLERATED_EPS * low.eps, max(_MOST_TOLERATED, fewest)),
        masks=frozenset(masks),
    )
    site.clamped |= {value for value in limited if graph.constants[value].maximum >= low.overflow_from}
    loops = find_loops(site)
    forward = Forward(site=site, laws=LAWS, given=given, loops=loops)
    forward.walk()
    sizes = measure(site, low)
    backward = Backward(site=site, laws=LAWS, low=low, loops=loops, sizes=sizes)
    backward.walk()
    overflowing = [(number, largest(site.held[number])) for number in sizes.overflowing]
    beyond = {number: size for number, size in forward.peaks.items() if size >= low.overflow_from} | forward.blown
    seen = set(sizes.overflowing)
    overflowing += [(n, size) for n, size in beyond.items() if n not in seen and graph.values[n].dtype is HIGH]
    return Estimates(
        held=site.held,
        assumptions=tuple(forward.assumptions[value] for value in sorted(forward.assumptions)),
        overflowing=tuple(sorted(overflowing)),
        coarse=tuple(backward.coarse),
        not_followed=tuple(sorted(forward.strangers.items())),
    )
