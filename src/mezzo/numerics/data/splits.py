"""Data set split: one part to tune on, and a held-out part."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from mezzo.numerics.data.datasets import Batch, Dataset

# One batch or sample in four is held out: enough to detect a plan that overfits the tuning data.
_SHARE = 4


def cut(batch: Batch, first: int, end: int) -> Batch:
    """Samples `first` to `end` of a batch."""

    def part(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: v[first:end] if getattr(v, "ndim", 0) else v for name, v in values.items()}

    where = f"{batch.origin}[{first}:{end}]"
    return replace(
        batch, feeds=part(batch.feeds), labels=part(batch.labels), samples=end - first, origin=where
    )


def split(data: Dataset, may_cut: Callable[[Batch], bool]) -> tuple[Dataset, Dataset | None]:
    """Hold out every fourth batch; of fewer batches the last quarter of samples in each, where
    `may_cut` allows.

    Returns the part to tune on and the held-out part, None if there is too little data.
    """
    few = len(list(islice(data, _SHARE))) < _SHARE
    if not few:
        return _pick(data, "three batches in four of", False), _pick(
            data, "every fourth batch of", True
        )
    if any(batch.samples < _SHARE or not may_cut(batch) for batch in data):
        return data, None
    return _cut_each(data, "the first three quarters of", False), _cut_each(
        data, "the last quarter of", True
    )


def _pick(data: Dataset, words: str, is_held_out: bool) -> Dataset:
    def start() -> Iterator[Batch]:
        for number, batch in enumerate(data):
            if (number % _SHARE == _SHARE - 1) is is_held_out:
                yield batch

    return Dataset(f"{words} {data.name}", start, data.seed, data.content, data.notes)


def _cut_each(data: Dataset, words: str, is_held_out: bool) -> Dataset:
    def start() -> Iterator[Batch]:
        for batch in data:
            middle = batch.samples - batch.samples // _SHARE
            yield cut(batch, middle, batch.samples) if is_held_out else cut(batch, 0, middle)

    return Dataset(f"{words} {data.name}", start, data.seed, data.content, data.notes)
