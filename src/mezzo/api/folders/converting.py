"""Conversion of all models in a folder, in the layouts of model hubs: mezzo.convert_folder."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.api.convert import convert_opened
from mezzo.api.folders import genai
from mezzo.api.folders.configs import find_config, update_config
from mezzo.api.folders.data import find_data
from mezzo.api.folders.deciding import check_data, fit_requests, in_file
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
from mezzo.api.folders.staging import FolderStaging
from mezzo.api.folders.ties import TypedTie, check_ties
from mezzo.common.errors import InputError, MezzoError, ModelError
from mezzo.common.message_style import setting
from mezzo.common.safe_paths import check_destination
from mezzo.common.unsupported_files import describe_folder
from mezzo.contracts.frontend import Model, Progress
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.contracts.options.keywords import documents_options, request_of
from mezzo.contracts.options.request import Request, choose_one
from mezzo.conversion.results import Converted, open_source, store_of
from mezzo.conversion.summaries import summarise_folder
from mezzo.planner.options import read_options, requested_formats
from mezzo.report.notebook.fragments import fragment
from mezzo.report.notebook.notebook import lines_of
from mezzo.report.records.headline import Headline

if TYPE_CHECKING:
    from mezzo.api.folders.data import FolderData
    from mezzo.numerics.data.datasets import Data

_LFS = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class ConvertedFile:
    """One model of a folder: its path in it, the path of its result, and the result."""

    source: str
    result: str
    converted: Converted


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConvertedFolder:
    """The result of a folder conversion. Names are paths in a folder, with "/" between parts.

    `skipped` are models that were not converted, with the reason; `left_out` are files neither
    converted nor copied; `ties` are inputs and outputs that share a type across files. `settings`
    are the options as given.
    """

    source: Path
    path: Path
    layout: str
    files: tuple[ConvertedFile, ...]
    skipped: tuple[tuple[str, str], ...]
    copied: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    ties: tuple[TypedTie, ...]
    settings: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n  ".join(lines_of("ConvertedFolder", self._headline()))

    def _repr_html_(self) -> str:
        headline = self._headline()
        return fragment([headline.title], ("", ""), headline.rows())

    def _headline(self) -> Headline:
        return summarise_folder(os.fspath(self.source), os.fspath(self.path), self)


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
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> ConvertedFolder:
    """Convert every FP32 model of a folder, such as a Hugging Face export; copy other files.

    Models that are low or quantized already are copied. All files appear at the end, or none. Ports
    that pass tensors from one model to another, or back to the same one, share one type: FP32 if
    one of them cannot be low.

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
        provenance: as of `mezzo.convert`.
        progress: called with (stage, done, total); the stage names the file.

    Raises:
        InputError: an option, the folder or a file in it is at fault; the message names the file.
        ModelError: a model is not valid ONNX.
        ContractError: a result would break a promise.
    """
    request = request_of(options)
    to = requested_formats(request)
    placing = None
    if layout is not None:
        placing = Placing(choose_one("layout", layout, [choice.value for choice in Placing]))
    paths = Path(src), Path(src if dst is None else dst)
    folder = _Folder(*paths, placing, to, request.trust_external_paths)
    if folder.genai_configs and request.io == "keep":
        # Past and present caches share a buffer, with no Cast between.
        request = replace(request, io="follow")
    folder.progress = progress
    folder.choose()
    folder.check_results(overwrite=overwrite)
    data_of = find_data(data, folder.models)
    try:
        return folder.convert(request, data_of, labels, batch_size)
    except OSError as error:
        where = os.fspath(folder.destination)
        raise InputError(
            f"cannot write {where!r}: {error.strerror or error}; nothing was changed"
        ) from error


class _Folder:
    """The state of a folder conversion: listing, models to convert, and their destinations."""

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
        self.progress: Progress | None = None
        self._trust = trust
        self._data_of: dict[str, frozenset[str]] = {}  # external data files of every readable model

    def choose(self) -> None:
        """Choose the models to convert. Raises InputError: none, or one is unreadable."""
        for config in self.genai_configs:
            genai.check_config(self.source, config)
        models, skipped = [], []
        for name in self.listing.models:
            suffix = find_low_suffix(name)
            reason = None if suffix is None else f"is low already by its name, {suffix!r}"
            try:
                model = self.open(name)
                self._data_of[name] = self._external_files(model)
                reason = reason or why_low(model)
            except MezzoError:
                if reason is None:
                    raise
            if reason is None:
                models.append(name)
            else:
                skipped.append((name, reason))
        self.models, self.skipped = tuple(models), tuple(skipped)
        if not models:
            if not skipped:
                raise InputError(describe_folder(self.source))
            where, found_low = os.fspath(self.source), f"the {len(skipped)} there are low already"
            raise InputError(
                f"{where!r} has no model to convert: {found_low}; name a folder with FP32 models"
            )

    def open(self, name: str) -> Model:
        """Open a model of the folder. Raises MezzoError: it is unreadable; the message names it."""
        path = self.source / name
        try:
            model = open_source(path, self._trust, self._progress_of(name))
        except MezzoError as error:
            if path.stat().st_size < 1024 and path.read_bytes().startswith(_LFS):
                message = (
                    f"{name!r} is a pointer of Git LFS, not the model; run 'git lfs pull' in its"
                    " folder"
                )
                raise ModelError(message) from error
            raise in_file(name, error) from error
        store_of(model).data_suffix = self.data_suffix
        return model

    def check_results(self, *, overwrite: bool) -> None:
        """Raises InputError: a result or a copy cannot or may not be written."""
        self._refuse_shared_data()
        for name in (*self.results, *(() if self.is_in_place else self.copies)):
            if os.path.lexists(self.destination / name):
                check_destination(self.destination / name)
        if not overwrite:
            self._refuse_existing()

    def _refuse_existing(self) -> None:
        """Raises InputError: a result or a copy has the name of an existing file."""
        remedy = f"pass {setting('overwrite', True)} to replace it"
        existing = frozenset(self.listing.names)
        for name in self.results:
            is_original = self.layout is Placing.BESIDE and name in existing
            folder = self.source if is_original else self.destination
            if is_original or os.path.lexists(folder / name):
                raise InputError(f"{name!r} is in {os.fspath(folder)!r} already; {remedy}")
        for name in () if self.is_in_place else self.copies:
            if os.path.lexists(self.destination / name):
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

    @property
    def results(self) -> tuple[str, ...]:
        """The files that conversions write, with the names of possible external data."""
        models = [name_result(name, self.to, self.layout) for name in self.models]
        return tuple(name for model in models for name in (model, model + self.data_suffix))

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

    def convert(
        self,
        request: Request,
        data: "Mapping[str, Data]",
        labels: Sequence[str],
        batch_size: int | None,
    ) -> ConvertedFolder:
        """Convert all models, and commit all files at the end."""
        settings = read_options(request).settings
        check_data(dict.fromkeys(self.models, request), data.keys())
        requests = fit_requests(self.models, request, self.open)
        files, before, after = [], {}, {}
        with FolderStaging(self.destination) as staging:
            for name in self.models:
                result = name_result(name, self.to, self.layout)
                model = self.open(name)
                before[name] = model.ports()
                with _naming(name):
                    converted = convert_opened(
                        model,
                        staging.place(result),
                        requests[name],
                        data.get(name),
                        labels,
                        batch_size,
                    )
                    after[name] = open_source(staging.staged(result), False, None).ports()
                if staging.staged(result + self.data_suffix).exists():
                    staging.place(result + self.data_suffix)
                files.append(ConvertedFile(name, result, converted))
            ties = check_ties(before, after)
            copied = () if self.is_in_place else self._copy(staging)
            notes = self._update_configs(staging, [file.result for file in files], ties)
            notes += self._update_genai_configs(
                staging, {file.source: file.result for file in files}
            )
            # Replaced originals, and external data of an earlier result that the new one lacks.
            for name in sorted(
                (self.replaced if self.is_in_place else frozenset()).union(self.results)
            ):
                if (self.destination / name).exists() and not staging.staged(name).exists():
                    staging.remove(name)
            staging.commit()
        for file in files:
            file.converted.path = self.destination / file.result
        unused = tuple(name for name in self.models if data and name not in data)
        if unused:
            notes.append(f"no data for {', '.join(map(repr, unused))}: decided without")
        return ConvertedFolder(
            source=self.source,
            path=self.destination,
            layout=self.layout.value,
            files=tuple(files),
            skipped=self.skipped,
            copied=copied,
            left_out=() if self.is_in_place else self.listing.left_out,
            ties=ties,
            settings=settings,
            notes=tuple(notes),
        )

    def _copy(self, staging: FolderStaging) -> tuple[str, ...]:
        copied = self.copies
        for number, name in enumerate(copied):
            if self.progress is not None:
                self.progress("copying", number, len(copied))
            shutil.copy(self.source / name, staging.place(name))
        return copied

    def _update_configs(
        self, staging: FolderStaging, results: Sequence[str], ties: Sequence[TypedTie]
    ) -> list[str]:
        """Update each config.json for transformers.js. Returns notes."""
        # Transformers.js's key of the file.
        key = {Placing.BESIDE: self.to, Placing.INSTEAD: "fp32"}[self.layout]
        is_low_cache = self.to == "fp16" and any(
            typed_tie.tie.outputs
            and typed_tie.tie.inputs
            and typed_tie.dtype.value == "f16"
            and "past" in typed_tie.tie.name
            for typed_tie in ties
        )
        external: dict[str, list[str]] = {}
        for result in results:
            config = find_config(result, self.listing.names)
            if config is not None:
                data_files = [result] if staging.staged(result + self.data_suffix).exists() else []
                external.setdefault(config, []).extend(data_files)
        notes = []
        for config, names in external.items():
            text = update_config(
                self.source / config, names, key if is_low_cache else None, self.listing.models
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
            for config in self.genai_configs
            if self._rewrite(staging, config, genai.update_config(self.source, config, results))
        ]

    def _rewrite(self, staging: FolderStaging, name: str, text: str | None) -> bool:
        """Write the new text of a file, if there is one, and return whether there is."""
        if text is None:
            return False
        # In place it is a new file; in another folder it was copied before.
        path = staging.place(name) if self.is_in_place else staging.staged(name)
        path.write_text(text, encoding="utf-8")
        return True

    def _external_files(self, model: Model) -> frozenset[str]:
        """External data of a model, by its path in the folder."""
        # The second for trusted links.
        roots = os.path.realpath(self.source), os.path.abspath(self.source)
        paths = set()
        for companion in store_of(model).companions:
            root = next(
                (root for root in roots if os.path.commonpath([root, companion]) == root), None
            )
            if root is not None:
                paths.add(Path(os.path.normpath(os.path.relpath(companion, root))).as_posix())
        return frozenset(paths)

    def _progress_of(self, name: str) -> Progress | None:
        """A progress callback that adds the file's name and number to the stage."""
        progress = self.progress
        if progress is None or name not in self.models:
            return None
        prefix = f"{name} ({self.models.index(name) + 1} of {len(self.models)})"
        return lambda stage, done, total: progress(f"{prefix}: {stage}", done, total)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the file's name to errors."""
    try:
        yield
    except MezzoError as error:
        raise in_file(name, error) from error
