"""Data as the steps of one sequence: states start from the data's first step, or from zeros, and
are the model's own outputs from then on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from mezzo.analysis.feedback import describe_feedback
from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.sequences.step_feeds import Feedback, StepFeeds
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import Batch, Dataset

# Steps of random data, unless a number is given.
RANDOM_STEPS = 256


def read_words(feedback: str | Sequence[str]) -> tuple[str, ...]:
    """The words of a keyword: one, or several."""
    return (feedback,) if isinstance(feedback, str) else tuple(feedback)


def check_steps(steps: int | None, feedback: Sequence[str]) -> None:
    """Raises InputError: there are steps without feedback, or fewer than 2."""
    if steps is not None and not feedback:
        raise InputError(
            f"{option('steps')} is {steps} and no output is fed back; give {option('feedback')} too"
        )
    if steps is not None and steps < 2:
        raise InputError(f"{option('steps')} is {steps}; give 2 or more")


def as_sequence(
    model: Model, data: Dataset, feedback: Feedback, steps: int | None = None, *, is_guessed: bool
) -> Dataset:
    """The data set with a single batch: a sequence of its batches, the first `steps` of them.
    `is_guessed`: the user has not named what is fed back, so a note is logged.

    While iterating, raises InputError: a feed does not fit, or the first state is neither in the
    data nor known from the model.
    """
    inputs = lab_of(model).inputs
    slots = {slot.name: slot for slot in inputs.types}
    names = [name for _, name in feedback]

    def initial_of(first: Batch) -> Mapping[str, Any]:
        zeros = {name: _zeros(slots[name], first, slots) for name in names
                 if name not in first.feeds and name not in inputs.optional}  # fmt: skip
        if zeros:
            listed = ", ".join(map(repr, list(zeros)[:2])) + (", ..." if len(zeros) > 2 else "")
            data.notes.add("data", f"the data has no {listed}: zeros at the first step")
        return {**zeros, **{name: first.feeds[name] for name in names if name in first.feeds}}

    def start() -> Iterator[Batch]:
        batches = list(islice(data.filled(), steps))
        if not batches:
            return
        initial = initial_of(batches[0])
        each = []
        for batch in batches:
            feeds = {name: feed for name, feed in batch.feeds.items() if name not in names}
            _check(inputs.check, {**feeds, **initial}, batch.origin)
            each.append(feeds)
        labels = {name: [batch.labels[name] for batch in batches] for name in batches[0].labels}
        yield Batch(
            StepFeeds(feedback, initial, each),
            {name: np.concatenate(values) for name, values in labels.items()},
            f"{len(each):,} steps of {data.name}",
            len(each),
        )

    note = f"each step is fed {describe_feedback(feedback)} from the one before"
    if is_guessed:
        data.notes.add("data", note)
    else:
        data.notes.append(note)
    name = f"steps of {data.name}" if steps is None else f"{steps:,} steps of {data.name}"
    content = (*data.content, *map("=".join, feedback))  # resumed passes are of the same states
    return Dataset(name, start, data.seed, content, data.notes)


def in_single_rows(start_cut: Callable[[int], Iterator[Batch]], data: Dataset) -> Dataset:
    """The same data, a row at a time."""
    return Dataset(data.name, partial(start_cut, 1), data.seed, data.content, data.notes)


def _check(
    check: Callable[[Mapping[str, Any]], None], feeds: Mapping[str, Any], where: str
) -> None:
    try:
        check(feeds)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _zeros(slot: Slot, first: Batch, slots: Mapping[str, Slot]) -> Any:
    """The first state of an input. Lengths with a name are those of other inputs with it; a length
    that no input fixes is the batch's on axis 0, and 0 where a cache grows.
    """
    known = {
        length: size
        for name, feed in first.feeds.items()
        if name in slots and hasattr(feed, "shape")
        for length, size in zip(slots[name].lengths or (), feed.shape, strict=False)
        if isinstance(length, str)
    }
    if slot.lengths is None:
        raise InputError(
            f"{first.origin}: has no input {slot.name!r}, and the model does not say its shape;"
            " give the state of the first step"
        )
    shape = [
        length
        if isinstance(length, int)
        else known.get(length or "", first.samples if not axis else 0)
        for axis, length in enumerate(slot.lengths)
    ]
    return np.zeros(shape, np.bool_)  # which every type takes
