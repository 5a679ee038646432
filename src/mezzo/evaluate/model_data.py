"""Data sets opened for one model: names, shapes and types are checked against its inputs, and
errors name the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from operator import attrgetter

from mezzo.analysis.feedback import GUESS, find_feedback
from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.options.data_files import DataFiles
from mezzo.evaluate.batch_sizes import MANY, choose_batch_size
from mezzo.evaluate.feedback import RANDOM_STEPS, as_sequence, check_steps, in_single_rows
from mezzo.evaluate.random_data import draw_data, read_seed
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.array_fitting import check_images
from mezzo.numerics.data.datasets import Batch, Data, Dataset, as_files, open_data


def open_model_data(
    model: Model,
    data: Data,
    *,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    others: bool = False,
    fixed_length: int | None = None,
    feedback: Sequence[str] = (),
    steps: int | None = None,
) -> Dataset:
    """Open data for a model. Inputs with a default may be absent; absent inputs of an optional type
    are empty. The data "random", or "random:SEED", is generated. `others`: arrays that are not
    inputs are ignored. `fixed_length`: of batches, if another model fixes it. `feedback`: as
    `find_feedback` reads it; the data is then one sequence, of `steps` steps at most, each of a row
    of files and arrays unless `batch_size` is given.

    Without a `batch_size`, data longer than the model's fixed batch length is split to that length,
    and a file or dict of many samples is split into batches that fit in memory (`batch_sizes`).
    Arrays keep the data's types; running the model rounds them to its own.

    Raises:
        InputError: the data does not exist or has wrong names; while iterating: a wrong type or
            shape.
    """
    data = as_files(data)
    check_steps(steps, feedback)
    inputs, seed = lab_of(model).inputs, read_seed(data)
    if seed is not None:
        if labels:
            raise InputError(
                f"labels {', '.join(map(repr, labels))} cannot be drawn at random; give data that"
                " has them"
            )
        drawn = draw_data(model, seed, (steps or RANDOM_STEPS) if feedback else None)
        data = partial(map, attrgetter("feeds"), drawn)
    empty = dict.fromkeys(inputs.empty)
    fixed = (fixed_length or inputs.fixed_length) if batch_size is None else None
    fixed = None if feedback and fixed == 1 else fixed  # a row is a step anyway
    pairs = find_feedback(model.read(DType.FLOAT16).graph, feedback) if feedback else ()
    has_tokens = isinstance(data, DataFiles) and data.tokenizer is not None
    if has_tokens and feedback:
        raise InputError(
            f"{option('feedback')} makes each row a step, and rows of text are whole sequences;"
            f" leave {option('feedback')} out, or give token ids step by step"
        )
    slots = inputs.slots if has_tokens else inputs.types
    types = {slot.name: slot for slot in slots}
    folder = None if model.path is None else model.path.parent

    opened = open_data(
        data,
        inputs.names,
        labels=labels,
        batch_size=batch_size,
        fixed_length=fixed,
        optional=inputs.optional | empty.keys() | {name for _, name in pairs},
        others=others,
        types=types,
        folder=folder,
    )
    cut = opened.start_cut if batch_size is None and fixed is None and seed is None else None
    if cut is not None and feedback:
        opened, cut = in_single_rows(cut, opened), None

    @cache
    def choose_size() -> int | None:
        """The size of batches that fit in memory; None: the data as it comes."""
        few = None if cut is None else next(cut(MANY), None)
        if few is None:
            return None
        return choose_batch_size(model, replace(few, feeds={**empty, **few.feeds}))

    def start() -> Iterator[Batch]:
        size = choose_size()
        for batch in opened if cut is None or size is None else cut(size):
            fed = replace(batch, feeds={**empty, **batch.feeds})
            try:
                check_images(fed.feeds, types)
                if not feedback:  # else states are missing yet
                    inputs.check(fed.feeds)
            except InputError as error:
                raise InputError(f"{batch.origin}: {error}") from error
            yield fed

    name = opened.name if seed is None else drawn.name
    dataset = Dataset(name, start, seed, opened.content, opened.notes)
    if not feedback:
        return dataset
    return as_sequence(model, dataset, pairs, steps, is_guessed=GUESS in feedback)
