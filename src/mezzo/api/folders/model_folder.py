"""Folders of models: models to convert, unreadable ones, and names of results and copies."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mezzo.api.folders import genai
from mezzo.api.folders.listing import (
    DATA_SUFFIX,
    FolderListing,
    Placing,
    check_places,
    find_low_suffix,
    list_folder,
    name_result,
    why_low,
)
from mezzo.api.folders.model_jobs import failure_of, open_model
from mezzo.api.folders.records import FailedFile
from mezzo.api.folders.resume_folder import ResumeFolder
from mezzo.common.errors import InputError
from mezzo.common.message_style import setting
from mezzo.common.safe_paths import check_destination
from mezzo.common.unsupported_files import describe_folder
from mezzo.contracts.frontend import Model, Port, Progress
from mezzo.conversion.results import store_of

Changes = Mapping[str, Any]  # fields of a request


class ModelFolder:
    """A folder of models: which to convert, which failed, and how results and copies are called."""

    def __init__(
        self, source: Path, destination: Path, layout: Placing | None, to: str, trust: bool
    ) -> None:
        check_places(source, destination)
        self.source, self.destination, self.to = source, destination, to
        self.listing: FolderListing = list_folder(source, trust=trust)
        self.genai_configs = genai.find_configs(self.listing.names)
        self.layout = layout or (Placing.INSTEAD if self.genai_configs else Placing.BESIDE)
        self.data_suffix = genai.DATA_SUFFIX if self.genai_configs else DATA_SUFFIX
        self.is_in_place = destination.is_dir() and source.samefile(destination)
        self.models: tuple[str, ...] = ()
        self.skipped: tuple[tuple[str, str], ...] = ()
        self.failed: list[FailedFile] = list(self.listing.failed)
        self.progress: Progress | None = None
        self._trust = trust
        self.changes: dict[str, Changes] = {}  # of the request, by model
        self.ports: dict[str, tuple[Port, ...]] = {}  # of the models to convert, as they are
        self.companions: dict[str, tuple[str, ...]] = {}  # external data of every readable model
        self._data_of: dict[str, frozenset[str]] = {}  # the same as paths in the folder

    def choose(self, changes_of: Callable[[str], Changes]) -> None:
        """Choose the models to convert; the unreadable fail. Raises InputError: there are none."""
        for config in self.genai_configs:
            genai.check_config(self.source, config)
        models, skipped = [], []
        for number, name in enumerate(self.listing.models):
            if self.progress is not None:
                self.progress("opening", number, len(self.listing.models))
            suffix = find_low_suffix(name)
            reason = None if suffix is None else f"is low already by its name, {suffix!r}"
            try:
                model = self.open(name)
                self.companions[name] = tuple(store_of(model).companions)
                self._data_of[name] = self._external_files(name)
                reason = reason or why_low(model)
                if reason is None:
                    self.ports[name] = model.ports()
            except Exception as error:  # noqa: BLE001  # one model ends no folder
                if reason is None:
                    self.failed.append(failure_of(name, error))
                    continue
            if reason is None:
                models.append(name)
            else:
                skipped.append((name, reason))
        self.models = tuple(models)
        self.changes = {name: changes_of(name) for name in models}
        # Results of an earlier conversion in place are low by name.
        results = frozenset(self.results)
        self.skipped = tuple(entry for entry in skipped if entry[0] not in results)
        if not models and not self.failed:
            if not skipped:
                raise InputError(describe_folder(self.source))
            where, found_low = os.fspath(self.source), f"the {len(skipped)} there are low already"
            raise InputError(
                f"{where!r} has no model to convert: {found_low}; name a folder with FP32 models"
            )

    @property
    def failed_ports(self) -> dict[str, tuple[Port, ...]]:
        """The ports of models that failed and stay as they are, as far as they can be read."""
        names = [failure.source for failure in self.failed]
        return {name: self.ports[name] for name in names if name in self.ports}

    def open(self, name: str) -> Model:
        """Open a model of the folder. Raises MezzoError: it is unreadable; the message names it."""
        model = open_model(self.source / name, name, self._trust, self.progress_of(name))
        store_of(model).data_suffix = self.data_suffix
        return model

    def check_results(self, resume: ResumeFolder | None, *, overwrite: bool) -> None:
        """Raises InputError: a result or a copy cannot or may not be written."""
        self._refuse_shared_data()
        for name in (*self.results, *(() if self.is_in_place else self.copies)):
            if os.path.lexists(self.destination / name):
                check_destination(self.destination / name)
        if not overwrite:
            self._refuse_existing(resume)

    def _refuse_existing(self, resume: ResumeFolder | None) -> None:
        """Raises InputError: a result or a copy has the name of an existing file that no earlier
        run with the resume folder wrote.
        """
        remedy = f"pass {setting('overwrite', True)} to replace it"
        existing = frozenset(self.listing.names)
        for model in self.models:
            for name in self.results_of(model):
                if resume is not None and resume.names_result(model, name):
                    continue
                is_original = self.layout is Placing.BESIDE and name in existing
                folder = self.source if is_original else self.destination
                if is_original or os.path.lexists(folder / name):
                    raise InputError(f"{name!r} is in {os.fspath(folder)!r} already; {remedy}")
        copied = frozenset() if resume is None else resume.copied
        for name in () if self.is_in_place else self.copies:
            if name not in copied and os.path.lexists(self.destination / name):
                raise InputError(
                    f"{name!r} is in {os.fspath(self.destination)!r} already; {remedy}, or name a"
                    " new folder"
                )

    def _refuse_shared_data(self) -> None:
        """Raises InputError: a result would replace the external data of a model that stays."""
        removed = self.replaced.union(self.results)
        for name, data_files in self._data_of.items():
            for shared in () if name in removed else sorted(data_files.intersection(self.results)):
                raise InputError(
                    f"{shared!r} holds weights of {name!r}, which stays as it is; take that one out"
                    " of the folder first"
                )

    def result_of(self, name: str) -> str:
        """The name of a model's result."""
        to = self.changes.get(name, {}).get("to", self.to)
        return name_result(name, to, self.layout)

    def results_of(self, name: str) -> tuple[str, str]:
        """The names of a model's result and of its possible external data."""
        result = self.result_of(name)
        return result, result + self.data_suffix

    @property
    def results(self) -> tuple[str, ...]:
        """The files that conversions write, with the names of possible external data."""
        return tuple(result for name in self.models for result in self.results_of(name))

    @property
    def replaced(self) -> frozenset[str]:
        """Originals that results replace, with external data unless other models use it."""
        if self.layout is Placing.BESIDE:
            return frozenset()
        own = frozenset().union(*(self._data_of[name] for name in self.models), self.models)
        shared = [
            data_files for name, data_files in self._data_of.items() if name not in self.models
        ]
        return own.difference(*shared)

    @property
    def copies(self) -> tuple[str, ...]:
        """Files that are copied to another destination folder."""
        removed = self.replaced.union(self.results)
        return tuple(name for name in self.listing.names if name not in removed)

    def fail(self, failure: FailedFile) -> None:
        """Leave a model as it is."""
        self.failed.append(failure)
        self.models = tuple(name for name in self.models if name != failure.source)

    def _external_files(self, model: str) -> frozenset[str]:
        """External data of a model, by its path in the folder."""
        # The second for trusted links.
        roots = os.path.realpath(self.source), os.path.abspath(self.source)
        paths = set()
        for companion in self.companions[model]:
            root = next(
                (root for root in roots if os.path.commonpath([root, companion]) == root), None
            )
            if root is not None:
                paths.add(Path(os.path.normpath(os.path.relpath(companion, root))).as_posix())
        return frozenset(paths)

    def progress_of(self, name: str) -> Progress | None:
        """A progress callback that adds the file's name and number to the stage."""
        progress = self.progress
        if progress is None or name not in self.models:
            return None
        prefix = f"{name} ({self.models.index(name) + 1} of {len(self.models)})"
        return lambda stage, done, total: progress(f"{prefix}: {stage}", done, total)
