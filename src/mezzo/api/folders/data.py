"""Assignment of data to the models of a folder, by name."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Data

    FolderData = Data | Mapping[str, Data]


def find_data(
    data: "FolderData | None", models: Sequence[str], failed: Sequence[str] = ()
) -> "dict[str, Data]":
    """The data of each model of a folder, without models that have none. Data of `failed` files is
    accepted, and not used.

    `data` maps models to data by name, or is a folder with `encoder_model.npz`, or a folder of .npz
    files named `encoder_model`, for the model `encoder_model.onnx`, in the same subfolder as the
    model or at the top. For a folder with one model, data of a single model is accepted too.

    Raises:
        InputError: there is no such data, or some belongs to no model.
    """
    if data is None:
        return {}
    if isinstance(data, DataFiles) and data.single is not None:
        data = data.single
    stems = _stems([*models, *failed])
    if isinstance(data, Mapping):
        for name in data:
            if name not in stems:
                raise InputError(
                    f"data has {name!r}, which is no model to convert; {_advise_names(models)}"
                )
        by_model = {stems[name]: model_data for name, model_data in data.items()}
        return {name: by_model[name] for name in models if name in by_model}
    if isinstance(data, str | os.PathLike) and Path(data).is_dir():
        by_model = _find_files(Path(data), stems, models)
        return {name: by_model[name] for name in models if name in by_model}
    if len(models) <= 1:
        return dict.fromkeys(models, data)
    raise InputError(
        f"the folder has {len(models)} models, so their data has to tell which is for which: give a"
        " folder of .npz files named like the models, such as"
        f" {PurePosixPath(models[0]).with_suffix('.npz').name!r}"
    )


def _find_files(folder: Path, stems: Mapping[str, str], models: Sequence[str]) -> "dict[str, Data]":
    by_stem: dict[str, Path] = {}
    unmatched = []
    for path in sorted(folder.rglob("*.npz")):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        is_own = str(relative.with_suffix("")) in stems
        name = str(relative.with_suffix("") if is_own else relative.parent)
        if name not in stems:
            unmatched.append(str(relative))
            continue
        source = path if is_own else path.parent
        earlier = by_stem.setdefault(stems[name], source)
        if earlier != source:
            raise InputError(
                f"{os.fspath(earlier)!r} and {os.fspath(source)!r} are both for {stems[name]!r};"
                " keep one"
            )
    if len(models) == 1 and not by_stem:
        return {models[0]: folder}
    if not models:
        return {}
    if unmatched:
        raise InputError(
            f"{os.fspath(folder / unmatched[0])!r} belongs to no model to convert;"
            f" {_advise_names(models)}"
        )
    if not by_stem:
        raise InputError(f"{os.fspath(folder)!r} has no .npz files; {_advise_names(models)}")
    return dict(by_stem)


def _stems(models: Sequence[str]) -> dict[str, str]:
    """Models by the names of their data: path without suffix, and last part if unique."""
    paths = {str(PurePosixPath(model).with_suffix("")): model for model in models}
    by_stem: dict[str, list[str]] = {}
    for model in models:
        by_stem.setdefault(PurePosixPath(model).stem, []).append(model)
    return {name: paths_of[0] for name, paths_of in by_stem.items() if len(paths_of) == 1} | paths


def _advise_names(models: Sequence[str]) -> str:
    names = [str(PurePosixPath(model).with_suffix(".npz")) for model in models[:4]]
    return f"name it as one of {', '.join(map(repr, names))}"
