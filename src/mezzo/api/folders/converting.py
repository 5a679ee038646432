"""Conversion of all models in a folder, in the layouts of model hubs: mezzo.convert_folder."""

import filecmp
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.api.folders import genai
from mezzo.api.folders.configs import find_config, update_config
from mezzo.api.folders.data import find_data
from mezzo.api.folders.deciding import FileError, fit_requests
from mezzo.api.folders.job_processes import JobProcesses, check_processes
from mezzo.api.folders.listing import Placing
from mezzo.api.folders.model_folder import Changes, ModelFolder
from mezzo.api.folders.model_jobs import JobResult, ModelJob, Search, failure_of, try_job
from mezzo.api.folders.records import ConvertedFile, FailedFile, error_of
from mezzo.api.folders.records import ConvertedFolder as ConvertedFolder
from mezzo.api.folders.resume_folder import ResumeFolder, key_of
from mezzo.api.folders.staging import FolderStaging
from mezzo.api.folders.ties import TypedTie, check_ties, find_broken_ties
from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.contracts.frontend import Port, Progress
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.contracts.options.keywords import documents_options, request_of
from mezzo.contracts.options.request import Request, choose_one
from mezzo.planner.options import read_options, requested_formats
from mezzo.report.records.documents import Document

if TYPE_CHECKING:
    from mezzo.api.folders.data import FolderData
    from mezzo.numerics.data.datasets import Data

# Called with each model as soon as it is done, and its account with the graph.
OnFile = Callable[[ConvertedFile, Document], None]


def _no_changes(name: str) -> Changes:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Options of a folder conversion besides the request; `convert_folder` documents them.

    `changes_of`: the fields of the request that are different for a model, by its name. `on_file`:
    called for each model with its account and graph. `search`: a search in place of each
    conversion. `shown_source`, `shown_destination`: the folder that reports name, if the source or
    the destination is a temporary one.
    """

    layout: str | None = None
    data: "FolderData | None" = None
    labels: Sequence[str] = ()
    batch_size: int | None = None
    overwrite: bool = False
    resume: Path | None = None
    jobs: int = 1
    progress: Progress | None = None
    changes_of: Callable[[str], Changes] = _no_changes
    on_file: OnFile | None = field(default=None, repr=False)
    search: Search | None = None
    shown_source: Path | None = None
    shown_destination: Path | None = None


@documents_options
def convert_folder(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    layout: str | None = None,
    data: "FolderData | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    overwrite: bool = False,
    resume: str | os.PathLike[str] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> ConvertedFolder:
    """Convert every FP32 model of a folder, such as a Hugging Face export; copy other files.

    Models that are low or quantized already are copied. A model at fault is copied too, and listed
    in `failed` with the reason; the others are converted. All files appear at the end, or none
    after an interrupt; with `resume` each appears as soon as it is done. Ports that pass tensors
    from one model to another, or back to the same one, share one type: FP32 if one of them cannot
    be low.

    Args:
        dst: the destination folder; by default the same folder.
        layout: "beside" the originals, as "model_fp16.onnx"; or "instead" of them, as "model.onnx".
            The default is "beside", but "instead" in a folder with a genai_config.json, which names
            its models; there `io` is "follow" by default.
        include, exclude, keep_region, fix_region, io, assume: as for `mezzo.convert`; each has to
            match in some model.
        data: a folder of data named like the models: "encoder_model.npz", or a folder
            "encoder_model" of .npz files, for "encoder_model.onnx"; or a mapping from models to
            what `mezzo.convert` takes. It is also the calibration data of models to be quantized.
        overwrite: replace existing files.
        resume: a folder with a record per model, which is made if it does not exist: models that
            an earlier run with it converted, and that have not changed since, are not converted
            again.
        jobs: the number of processes that convert models, with the results of one. A memory limit
            is divided among them.
        provenance: as of `mezzo.convert`.
        progress: called with (stage, done, total); the stage names the file.

    Raises:
        InputError: an option or the folder is at fault; or every model is, and the error is of the
            first.
        ModelError, ContractError: the same of a model that is not valid, or a broken promise.
    """
    given = FolderOptions(
        layout=layout, data=data, labels=labels, batch_size=batch_size, overwrite=overwrite,
        resume=None if resume is None else Path(resume), jobs=jobs, progress=progress,
    )  # fmt: skip
    folder = convert_models(
        Path(src), None if dst is None else Path(dst), request_of(options), given
    )
    if not folder.files and folder.failed:
        raise error_of(folder.failed)
    return folder


def convert_models(
    source: Path, destination: Path | None, request: Request, given: FolderOptions
) -> ConvertedFolder:
    """Convert a folder. If every model fails, nothing is written and the result lists no files.

    Raises InputError: an option or the folder is at fault.
    """
    check_processes(given.jobs)
    to = requested_formats(request)
    placing = None
    if given.layout is not None:
        choices = [choice.value for choice in Placing]
        placing = Placing(choose_one("layout", given.layout, choices))
    folder = ModelFolder(source, destination or source, placing, to, request.trust_external_paths)
    folder.progress = given.progress
    if folder.genai_configs and request.io == "keep":
        # Past and present caches share a buffer, with no Cast between.
        request = replace(request, io="follow")
    settings = read_options(request).settings
    folder.choose(given.changes_of)
    _check_formats(request, folder)
    resume = None if given.resume is None else ResumeFolder(given.resume)
    folder.check_results(resume, overwrite=given.overwrite)
    data = find_data(given.data, folder.models, [failure.source for failure in folder.failed])
    try:
        return _Conversion(folder, given, resume).convert(request, settings, data)
    except OSError as error:
        where, kept = os.fspath(folder.destination), "nothing was changed"
        if resume is not None:
            kept = f"what was done is kept; the same {option('resume')} goes on from there"
        raise InputError(f"cannot write {where!r}: {error.strerror or error}; {kept}") from error


def _check_formats(request: Request, folder: ModelFolder) -> None:
    """Raises InputError: models have formats of their own, and their ports may be low."""
    if request.io == "keep":
        return
    for name, changes in folder.changes.items():
        if "to" in changes:
            raise InputError(
                f"{option('io')} is {request.io!r}, and {name!r} has {setting('to', changes['to'])}"
                " of its own: what models exchange has one type; leave one out"
            )


class _Conversion:
    """The conversion of the chosen models of a folder: converted models by name, their ports before
    and after, and the names of the files written for them.
    """

    def __init__(
        self, folder: ModelFolder, given: FolderOptions, resume: ResumeFolder | None
    ) -> None:
        self.folder, self.given, self.resume = folder, given, resume
        self.files: dict[str, ConvertedFile] = {}
        self.before: dict[str, tuple[Port, ...]] = {}
        self.after: dict[str, tuple[Port, ...]] = {}
        self.written: set[str] = set()

    def convert(
        self,
        request: Request,
        settings: tuple[tuple[str, str], ...],
        data: "Mapping[str, Data]",
    ) -> ConvertedFolder:
        """Convert all models. Files appear at the end, or with `resume` when a model is done."""
        folder = self.folder
        requests = self._fit(request)
        with FolderStaging(folder.destination, commits_often=self.resume is not None) as staging:
            jobs = [self._job(name, requests[name], data, staging) for name in folder.models]
            self._run_all(jobs, staging)
            self._drop_broken_ties(staging)
            ties = check_ties(self.before, self.after)
            copied: tuple[str, ...] = ()
            notes: list[str] = []
            if self.files:
                copied, notes = self._finish(ties, staging)
            elif self.resume is not None:
                staging.commit()
        if self.resume is not None and not any(folder.destination.iterdir()):
            folder.destination.rmdir()
        unused = tuple(name for name in folder.models if data and name not in data)
        if unused:
            notes.append(f"no data for {', '.join(map(repr, unused))}: decided without")
        return ConvertedFolder(
            source=self.given.shown_source or folder.source,
            path=folder.destination,
            layout=folder.layout.value,
            files=tuple(self.files[name] for name in folder.models),
            skipped=folder.skipped,
            failed=tuple(sorted(folder.failed)),
            copied=copied,
            left_out=() if folder.is_in_place else folder.listing.left_out,
            ties=ties,
            settings=settings,
            notes=tuple(notes),
        )

    def _fit(self, request: Request) -> dict[str, Request]:
        """The request of each model. Models that cannot be planned fail, and stay as they are.

        Raises InputError: an option is at fault.
        """
        folder = self.folder
        while True:
            try:
                fitted = fit_requests(folder.models, request, folder.open, folder.failed_ports)
            except FileError as fault:
                folder.fail(failure_of(fault.name, fault.error))
                continue
            return {name: replace(fitted[name], **folder.changes[name]) for name in folder.models}

    def _job(
        self, name: str, request: Request, data: "Mapping[str, Data]", staging: FolderStaging
    ) -> ModelJob:
        folder, given = self.folder, self.given
        result = folder.result_of(name)
        return ModelJob(
            name=name,
            source=folder.source / name,
            result=result,
            staged=staging.staged(result),
            title=os.fspath((given.shown_source or folder.source) / name),
            result_title=os.fspath((given.shown_destination or folder.destination) / result),
            request=request,
            data=data.get(name),
            labels=given.labels,
            batch_size=given.batch_size,
            data_suffix=folder.data_suffix,
            draws=given.on_file is not None,
            search=given.search,
        )

    def _run_all(self, jobs: Sequence[ModelJob], staging: FolderStaging) -> None:
        """Run all jobs but those that an earlier run did, and take their results."""
        waiting = list(jobs)
        keys: dict[str, str | None] = {}
        if self.resume is not None:
            keys = {job.name: key_of(job, self.folder.companions[job.name]) for job in jobs}
            earlier = {
                job.name: self.resume.find(job, keys[job.name], self.folder.destination)
                for job in jobs
            }
            for job in jobs:
                result = earlier[job.name]
                if result is not None:
                    waiting.remove(job)
                    self._take(job, result, staging, is_unchanged=True)
        for job, outcome in self._results(waiting):
            if isinstance(outcome, FailedFile):
                self._drop(outcome, staging)
                continue
            self._take(job, outcome, staging, is_unchanged=False)
            if self.resume is not None:
                names = [n for n in self.folder.results_of(job.name) if n in self.written]
                paths = {name: staging.staged(name) for name in names}
                self.resume.keep(job, keys[job.name], outcome, paths)
                staging.commit()

    def _results(
        self, jobs: Sequence[ModelJob]
    ) -> Iterator[tuple[ModelJob, JobResult | FailedFile]]:
        """Run jobs, in this process or in several; yield each when it is done."""
        for job in jobs:
            job.staged.parent.mkdir(parents=True, exist_ok=True)
        count = min(self.given.jobs, len(jobs))
        if count <= 1:
            for job in jobs:
                yield job, try_job(job, self.folder.progress_of(job.name))
            return
        with JobProcesses(count) as processes:
            for done, (job, outcome) in enumerate(processes.run(jobs)):
                if self.folder.progress is not None:
                    self.folder.progress(f"{job.name}: converting", done + 1, len(jobs))
                yield job, outcome

    def _take(
        self, job: ModelJob, result: JobResult, staging: FolderStaging, *, is_unchanged: bool
    ) -> None:
        """Note a result, and place its files for the next commit if they are new."""
        destination = self.folder.destination
        result.converted.path = destination / job.result
        self.before[job.name], self.after[job.name] = result.before, result.after
        file = ConvertedFile(
            source=job.name,
            result=job.result,
            converted=result.converted,
            account=result.account,
            headline=result.headline,
            ruling=result.ruling,
            seconds=result.seconds,
            is_unchanged=is_unchanged,
        )
        self.files[job.name] = file
        for name in self.folder.results_of(job.name):
            path = destination / name if is_unchanged else staging.staged(name)
            if path.exists():
                self.written.add(name)
                if not is_unchanged:
                    staging.place(name)
            elif not is_unchanged and (destination / name).exists():
                staging.remove(name)  # external data of an earlier result
        if self.given.on_file is not None and result.drawn is not None:
            self.given.on_file(file, result.drawn)

    def _drop(self, failure: FailedFile, staging: FolderStaging) -> None:
        """Leave a model as it is whose conversion failed, and forget what was written of it."""
        for result in self.folder.results_of(failure.source):
            staging.discard(result)
        self.folder.fail(failure)

    def _drop_broken_ties(self, staging: FolderStaging) -> None:
        """Let models fail that exchange a tensor with a failed one in another type."""
        stay = self.folder.failed_ports
        broken = find_broken_ties({**self.before, **stay}, {**self.after, **stay}, stay.keys())
        for name, (port, partner) in broken.items():
            because = f"{name!r} exchanges {port!r} with {partner!r}, which failed; mend that one"
            for result in self.folder.results_of(name):
                self.written.discard(result)
                if (self.folder.destination / result).exists():
                    staging.remove(result)
            del self.files[name], self.before[name], self.after[name]
            self._drop(FailedFile(name, because), staging)

    def _finish(
        self, ties: Sequence[TypedTie], staging: FolderStaging
    ) -> tuple[tuple[str, ...], list[str]]:
        """Copy other files, update configs, and commit. Returns the copied files, and notes."""
        folder = self.folder
        copied = () if folder.is_in_place else self._copy(staging)
        notes = self._update_configs(staging, ties)
        results = {file.source: file.result for file in self.files.values()}
        notes += self._update_genai_configs(staging, results)
        if folder.is_in_place:
            for name in sorted(folder.replaced - self.written):
                if (folder.destination / name).exists():
                    staging.remove(name)
        if self.resume is not None:
            self.resume.keep_copied(copied)
        staging.commit()
        return copied, notes

    def _copy(self, staging: FolderStaging) -> tuple[str, ...]:
        """Copy files, except those that an earlier run copied, unless they are rewritten."""
        folder = self.folder
        earlier = frozenset() if self.resume is None else self.resume.copied
        for number, name in enumerate(folder.copies):
            if folder.progress is not None:
                folder.progress("copying", number, len(folder.copies))
            source, target = folder.source / name, folder.destination / name
            is_same = name in earlier and target.is_file() and filecmp.cmp(source, target)
            if not is_same or name in folder.genai_configs:
                shutil.copy2(source, staging.place(name))
        return folder.copies

    def _update_configs(self, staging: FolderStaging, ties: Sequence[TypedTie]) -> list[str]:
        """Update each config.json for transformers.js. Returns notes."""
        # Transformers.js's key of the file.
        key = {Placing.BESIDE: self.folder.to, Placing.INSTEAD: "fp32"}[self.folder.layout]
        is_low_cache = self.folder.to == "fp16" and any(
            typed_tie.tie.outputs
            and typed_tie.tie.inputs
            and typed_tie.dtype.value == "f16"
            and "past" in typed_tie.tie.name
            for typed_tie in ties
        )
        external: dict[str, list[str]] = {}
        for file in self.files.values():
            result = file.result
            config = find_config(result, self.folder.listing.names)
            if config is not None:
                data_files = [result] if result + self.folder.data_suffix in self.written else []
                external.setdefault(config, []).extend(data_files)
        notes = []
        for config, names in external.items():
            text = update_config(
                self.folder.source / config,
                names,
                key if is_low_cache else None,
                self.folder.listing.models,
            )
            if self._rewrite(staging, config, text):
                notes.append(
                    f"{config!r} tells transformers.js of external data or a low cache now"
                )
        return notes

    def _update_genai_configs(
        self, staging: FolderStaging, results: Mapping[str, str]
    ) -> list[str]:
        """Put the results' names into each genai_config.json. Returns notes."""
        return [
            f"{config!r} names the low models now"
            for config in self.folder.genai_configs
            if self._rewrite(
                staging, config, genai.update_config(self.folder.source, config, results)
            )
        ]

    def _rewrite(self, staging: FolderStaging, name: str, text: str | None) -> bool:
        """Write the new text of a file, if there is one, and return whether there is."""
        if text is None:
            return False
        path = staging.staged(name)
        if not path.exists():  # it was not copied before
            staging.place(name)
        path.write_text(text, encoding="utf-8")
        return True
