"""Which data is for which model of a folder: names say so."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Data

    FolderData = Data | Mapping[str, Data]


def find_data(data: "FolderData | None", models: Sequence[str]) -> "dict[str, Data]":
    """Give each model of a folder its data; those that have none are missing.

    `data` maps models to data by name, or is a folder with `encoder_model.npz`, or a folder of .npz files named
    `encoder_model`, for the model `encoder_model.onnx`, in the same subfolder as the model or at the top. Where the
    folder has one model, data of a single model will do.

    Raises:
        InputError: there is no such data, or some belongs to no model.
    """
    if data is None:
        return {}
    stems = _stems(models)
    if isinstance(data, Mapping):
        for name in data:
            if name not in stems:
                raise InputError(f"data has {name!r}, which is no model to convert; {_wanted(models)}")
        return {stems[name]: given for name, given in data.items()}
    if isinstance(data, str | os.PathLike) and Path(data).is_dir():
        return _find_files(Path(data), stems, models)
    if len(models) == 1:
        return {models[0]: data}
    raise InputError(
        f"the folder has {len(models)} models, so their data has to tell which is for which: give a folder of .npz "
        f"files named like the models, such as {PurePosixPath(models[0]).with_suffix('.npz').name!r}"
    )


def _find_files(folder: Path, stems: Mapping[str, str], models: Sequence[str]) -> "dict[str, Data]":
    by_stem: dict[str, Path] = {}
    strange = []
    for path in sorted(folder.rglob("*.npz")):
        inside = PurePosixPath(path.relative_to(folder).as_posix())
        is_own = str(inside.with_suffix("")) in stems
        name = str(inside.with_suffix("") if is_own else inside.parent)
        if name not in stems:
            strange.append(str(inside))
            continue
        held = path if is_own else path.parent
        before = by_stem.setdefault(stems[name], held)
        if before != held:
            raise InputError(f"{os.fspath(before)!r} and {os.fspath(held)!r} are both for {stems[name]!r}; keep one")
    if len(models) == 1 and not by_stem:
        return {models[0]: folder}
    if strange:
        raise InputError(f"{os.fspath(folder / strange[0])!r} belongs to no model to convert; {_wanted(models)}")
    if not by_stem:
        raise InputError(f"{os.fspath(folder)!r} has no .npz files; {_wanted(models)}")
    return dict(by_stem)


def _stems(models: Sequence[str]) -> dict[str, str]:
    """Models by the names that data may have: the path without suffix and, where only one has it, the last part."""
    paths = {str(PurePosixPath(model).with_suffix("")): model for model in models}
    last: dict[str, list[str]] = {}
    for model in models:
        last.setdefault(PurePosixPath(model).stem, []).append(model)
    return {name: several[0] for name, several in last.items() if len(several) == 1} | paths


def _wanted(models: Sequence[str]) -> str:
    names = [str(PurePosixPath(model).with_suffix(".npz")) for model in models[:4]]
    return f"name it as one of {', '.join(map(repr, names))}"
