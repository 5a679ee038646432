"""Sizes and tolerances of every value without data: one walk forward, one back, over the graph that is planned.

Forward, each value gets a plausible mean, spread and range, from what inputs are taken to hold, from the weights, and
from each operator's law. Backward, each value gets the error that its readers tolerate, from a share of what the
outputs are worth. A value is found where it may pass the format's range, or where rounding it errs by more than that:
whatever its operators are called.

A law is one member of `mezzo.facts.Transfer`; an operator names its law in its facts. Linear in the graph.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from mezzo.dtypes import HIGH, Format
from mezzo.estimates import arithmetic, contractions, curves, integers, movement, norms, reductions, sums
from mezzo.estimates.backward import Backward, Coarse
from mezzo.estimates.forward import Forward
from mezzo.estimates.inputs import Assumption
from mezzo.estimates.laws import Laws
from mezzo.estimates.loops import find_loops
from mezzo.estimates.moments import LOST, UNKNOWN, Moments, largest
from mezzo.estimates.site import Site
from mezzo.facts import OpFacts
from mezzo.graph import Graph

LAWS: Laws = {
    **arithmetic.LAWS, **contractions.LAWS, **curves.LAWS, **integers.LAWS, **movement.LAWS, **norms.LAWS,
    **reductions.LAWS, **sums.LAWS,
}  # fmt: skip


# An output may be off by this many eps of the format: roundings on the way add up to about as much.
_TOLERATED_EPS = 4.0
_MOST_TOLERATED = 0.02


@dataclass(frozen=True, slots=True)
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
) -> Estimates:
    """Estimate every value of a graph. `given` are ends of inputs by name, in place of what is assumed.

    `limited` are constants that will be stored within bounds, by value id: of those past the range on the positive side
    the caller takes it on himself what becomes, so nothing follows from them.
    """
    size = len(graph.values)
    site = Site(
        graph,
        rows,
        [UNKNOWN] * size,
        list(range(size)),
        list(range(size)),
        min(_TOLERATED_EPS * low.eps, _MOST_TOLERATED),
    )
    site.clamped |= {value for value in limited if graph.constants[value].maximum >= low.overflow_from}
    loops = find_loops(site)
    forward = Forward(site, LAWS, given, loops)
    forward.walk()
    backward = Backward(site, LAWS, low, loops)
    backward.walk()
    limit = low.overflow_from
    overflowing = [
        (number, largest(x))
        for number, x in enumerate(site.held)
        if (x.high >= limit or x.low <= -limit)
        and not x.flags & LOST
        and graph.values[number].dtype is HIGH
        and number not in graph.constants
    ]
    overflowing += [(n, size) for n, size in forward.blown.items() if graph.values[n].dtype is HIGH]
    return Estimates(
        site.held,
        tuple(forward.assumptions[value] for value in sorted(forward.assumptions)),
        tuple(sorted(overflowing)),
        tuple(backward.coarse),
        tuple(sorted(forward.strangers.items())),
    )
