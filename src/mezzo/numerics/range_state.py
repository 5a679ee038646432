"""Half-finished ranges as a file: plain arrays and one JSON text, so that reading a file can run nothing."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.errors import InputError
from mezzo.numerics.npz import NpzFile, pack
from mezzo.numerics.ranges import Accumulator
from mezzo.voices import verb

_VERSION = "mezzo-ranges/2"
_ABOUT = "about"
_PLACES, _WEIGHTS = "bin_places", "bin_weights"  # the bins are mostly empty
_MOST_TEXT = 1 << 26
_REMEDY = "delete it, or name another file, to start anew"


@dataclass(kw_only=True)
class Progress:
    """How far measuring has come. `elements` were seen of the first batch, which fed `fed` numbers; `origins` name the
    batches that matter still.
    """

    model: str
    data: str
    values: int
    batches: int = 0
    samples: int = 0
    elements: int = 0
    fed: int = 0
    content: tuple[str, ...] = ()  # of the files; more of them may have come
    last: str = ""
    origins: dict[int, str] = field(default_factory=dict)


def dump_state(progress: Progress, accumulator: Accumulator) -> bytes:
    """Spell the state as the content of an .npz file."""
    about = {"version": _VERSION, **asdict(progress), "origins": sorted(progress.origins.items())}
    arrays = {name: array for name, array in accumulator.state.items() if name != "bins"}
    bins = accumulator.state["bins"].reshape(-1)
    places = np.flatnonzero(bins)
    return pack(_ABOUT, about, {_PLACES: places, _WEIGHTS: bins[places], **arrays})


def load_state(path: Path, wanted: Progress) -> tuple[Progress, Accumulator]:
    """Read a state. Raises InputError: it is damaged, or of another model or other data than wanted."""
    with NpzFile(path) as opened:
        if _ABOUT not in opened.names:
            raise InputError(f"{path}: is no state of {verb('ranges')}; {_REMEDY}")
        if opened.header(_ABOUT).shape > (_MOST_TEXT,):
            raise _damaged(path, "its text is too long")
        progress = _read_about(path, opened.read(_ABOUT))
        for what in ("model", "data", "values"):
            if getattr(progress, what) != getattr(wanted, what):
                known = f" {getattr(progress, what)!r}, wanted {getattr(wanted, what)!r}" if what == "data" else ""
                other = {"model": "another model", "data": f"other data:{known}", "values": "another model"}[what]
                raise InputError(f"{path}: the state is of {other}; {_REMEDY}")
        if progress.content != wanted.content[: len(progress.content)]:
            raise InputError(f"{path}: the state is of other data: a file has changed since; {_REMEDY}")
        progress.content = wanted.content
        accumulator = Accumulator(progress.values)
        for name, blank in accumulator.state.items():
            if name != "bins":
                accumulator.state[name] = _read_like(path, opened, name, blank)
        places = _read_like(path, opened, _PLACES, None, "i")
        weights = _read_like(path, opened, _WEIGHTS, None, "f")
    _fill_bins(path, accumulator, places, weights)
    return progress, accumulator


def _read_about(path: Path, text: npt.NDArray[Any]) -> Progress:
    try:
        about = json.loads(text.astype(np.uint8).tobytes())
        if about.pop("version") != _VERSION:
            raise InputError(f"{path}: is of another version of mezzo; {_REMEDY}")
        about["content"] = tuple(map(str, about["content"]))
        about["origins"] = {int(number): str(name) for number, name in about["origins"]}
        progress = Progress(**about)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, "its text cannot be read") from error
    texts, numbers = (
        (progress.model, progress.data, progress.last),
        (progress.values, progress.batches, progress.samples, progress.elements, progress.fed),
    )
    if not all(type(t) is str for t in texts) or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
        raise _damaged(path, "its text does not say what it should")
    return progress


def _read_like(
    path: Path, opened: NpzFile, name: str, blank: npt.NDArray[Any] | None, kind: str = ""
) -> npt.NDArray[Any]:
    """Read an array that looks as `blank` does, or is a row of numbers of that kind. No number may be negative, or NaN,
    where none can be.
    """
    if name not in opened.names:
        raise _damaged(path, f"array {name!r} is missing")
    header = opened.header(name)
    fits = (header.shape, header.dtype) == (blank.shape, blank.dtype) if blank is not None else (
        len(header.shape) == 1 and header.dtype.kind == kind
    )  # fmt: skip
    if not fits:
        raise _damaged(path, f"array {name!r} is {header.dtype}{list(header.shape)}")
    array = opened.read(name)
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise _damaged(path, f"array {name!r} holds NaN")
    if name not in ("lowest", "highest", "largest", "largest_at") and array.dtype.kind in "if" and (array < 0).any():
        raise _damaged(path, f"array {name!r} holds negative numbers")
    return array


def _fill_bins(path: Path, accumulator: Accumulator, places: npt.NDArray[Any], weights: npt.NDArray[Any]) -> None:
    bins = accumulator.state["bins"].reshape(-1)
    if len(places) != len(weights) or (len(places) and int(places.max()) >= len(bins)):
        raise _damaged(path, "its bins do not fit")
    bins[places] = weights


def _damaged(path: Path, what: str) -> InputError:
    return InputError(f"{path}: the state is damaged, {what}; {_REMEDY}")
