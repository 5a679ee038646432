"""Static error and range analysis of every value: a forward pass for moments, a backward pass for
tolerances.

The forward pass derives a plausible mean, standard deviation and range of each value from assumed
inputs, from weights and from each operator's transfer law. The backward pass derives the error that
readers of a value tolerate from a share of the size of the outputs. Findings are values that may
exceed the format's range, and values whose rounding error exceeds the tolerance, whatever operators
compute them.

A law is a member of `mezzo.tables.facts.Transfer`; an operator names its law in its facts. Linear
in the graph.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from mezzo.analysis.estimates.backward import Backward, Coarse
from mezzo.analysis.estimates.forward import ForwardResult
from mezzo.analysis.estimates.inputs import Assumption
from mezzo.analysis.estimates.laws import (
    activations,
    arithmetic,
    comparisons,
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
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.analysis.estimates.sizes import measure
from mezzo.formats.dtypes import HIGH, QUANTIZED, Format
from mezzo.ir.graph import Graph
from mezzo.tables.facts import OpFacts

LAWS: Laws = {
    **activations.LAWS, **arithmetic.LAWS, **comparisons.LAWS, **contractions.LAWS, **integers.LAWS,
    **movement.LAWS, **norms.LAWS, **reductions.LAWS, **sums.LAWS,
}  # fmt: skip


# Tolerated relative error of outputs in eps of the format: about a model's total rounding error.
_TOLERATED_EPS = 4.0
# Upper bound on that tolerance; at least two eps for quantized formats, where data decides.
_MOST_TOLERATED, _FEWEST_EPS = 0.02, 2.0
# Half-width of a uniform distribution with standard deviation 1.
_UNIT_END = 3.0**0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Estimates of a graph's values for one low-precision format.

    `moments` are by value id. `overflowing` are values that may exceed the format's
    range, with their largest magnitude; `coarse` are values whose rounding error exceeds what a
    reader tolerates. `not_followed` are operators without a law, with their counts. `site`: the
    graph with the lengths that were found.
    """

    moments: Sequence[Moments]
    assumptions: tuple[Assumption, ...]
    overflowing: tuple[tuple[int, float], ...]
    coarse: tuple[Coarse, ...]
    not_followed: tuple[tuple[str, int], ...]
    site: EstimatedGraph


def estimate(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    low: Format,
    given: Mapping[str, tuple[float, float]],
    limited: Collection[int] = (),
    masks: Collection[int] = (),
) -> Estimates:
    """Estimate every value of a graph. `given` are ranges of inputs by name, in place of
    assumptions.

    A doubtful assumption, such as an input scale inferred from one division or one subtraction, is
    estimated twice, with the inferred and with unit scale; findings of both count.

    `limited` are ids of constants that will be clamped to the format's range; nothing is derived
    from those that exceed the range on the positive side, as the caller has accepted the clamping.
    `masks` are attention-mask constants.
    """
    inferred = _walk(graph, rows, low, given, limited, masks)
    doubtful = {a.name: (-_UNIT_END, _UNIT_END) for a in inferred.assumptions if a.is_doubtful}
    if not doubtful:
        return inferred
    return _united(inferred, _walk(graph, rows, low, {**given, **doubtful}, limited, masks))


def _united(first: Estimates, second: Estimates) -> Estimates:
    """The findings of both estimates; sizes are those of the first."""
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
    site = EstimatedGraph(
        graph=graph,
        rows=rows,
        estimates=[UNKNOWN] * size,
        origin=list(range(size)),
        kept=list(range(size)),
        tolerance=min(_TOLERATED_EPS * low.eps, max(_MOST_TOLERATED, fewest)),
        masks=frozenset(masks),
    )
    site.clamped |= {
        value for value in limited if graph.constants[value].maximum >= low.overflow_from
    }
    loops = find_loops(site)
    forward = ForwardResult(site=site, laws=LAWS, given=given, loops=loops)
    forward.walk()
    sizes = measure(site, low)
    backward = Backward(site=site, laws=LAWS, low=low, loops=loops, sizes=sizes)
    backward.walk()
    overflowing = [(number, largest(site.estimates[number])) for number in sizes.overflowing]
    beyond = {
        number: size for number, size in forward.peaks.items() if size >= low.overflow_from
    } | forward.blown
    reported = set(sizes.overflowing)
    overflowing += [
        (n, size)
        for n, size in beyond.items()
        if n not in reported and graph.values[n].dtype is HIGH
    ]
    return Estimates(
        moments=site.estimates,
        assumptions=tuple(forward.assumptions[value] for value in sorted(forward.assumptions)),
        overflowing=tuple(sorted(overflowing)),
        coarse=tuple(backward.coarse),
        not_followed=tuple(sorted(forward.strangers.items())),
        site=site,
    )
