"""Random input data for one model: drawn to fit its inputs, and tried on the model before anything
is judged on it.

Random inputs prove little, so the data set carries its seed for reports to mention.
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
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.options.data_files import DataFiles
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.numerics.data.random_inputs import (
    LADDER,
    AxisLengths,
    check_size,
    choose_lengths,
    draw_batch,
)
from mezzo.planner.planner import rows_of

if TYPE_CHECKING:
    from mezzo.analysis.estimates.inputs import Assumption
    from mezzo.contracts.frontend import Model

WORD = "random"
_SAMPLES = 16  # minimum number of samples drawn
_MOST_BATCHES = 16
_MOST_ODD = 4  # attempts on a model that outputs NaN or infinities
_PATIENCE_S = 30.0  # time limit for a model that fails on every attempt


def read_seed(data: object) -> int | None:
    """The seed of random data: 0 for "random", 7 for "random:7"; None for any other data.

    Raises InputError: a file or folder of that name exists, or the seed is not a whole number.
    """
    if isinstance(data, DataFiles):
        data = _single(data)
    if not isinstance(data, str | os.PathLike):
        return None
    word, colon, seed = os.fspath(data).partition(":")
    if word != WORD:
        return None
    if Path(os.fspath(data)).exists():
        raise InputError(
            f"data {os.fspath(data)!r} is a file or folder here, and the word for inputs drawn at"
            " random; give its whole path, or rename it"
        )
    if colon and not (seed.isascii() and seed.isdigit()):
        raise InputError(
            f"data {os.fspath(data)!r} has seed {seed!r}; give a whole number, such as {WORD}:7"
        )
    return int(seed or 0)


def _single(files: DataFiles) -> str | None:
    """The only source of data. Raises InputError: random data has company."""
    words = [source for source in files.sources if source.partition(":")[0] == WORD]
    if words and files.single is None:
        raise InputError(
            f"data {words[0]!r} is drawn to fit the model, without other data and preprocessing;"
            " name it alone"
        )
    return files.single


def draw_data(model: "Model", seed: int, batches: int | None = None) -> Dataset:
    """Draw inputs that fit a model: the same seed gives the same inputs. `batches`: how many, by
    default a few.

    Raises InputError: the inputs would be too large, or the model fails on all that were tried.
    """
    lab = lab_of(model)
    slots, assumptions, run = lab.inputs.slots, _assume(model), lab.native()
    empty = dict.fromkeys(lab.inputs.empty)
    fault: MezzoError | None = None
    usable: tuple[AxisLengths, bool] | None = None
    tried: set[str] = set()
    end_s = time.monotonic() + _PATIENCE_S
    for is_timid, sizes in itertools.product((False, True), LADDER):
        shapes = choose_lengths(slots, sizes)
        if (attempt := f"{is_timid} {shapes}") in tried:
            continue
        if fault is not None and time.monotonic() > end_s:
            break
        tried.add(attempt)
        try:
            check_size(model.name, slots, shapes)
            feeds = draw_batch(
                slots, shapes, assumptions, np.random.default_rng([seed, 0]), is_timid=is_timid
            )
            answers = run({**empty, **feeds})
        except MezzoError as error:
            fault = fault or error
            continue
        if _are_finite(answers):
            usable = (sizes, is_timid)
            break
        usable = usable or (sizes, is_timid)
        if len(tried) > _MOST_ODD:  # it runs; perhaps no input makes its outputs finite
            break
    if usable is None:
        raise InputError(
            f"no random inputs fit {model.name}; give data of your own ({fault})"
        ) from fault
    shapes = choose_lengths(slots, usable[0])
    lengths = {shape[0] for shape in shapes.values() if shape}
    samples = lengths.pop() if len(lengths) == 1 else 1
    count = batches or min(_MOST_BATCHES, -(-_SAMPLES // max(samples, 1)))
    name = f"{WORD} (seed {seed})"

    def start() -> Iterator[Batch]:
        for number in range(count):
            feeds = draw_batch(
                slots,
                shapes,
                assumptions,
                np.random.default_rng([seed, number]),
                is_timid=usable[1],
            )
            yield Batch(feeds, {}, f"{name}, batch {number}", samples)

    return Dataset(name, start, seed=seed)


def _assume(model: "Model") -> Mapping[str, "Assumption"]:
    """The values that each input is assumed to hold, from the graph alone."""
    graph = model.read(DType.FLOAT16).graph
    estimates = estimate(graph, rows_of(graph), FORMATS[DType.FLOAT16], {})
    return {assumption.name: assumption for assumption in estimates.assumptions}


def _are_finite(answers: Mapping[str, Any]) -> bool:
    """Whether all numeric outputs, those in sequences included, are finite."""

    def is_finite(answer: Any) -> bool:
        if isinstance(answer, list | tuple):
            return all(map(is_finite, answer))
        array = np.asarray(answer)
        return array.dtype.kind in "OUSb" or bool(np.isfinite(array.astype(np.float64)).all())

    return all(is_finite(answer) for answer in answers.values() if answer is not None)
