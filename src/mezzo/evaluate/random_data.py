"""Data that is drawn at random for one model: what fits it, tried on the model itself before anything is judged on it.

Random inputs prove little. Whoever is given them as data says so: the data set carries its seed.
"""

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mezzo.analysis.estimates import estimate
from mezzo.common.errors import InputError, MezzoError
from mezzo.conversion.results import lab_of
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.numerics.data.random_inputs import LADDER, Sizes, check_size, choose_lengths, draw_batch
from mezzo.planner.planner import rows_of

if TYPE_CHECKING:
    from mezzo.analysis.estimates.inputs import Assumption
    from mezzo.contracts.frontend import Model

WORD = "random"
_SAMPLES = 16  # drawn at least
_MOST_BATCHES = 16
_MOST_ODD = 4  # inputs tried on a model that gives NaN or infinities
_PATIENCE_S = 30.0  # with a model that runs on nothing that is tried


def read_seed(data: object) -> int | None:
    """The seed of data that is to be drawn: of "random" 0, of "random:7" 7; None for data of somebody's own.

    Raises InputError: there is a file or folder of that name, or the seed is no number.
    """
    if not isinstance(data, str | os.PathLike):
        return None
    word, colon, seed = os.fspath(data).partition(":")
    if word != WORD:
        return None
    if Path(os.fspath(data)).exists():
        raise InputError(
            f"data {os.fspath(data)!r} is a file or folder here, and the word for inputs drawn at random; give its "
            "whole path, or rename it"
        )
    if colon and not (seed.isascii() and seed.isdigit()):
        raise InputError(f"data {os.fspath(data)!r} has seed {seed!r}; give a whole number, such as {WORD}:7")
    return int(seed or 0)


def draw_data(model: "Model", seed: int) -> Dataset:
    """Draw inputs that fit a model: the same ones from the same seed.

    Raises InputError: it is too large for that, or runs on none that were tried.
    """
    lab = lab_of(model)
    slots, assumptions, run = lab.inputs.slots, _assume(model), lab.native()
    empty = dict.fromkeys(lab.inputs.empty)
    fault: MezzoError | None = None
    runs: tuple[Sizes, bool] | None = None
    tried: set[str] = set()
    end_s = time.monotonic() + _PATIENCE_S
    for is_timid, sizes in itertools.product((False, True), LADDER):
        shapes = choose_lengths(slots, sizes)
        if (what := f"{is_timid} {shapes}") in tried:
            continue
        if fault is not None and time.monotonic() > end_s:
            break
        tried.add(what)
        try:
            check_size(model.name, slots, shapes)
            feeds = draw_batch(slots, shapes, assumptions, np.random.default_rng([seed, 0]), is_timid=is_timid)
            answers = run({**empty, **feeds})
        except MezzoError as error:
            fault = fault or error
            continue
        if _are_finite(answers):
            runs = (sizes, is_timid)
            break
        runs = runs or (sizes, is_timid)
        if len(tried) > _MOST_ODD:  # it runs; perhaps nothing makes it finite
            break
    if runs is None:
        raise InputError(f"no random inputs fit {model.name}; give data of your own ({fault})") from fault
    shapes = choose_lengths(slots, runs[0])
    lengths = {shape[0] for shape in shapes.values() if shape}
    samples = lengths.pop() if len(lengths) == 1 else 1
    count = min(_MOST_BATCHES, -(-_SAMPLES // max(samples, 1)))
    name = f"{WORD} (seed {seed})"

    def start() -> Iterator[Batch]:
        for number in range(count):
            feeds = draw_batch(slots, shapes, assumptions, np.random.default_rng([seed, number]), is_timid=runs[1])
            yield Batch(feeds, {}, f"{name}, batch {number}", samples)

    return Dataset(name, start, seed=seed)


def _assume(model: "Model") -> Mapping[str, "Assumption"]:
    """What each input is taken to hold where nothing tells."""
    graph = model.read(DType.FLOAT16).graph
    found = estimate(graph, rows_of(graph), FORMATS[DType.FLOAT16], {})
    return {assumption.name: assumption for assumption in found.assumptions}


def _are_finite(answers: Mapping[str, Any]) -> bool:
    def is_finite(answer: Any) -> bool:
        if isinstance(answer, list | tuple):
            return all(map(is_finite, answer))
        array = np.asarray(answer)
        return array.dtype.kind in "OUSb" or bool(np.isfinite(array.astype(np.float64)).all())

    return all(is_finite(answer) for answer in answers.values() if answer is not None)
