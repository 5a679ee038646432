"""Data for one model: names, shapes and types are checked against its inputs, and errors say which file is at fault."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from mezzo.converting.results import lab_of
from mezzo.core.frontend import Model
from mezzo.errors import InputError
from mezzo.judging.drawn import draw_data, read_seed
from mezzo.numerics.datasets import Batch, Data, Dataset, open_data


def open_model_data(
    model: Model, data: Data, *, labels: Sequence[str] = (), batch_size: int | None = None, others: bool = False
) -> Dataset:
    """Open data to feed a model with. Inputs with a default may be absent; those of an optional type are then empty.
    Data called "random", or "random:" and a seed, is drawn. `others`: arrays that are no inputs are left out.

    Where the model fixes the first length of its inputs and no `batch_size` is given, data that is longer is split
    into batches of it. Arrays come as they are in the data; running the model rounds them to its types.

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
    opened = open_data(
        data,
        inputs.names,
        labels=labels,
        batch_size=inputs.fixed_length if batch_size is None else batch_size,
        optional=inputs.optional | empty.keys(),
        others=others,
    )

    def start() -> Iterator[Batch]:
        for batch in opened:
            fed = replace(batch, feeds={**empty, **batch.feeds})
            try:
                inputs.check(fed.feeds)
            except InputError as error:
                raise InputError(f"{batch.origin}: {error}") from error
            yield fed

    return Dataset(opened.name if seed is None else drawn.name, start, seed, opened.content)
