"""Held-out data: a quarter, never seen by the other part, nothing lost."""

from dataclasses import replace

import numpy as np

from mezzo.numerics.data.datasets import Dataset, open_data
from mezzo.numerics.data.splits import cut, split


def numbers(data: Dataset) -> list[int]:
    return [int(x) for batch in data for x in batch.feeds["x"].ravel()]


def test_every_fourth_batch_is_held_out() -> None:
    seen, unseen = split(open_data([{"x": np.array([n])} for n in range(10)], ["x"]), lambda batch: False)
    assert unseen is not None
    assert (numbers(seen), numbers(unseen)) == ([0, 1, 2, 4, 5, 6, 8, 9], [3, 7])


def test_of_few_batches_the_last_samples_are_held_out() -> None:
    seen, unseen = split(open_data([{"x": np.arange(8)}, {"x": np.arange(8, 12)}], ["x"]), lambda batch: True)
    assert unseen is not None
    assert (numbers(seen), numbers(unseen)) == ([*range(6), 8, 9, 10], [6, 7, 11])


def test_nothing_is_held_out_of_what_cannot_be_cut() -> None:
    data = open_data([{"x": np.arange(8)}], ["x"])
    assert split(data, lambda batch: False)[1] is None
    assert split(open_data([{"x": np.arange(3)}], ["x"]), lambda batch: True)[1] is None


def test_a_part_says_where_it_comes_from() -> None:
    (batch,) = open_data([{"x": np.arange(8), "scale": np.float32(2), "y": np.arange(8)}], ["x", "scale"], labels=["y"])
    part = cut(batch, 2, 5)
    assert part.origin == f"{batch.origin}[2:5]"
    assert (part.samples, part.feeds["scale"], part.labels["y"].tolist()) == (3, 2.0, [2, 3, 4])


def test_what_has_no_samples_is_whole_in_every_part() -> None:
    (batch,) = open_data([{"x": np.arange(8)}], ["x"])
    odd = replace(batch, feeds={"x": np.arange(8), "flag": 2.0, "point": np.array(3), "words": ["a", "b"]})
    feeds = cut(odd, 1, 2).feeds
    assert (feeds["x"].tolist(), feeds["flag"], int(feeds["point"]), feeds["words"]) == ([1], 2.0, 3, ["a", "b"])
