"""Minimum cuts, parts and what is reached: held to brute force, and to scipy, which mezzo itself does without."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from mezzo.ir.columns import Bools, Ints
from mezzo.ir.components import parts, reached
from mezzo.ir.maxflow import SINK, SOURCE, farthest_cut

Edges = tuple[Ints, Ints, Ints]


def network(seed: int, size: int, shape: str, most: int) -> Edges:
    """Edges between vertices of a chain, a tree, a grid or any, most with a price both ways; some twice, some without
    a price, and a few from a vertex to itself, into the source or out of the sink.
    """
    rng = np.random.default_rng(seed)
    inner = np.arange(2, size)
    if shape == "chain":
        tails, heads = inner[:-1], inner[1:]
    elif shape == "tree":
        heads = inner[1:]
        tails = np.array([rng.integers(max(2, head - 4), head) for head in heads], np.int64)
    elif shape == "grid":
        width = max(2, round(size**0.5))
        tails, heads = np.concatenate([inner[:-1], inner[:-width]]), np.concatenate([inner[1:], inner[width:]])
    else:
        tails, heads = rng.integers(0, size, 2 * size), rng.integers(0, size, 2 * size)
    prices = rng.integers(0, 100, len(tails))
    back = np.where(rng.random(len(tails)) < 0.7, prices, 0)
    gains = rng.integers(-most, most + 1, len(inner)) * (rng.random(len(inner)) < 0.6)
    gives, owes = gains > 0, gains < 0
    return (
        np.concatenate([tails, heads, tails[:3], np.full(gives.sum(), SOURCE), inner[owes]]),
        np.concatenate([heads, tails, heads[:3], inner[gives], np.full(owes.sum(), SINK)]),
        np.concatenate([prices, back, prices[:3], gains[gives], -gains[owes]]),
    )


def paid(is_beyond: Bools, edges: Edges) -> int:
    tails, heads, capacities = edges
    return int(capacities[is_beyond[tails] & ~is_beyond[heads]].sum())


def by_scipy(size: int, edges: Edges) -> Bools:
    """The cut of scipy's flow: before is what still reaches the sink."""
    tails, heads, capacities = edges
    matrix = csr_array((capacities.astype(np.int32), (tails, heads)), shape=(size, size))
    matrix.sum_duplicates()
    flow = maximum_flow(matrix, SOURCE, SINK).flow
    residual = csr_array(matrix.astype(np.int64) - flow.astype(np.int64))
    residual.data = np.maximum(residual.data, 0)
    residual.eliminate_zeros()
    is_beyond = np.ones(size, bool)
    is_beyond[breadth_first_order(csr_array(residual.T), SINK, return_predecessors=False)] = False
    return is_beyond


SHAPES = pytest.mark.parametrize("shape", ["chain", "tree", "grid", "any"])


@SHAPES
@pytest.mark.parametrize("most", [5, 60, 300])
def test_cut_is_the_least_and_of_those_the_one_with_most_beyond(shape: str, most: int) -> None:
    for seed in range(12):
        edges = network(seed, 10, shape, most)
        cuts = [np.array([True, False, *sides]) for sides in product([True, False], repeat=8)]
        least = min(paid(cut, edges) for cut in cuts)
        everywhere = np.logical_or.reduce([cut for cut in cuts if paid(cut, edges) == least])
        found = farthest_cut(10, *edges)
        assert paid(found, edges) == least, seed
        assert found.tolist() == everywhere.tolist(), seed


@SHAPES
@pytest.mark.parametrize("most", [5, 60, 300])
@pytest.mark.parametrize("size", [40, 1500])
def test_cut_is_that_of_scipys_flow(shape: str, most: int, size: int) -> None:
    for seed in range(20 if size < 100 else 2):
        edges = network(seed, size, shape, most)
        assert (farthest_cut(size, *edges) == by_scipy(size, edges)).all(), seed


def test_capacities_past_64_bits_when_added_up_leave_the_small_ones_exact() -> None:
    """Flow is sent in numbers without an end: 2^62 twice is more than 64 bits hold, and a unit still decides."""
    huge = 1 << 62
    edges = [(SOURCE, 2, 5), (2, 3, huge), (3, 2, huge), (2, 4, huge), (4, 2, huge), (3, 4, huge), (4, SINK, 6)]
    for more, is_beyond in ((0, False), (1, True), (2, True)):
        columns = zip(*edges, (SOURCE, 3, more), strict=True)
        found = farthest_cut(5, *(np.array(column, np.int64) for column in columns))
        assert found.tolist() == [True, False, is_beyond, is_beyond, is_beyond]


def test_network_without_edges_is_all_beyond() -> None:
    nothing = np.zeros(0, np.int64)
    assert farthest_cut(4, nothing, nothing, nothing).tolist() == [True, False, True, True]


def test_one_of_many_that_share_little_is_cut_off_alone() -> None:
    """Twenty sources in a row hand a little to one sink: no single vertex is settled by its neighbours."""
    row = np.arange(2, 22)
    tails = np.concatenate([np.full(20, SOURCE), row[:-1], row[1:], [21]])
    heads = np.concatenate([row, row[1:], row[:-1], [SINK]])
    for owed in (19, 20, 21):
        capacities = np.concatenate([np.full(20, 1), np.full(38, 50), [owed]])
        assert farthest_cut(22, tails, heads, capacities)[row].tolist() == [owed <= 20] * 20


@pytest.mark.parametrize("part", range(3))
def test_parts_are_those_of_scipy_by_their_smallest_vertex(part: int) -> None:
    for seed in range(100 * part, 100 * (part + 1)):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(1, 60))
        tails, heads = rng.integers(0, size, (2, int(rng.integers(0, 2 * size))))
        links = csr_array((np.ones(len(tails), np.int8), (tails, heads)), shape=(size, size))
        names = connected_components(links, directed=False)[1]
        smallest = np.unique(names, return_index=True)[1][names]
        assert parts(size, tails, heads).tolist() == smallest.tolist(), seed


def test_a_path_is_one_part_in_whatever_order_it_runs() -> None:
    for order in (np.arange(500), np.arange(500)[::-1], np.random.default_rng(3).permutation(500)):
        assert not parts(500, order[:-1], order[1:]).any()


def test_reached_follows_edges_from_tail_to_head_alone() -> None:
    tails, heads = np.array([0, 1, 3, 4, 2]), np.array([1, 2, 2, 3, 0])
    starts = np.array([False, True, False, False, False])
    assert reached(starts, tails, heads).tolist() == [True, True, True, False, False]
    assert reached(np.zeros(5, bool), tails, heads).tolist() == [False] * 5
