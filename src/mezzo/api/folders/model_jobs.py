"""Conversion of one model of a folder, as a job that another process can run."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mezzo.api.convert import convert_opened
from mezzo.api.folders.deciding import in_file
from mezzo.api.folders.records import FailedFile
from mezzo.api.tune import tune
from mezzo.common.errors import ContractError, InputError, MezzoError, ModelError, spell_raised
from mezzo.common.machine import find_machine
from mezzo.contracts.frontend import Model, Port, Progress
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import Converted, open_source, store_of
from mezzo.conversion.summaries import summarise_result
from mezzo.numerics.measures import Ruling
from mezzo.report.records.account import describe_conversion, describe_tuning, with_graph
from mezzo.report.records.documents import Document
from mezzo.report.records.headline import Headline

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Data

_LFS = b"version https://git-lfs"
_LONGEST_FAULT = 300


class Search(NamedTuple):
    """A search within a budget in place of a conversion: options of `mezzo.tune`."""

    max_error: float | None = None
    max_bytes: int | str | None = None
    held_out: "Data | None" = None
    time_limit_s: float | None = None
    resume: str | os.PathLike[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """A model of a folder to convert: its name there, its path, the name of its result and the path
    where it is staged.

    `title` and `result_title` are the paths that reports show. `draws`: the account is needed with
    the graph too.
    """

    name: str
    source: Path
    result: str
    staged: Path
    title: str
    result_title: str
    request: Request
    data: "Data | None"
    labels: Sequence[str]
    batch_size: int | None
    data_suffix: str
    draws: bool
    search: Search | None = None


class JobResult(NamedTuple):
    """The result of a job: what `ConvertedFile` has, and the ports before and after.

    `drawn` is the account with its graph, if it was asked for.
    """

    converted: Converted
    account: Document
    headline: Headline
    ruling: Ruling | None
    seconds: float
    before: tuple[Port, ...]
    after: tuple[Port, ...]
    drawn: Document | None


def open_model(path: Path, name: str, trust: bool, progress: Progress | None) -> Model:
    """Open a model of a folder. Raises MezzoError: it is unreadable; the message has its name."""
    try:
        return open_source(path, trust, progress)
    except MezzoError as error:
        if path.is_file() and path.stat().st_size < 1024 and path.read_bytes().startswith(_LFS):
            message = (
                f"{name!r} is a pointer of Git LFS, not the model; run 'git lfs pull' in its folder"
            )
            raise ModelError(message) from error
        raise in_file(name, error) from error


def run_job(job: ModelJob, progress: Progress | None = None) -> JobResult:
    """Convert a model and describe the result, which keeps no graph: folders have many.

    Raises MezzoError: the model, its data or an option is at fault; the message names the file.
    """
    started = time.monotonic()
    model = open_model(job.source, job.name, job.request.trust_external_paths, progress)
    store_of(model).data_suffix = job.data_suffix
    before = model.ports()
    try:
        converted = _convert(model, job, progress)
    except MezzoError as error:
        raise in_file(job.name, error) from error
    after = open_source(job.staged, False, None).ports()
    headline = summarise_result(job.title, job.result_title, converted)
    described = (job.title, job.result_title, converted.plan, converted.summary)
    machine, measured = find_machine(), converted.measured
    if job.search is None or measured is None:
        account = describe_conversion(*described, measured, machine=machine, headline=headline)
    else:
        account = describe_tuning(*described, measured, machine=machine, headline=headline)
    return JobResult(
        converted=converted.without_graph(),
        account=account,
        headline=headline,
        ruling=None if measured is None else measured.ruling,
        seconds=time.monotonic() - started,
        before=before,
        after=after,
        drawn=with_graph(account, converted.outline()) if job.draws else None,
    )


def _convert(model: Model, job: ModelJob, progress: Progress | None) -> Converted:
    if job.search is None:
        return convert_opened(model, job.staged, job.request, job.data, job.labels, job.batch_size)
    if job.data is None:
        raise InputError(f"{job.name!r}: a budget is held on data, and it has none")
    options = {each.name: getattr(job.request, each.name) for each in fields(job.request)}
    return tune(
        job.source, job.staged, data=job.data, labels=job.labels, batch_size=job.batch_size,
        progress=progress, **job.search._asdict(), **options,
    )  # fmt: skip


def try_job(job: ModelJob, progress: Progress | None = None) -> JobResult | FailedFile:
    """Run a job; its error becomes a failure, so that one model ends no folder."""
    try:
        return run_job(job, progress)
    except Exception as error:  # noqa: BLE001  # one model ends no folder
        return failure_of(job.name, error)


def failure_of(name: str, error: Exception) -> FailedFile:
    """The failure of a file. Errors that no user can cause are reported with their type."""
    match error:
        case MezzoError():
            kinds = (ModelError, ContractError)
            kind = next((k.__name__ for k in kinds if isinstance(error, k)), "InputError")
            return FailedFile(name, str(in_file(name, error)), kind)
        case OSError():
            return FailedFile(name, f"{name!r}: {error.strerror or error}")
        case _:
            fault = spell_raised(error, _LONGEST_FAULT)
            return FailedFile(name, f"{name!r}: mezzo failed with {fault}; please report it")
