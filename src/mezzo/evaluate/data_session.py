"""Data session: what all passes over data of one verb share, that is the data, the files that
resume them, and the time limit.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mezzo.common.errors import MezzoError
from mezzo.common.safe_paths import check_destinations
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.sequences.step_feeds import count_steps
from mezzo.evaluate.model_data import open_model_data
from mezzo.numerics.data.datasets import Batch, Data, Dataset, as_files
from mezzo.numerics.data.splits import cut, split
from mezzo.planner.options import Options


class ResumeFiles(NamedTuple):
    """The files that passes are resumed from; None: that state is not stored."""

    scores: Path | None = None
    ranges: Path | None = None
    calibration: Path | None = None


class TimeLimit(NamedTuple):
    """The time limit of a verb, on the monotonic clock."""

    begin_s: float
    limit_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.begin_s


_NO_FILES, _NO_LIMIT = ResumeFiles(), TimeLimit(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSession:
    """Data that decides, and held-out data that judges if there is any."""

    data: Dataset
    held_out: Dataset | None = None
    files: ResumeFiles = _NO_FILES
    limit: TimeLimit = _NO_LIMIT

    @property
    def judging(self) -> Dataset:
        """The data that judges: held out if possible."""
        return self.held_out or self.data

    def has_time(self) -> bool:
        """Whether the time limit is not reached."""
        return self.limit.limit_s is None or self.limit.elapsed_s < self.limit.limit_s

    def on(self, data: Dataset, held_out: Dataset | None = None) -> "DataSession":
        """The session on other data."""
        return replace(self, data=data, held_out=held_out)

    def without_files(self) -> "DataSession":
        """The session with passes that are neither stored nor resumed."""
        return replace(self, files=_NO_FILES)

    def hold_out(self, model: Model) -> "DataSession":
        """The session with a part of its data held out, if there is enough."""
        return self.on(*split(self.data, lambda batch: can_cut(model, batch)))


def open_session(
    model: Model,
    data: Data,
    *,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    held_out: Data | None = None,
    files: ResumeFiles | None = None,
    limit: TimeLimit = _NO_LIMIT,
    others: bool = False,
    feedback: Sequence[str] = (),
    steps: int | None = None,
) -> DataSession:
    """Open data for a model. Other options and errors are
    those of `open_model_data`.
    """
    opening = partial(
        open_model_data, model, labels=labels, batch_size=batch_size, feedback=feedback, steps=steps
    )
    return DataSession(
        data=opening(data, others=others),
        held_out=None if held_out is None else opening(held_out),
        files=files or _NO_FILES,
        limit=limit,
    )


def naming_data(options: Options, data: Data) -> Options:
    """The options with the data, as the user wrote it, in the plan's settings."""
    files = as_files(data)
    name = str(files) if isinstance(files, DataFiles) else "given batches"
    return options.with_settings(data=name)


def begin(limit_s: float | None) -> TimeLimit:
    """Begin to measure the time of a verb."""
    return TimeLimit(time.monotonic(), limit_s)


def resume_files(
    resume: str | os.PathLike[str] | None, kind: str, *others: str, models: Sequence[Path] = ()
) -> ResumeFiles:
    """The files of `--resume`: the named one has one kind of state, and files next to it have the
    others.

    Raises InputError: one of them cannot be written, or is one of the models.
    """
    if resume is None:
        return _NO_FILES
    neighbours = {other: Path(f"{os.fspath(resume)}.{other}.npz") for other in others}
    check_destinations({"resume": resume, **neighbours}, models)
    return ResumeFiles(**{kind: Path(resume), **neighbours})


def can_cut(model: Model, batch: Batch) -> bool:
    """Whether a model accepts a shorter batch: tried with half the samples."""
    lab = lab_of(model)
    is_sequence = count_steps(batch.feeds) is not None
    if batch.samples < 2 or is_sequence or lab.inputs.has_fixed_length:
        return False
    try:
        lab.native()(cut(batch, 0, batch.samples // 2).feeds)
    except MezzoError:  # a weight or another input fixes the length
        return False
    return True
