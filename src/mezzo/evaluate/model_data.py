"""Data for one model: names, shapes and types are checked against its inputs, and errors say which file is at fault."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter

from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Model
from mezzo.conversion.results import lab_of
from mezzo.evaluate.batch_sizes import MANY, choose_batch_size
from mezzo.evaluate.random_data import draw_data, read_seed
from mezzo.numerics.data.datasets import Batch, Data, Dataset, open_data


def open_model_data(
    model: Model, data: Data, *, labels: Sequence[str] = (), batch_size: int | None = None, others: bool = False
) -> Dataset:
    """Open data to feed a model with. Inputs with a default may be absent; those of an optional type are then empty.
    Data called "random", or "random:" and a seed, is drawn. `others`: arrays that are no inputs are left out.

    Where no `batch_size` is given, data that is longer than the model's fixed length is split into batches of
    that, and a file or dict of many samples into batches that fit in memory (`batch_sizes`). Arrays come as they are in
    the data; running the model rounds them to its types.

    Raises:
        InputError: there is no such data or its names are wrong; while iterating: a type or shape is.
    """
    inputs, seed = lab_of(model).inputs, read_seed(data)
    if seed is not None:
        if labels:
            raise InputError(
                f"labels {', '.join(map(repr, labels))} cannot be drawn at random; give data that has them"
            )
        drawn = draw_data(model, seed)
        data = partial(map, attrgetter("feeds"), drawn)
    empty = dict.fromkeys(inputs.empty)
    asked = inputs.fixed_length if batch_size is None else batch_size

    def reopen(at_most: int | None = None) -> Dataset:
        optional = inputs.optional | empty.keys()
        return open_data(
            data, inputs.names, labels=labels, batch_size=asked, at_most=at_most, optional=optional, others=others
        )

    opened = reopen()
    is_peeked = asked is None and seed is None and isinstance(data, str | os.PathLike | Mapping)

    @cache
    def fitting() -> Dataset:
        """The data, in batches that fit in memory."""
        few = next(iter(reopen(MANY))) if is_peeked else None
        size = None if few is None else choose_batch_size(model, replace(few, feeds={**empty, **few.feeds}))
        return opened if size is None else reopen(size)

    def start() -> Iterator[Batch]:
        for batch in fitting():
            fed = replace(batch, feeds={**empty, **batch.feeds})
            try:
                inputs.check(fed.feeds)
            except InputError as error:
                raise InputError(f"{batch.origin}: {error}") from error
            yield fed

    return Dataset(opened.name if seed is None else drawn.name, start, seed, opened.content)
