"""Resume folders: one JSON record per converted model, so that a second run converts only what is
new, has changed or failed.

A record holds while the model with its external data, its calibration data, the options and the
installed versions are those of the record, and the result is as it was written. Records are hostile
input: reading runs no code, and a damaged record counts as none.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mezzo.api.folders.job_documents import revive_result, spell_result
from mezzo.api.folders.model_jobs import JobResult, ModelJob
from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destination, read_file, write_file
from mezzo.planner.options import read_options
from mezzo.report.records.sections import describe_versions

_FORMAT = "mezzo-folder-resume/1"
_MAX_BYTES = 1 << 30
_COPIES = "/copies"  # the name of the record of copied files, which no model has


class ResumeFolder:
    """The records in a folder, which is made if it does not exist.

    Raises InputError: the path is no folder, or cannot be made.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                f"the resume folder {os.fspath(path)!r} cannot be made: {error.strerror}; of a"
                " folder of models the state is a folder too: name a new one"
            ) from error
        self._path = path
        self._results: dict[str, frozenset[str]] = {}  # by model, as first read

    def names_result(self, name: str, result: str) -> bool:
        """Whether an earlier run wrote this result of a model: then a new one may replace it."""
        if name not in self._results:
            record = self._read(name)
            self._results[name] = frozenset(() if record is None else record["results"])
        return result in self._results[name]

    @property
    def copied(self) -> frozenset[str]:
        """The files that an earlier run copied."""
        record = self._read(_COPIES)
        return frozenset() if record is None else frozenset(record["results"])

    def keep_copied(self, names: Iterable[str]) -> None:
        """Write which files were copied. Raises InputError: it cannot be written."""
        record = {"format": _FORMAT, "name": _COPIES, "results": dict.fromkeys(names)}
        write_file(self._file(_COPIES), json.dumps(record).encode(), "resume")

    def find(self, job: ModelJob, key: str | None, destination: Path) -> JobResult | None:
        """What an earlier run made of the same job, if its results are unchanged; else None.

        `measured` is None: the account has what was measured.
        """
        record = self._read(job.name)
        if record is None or key is None or not _is_same(record, key, job, destination):
            return None
        try:
            result = revive_result(record, destination / job.result)
        except (KeyError, TypeError, ValueError, AttributeError, InputError):
            return None
        return None if job.draws and result.drawn is None else result

    def keep(
        self, job: ModelJob, key: str | None, result: JobResult, results: Mapping[str, Path]
    ) -> None:
        """Write the record of a result, whose files are given by name.

        Raises InputError: it cannot be written.
        """
        record = {
            "format": _FORMAT,
            "name": job.name,
            "key": key,
            "results": {name: digest_file(path) for name, path in results.items()},
            **spell_result(result),
        }
        write_file(self._file(job.name), json.dumps(record).encode(), "resume")

    def _read(self, name: str) -> dict[str, Any] | None:
        """The record of a model; None if there is none, or it is damaged."""
        try:
            text = read_file(self._file(name), _MAX_BYTES)
            record = None if text is None else parse_json(text)
        except (OSError, ValueError, InputError):
            return None
        if not isinstance(record, dict) or record.get("format") != _FORMAT:
            return None
        if record.get("name") != name:
            return None
        return record if isinstance(record.get("results"), dict) else None

    def _file(self, name: str) -> Path:
        path = self._path / f"{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}.json"
        check_destination(path, "resume")
        return path


def key_of(job: ModelJob, companions: Iterable[str]) -> str | None:
    """A digest of all that a result depends on: sources, data, options, versions.

    None if that is unknown, as data are arrays in memory: then no record holds.

    Raises OSError: a file cannot be read.
    """
    data_digests: list[str] = []
    if job.data is not None:
        if not isinstance(job.data, str | os.PathLike):
            return None
        if not Path(job.data).exists():  # "random"
            data_digests = [os.fspath(job.data)]
        else:
            path = Path(job.data)
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            data_digests = [digest_file(file) for file in files if file.is_file()]
    options = read_options(job.request)
    parts = {
        "versions": describe_versions(None),
        "source": [digest_file(job.source), *map(digest_file, companions)],
        "data": data_digests,
        "settings": [*options.settings, *sorted(options.digests.items())],
        "written": [options.is_recorded, options.is_checked, options.version, job.data_suffix],
        "labels": list(job.labels),
        "batch": job.batch_size,
        "titles": [job.title, job.result_title],
    }
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_file(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content. Raises OSError: it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_same(record: Mapping[str, Any], key: str, job: ModelJob, destination: Path) -> bool:
    """Whether a record is of this job and its results are as they were written."""
    results = record["results"]
    own_names = {job.result, job.result + job.data_suffix}
    if record.get("key") != key or job.result not in results or not results.keys() <= own_names:
        return False
    try:
        return all(digest_file(destination / name) == digest for name, digest in results.items())
    except OSError:
        return False
