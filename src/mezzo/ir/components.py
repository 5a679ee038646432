"""Connected components and reachability in graphs of numbered vertices, with edges as arrays."""

import numpy as np

from mezzo.ir.columns import Bools, Ints


def parts(size: int, tails: Ints, heads: Ints) -> Ints:
    """The smallest vertex of each vertex's connected component, ignoring edge directions.

    In rounds: each component takes the smallest label of its neighbours, so that at least every
    other label of a path is merged in a round.
    """
    name = np.arange(size)
    while len(tails):
        before = name.copy()
        smallest = np.minimum(name[tails], name[heads])
        np.minimum.at(name, before[tails], smallest)
        np.minimum.at(name, before[heads], smallest)
        while not np.array_equal(shorter := name[name], name):
            name = shorter
        apart = name[tails] != name[heads]
        tails, heads = name[tails[apart]], name[heads[apart]]
    return name


def reached(starts: Bools, tails: Ints, heads: Ints) -> Bools:
    """Mask of the vertices reachable from `starts`, inclusive, along edges tail to head."""
    order = np.argsort(tails, kind="stable")
    following: list[int] = heads[order].tolist()
    bounds: list[int] = np.searchsorted(tails[order], np.arange(len(starts) + 1)).tolist()
    is_reached: list[bool] = starts.tolist()
    unseen: list[int] = np.flatnonzero(starts).tolist()
    while unseen:
        vertex = unseen.pop()
        for other in following[bounds[vertex] : bounds[vertex + 1]]:
            if not is_reached[other]:
                is_reached[other] = True
                unseen.append(other)
    return np.array(is_reached, bool)
