"""Inputs for timing: one batch per model with a given number of samples, from data or random."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model, lab_of
from mezzo.evaluate.model_data import open_model_data
from mezzo.ir.input_roles import Length, Slot
from mezzo.numerics.data.datasets import Data
from mezzo.numerics.measures import DataSource

Feeds = Mapping[str, Any]


def feed_all(
    models: Sequence[Model], data: Data, batch_size: int | None
) -> tuple[Sequence[Feeds], DataSource, Sequence[str]]:
    """The feeds of each model by its own names, shared with the first model's where they fit; the
    data source; and notes for the reader.

    Raises InputError: a model fixes another batch size, or the data does not fit one.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"{option('batch_size')} is {batch_size}; give 1 or more")
    size = 1 if batch_size is None else batch_size
    first, source = _feed(models[0], data, size)
    fed, notes = [first], []
    for model in models[1:]:
        shared = _shared(model, first)
        if shared is None:
            try:
                own, _ = _feed(model, data, size)
            except InputError as error:
                raise InputError(f"{model.name}: {error}") from error
            fed.append(own)
            if source.seed is not None:
                notes.append(f"{model.name} has inputs of its own, drawn for it")
        else:
            fed.append(shared)
    for model, feeds in zip(models, fed, strict=True):
        _check(model, feeds, batch_size)
    samples = (
        size if any(batch_axis(lab_of(model).inputs.slots) for model in models) else source.samples
    )
    return fed, DataSource(source.name, 1, samples, source.seed), notes


def _shared(model: Model, feeds: Feeds) -> Feeds | None:
    """The part of another model's feeds that this one takes; None if it is not enough."""
    inputs = lab_of(model).inputs
    common = {name: feed for name, feed in feeds.items() if name in inputs.names}
    if any(name not in common and name not in inputs.optional for name in inputs.names):
        return None
    try:
        inputs.check(common)
    except InputError:
        return None
    return common


def _feed(model: Model, data: Data, size: int) -> tuple[Feeds, DataSource]:
    """The first samples of the data. It may hold more arrays than the model takes: labels, or
    inputs of other models.
    """
    dataset = open_model_data(model, data, others=True)
    batch = next((batch for batch in dataset if batch.samples), None)
    if batch is None:
        raise InputError(f"{dataset.name}: holds no sample; give at least one")
    axis = batch_axis(lab_of(model).inputs.slots)
    feeds = {
        name: cut_rows(feed, size) if name in axis else feed for name, feed in batch.feeds.items()
    }
    return feeds, dataset.source(1, batch.samples)


def batch_axis(slots: Sequence[Slot]) -> frozenset[str]:
    """Inputs whose first axis is the open batch axis: the most frequent symbolic name of first axes
    that is not the name of an inner axis, or an unnamed length.
    """
    firsts: list[tuple[str, Length]] = [
        (slot.name, slot.lengths[0]) for slot in slots if slot.lengths
    ]
    within = {length for slot in slots for length in (slot.lengths or ())[1:]}
    words = [length for _, length in firsts if isinstance(length, str) and length not in within]
    word = max(words, key=words.count) if words else None
    return frozenset(
        name for name, length in firsts if length is None or (length == word and word is not None)
    )


def cut_rows(feed: Any, size: int) -> Any:
    """The first `size` rows of an array, repeated from the beginning where it has fewer."""
    if not isinstance(feed, np.ndarray) or not feed.ndim or not len(feed):
        return feed
    return feed[np.arange(size) % len(feed)]


def _check(model: Model, feeds: Feeds, batch_size: int | None) -> None:
    """Raises InputError: the feeds do not fit, or the model fixes another batch size."""
    inputs = lab_of(model).inputs
    if batch_size is not None and inputs.fixed_length not in (None, batch_size):
        raise InputError(
            f"{model.name}: runs {inputs.fixed_length} samples at a time and no other number; leave"
            f" out {option('batch_size')}, or export it with an open first axis"
        )
    try:
        inputs.check({name: feed for name, feed in feeds.items() if feed is not None})
    except InputError as error:
        raise InputError(f"{model.name}: {error}") from error
