"""Half-finished collections as a file: plain arrays and JSON texts, so that reading a file can run nothing."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.errors import InputError
from mezzo.numerics.npz import NpzFile, pack
from mezzo.quant.collector import Collector

_VERSION = "mezzo-collected/1"
_JOURNAL = "journal"
_MOST_TEXT = 1 << 26
_REMEDY = "delete it, or name another file, to start anew"


@dataclass(kw_only=True)
class Collected:
    """How far collecting has come. `content` tells files of the same names apart, more of which may have come; `last`
    is the origin of the last batch.
    """

    model: str
    data: str
    content: tuple[str, ...]
    values: tuple[str, ...]
    batches: int = 0
    samples: int = 0
    last: str = ""


def dump_journal(done: Collected, collector: Collector) -> bytes:
    """Spell a collection as the content of an .npz file."""
    return pack(_JOURNAL, {"version": _VERSION, **asdict(done)}, collector.state())


def load_journal(path: Path, wanted: Collected) -> tuple[Collected, Collector]:
    """Read a collection. Raises InputError: it is damaged, or of another model or other data than wanted."""
    with NpzFile(path) as opened:
        if _JOURNAL not in opened.names:
            raise InputError(f"{path}: keeps no calibration; {_REMEDY}")
        if opened.header(_JOURNAL).shape > (_MOST_TEXT,):
            raise _damaged(path)
        done = _read(path, opened.read(_JOURNAL))
        for what in ("model", "values", "data"):
            if getattr(done, what) != getattr(wanted, what):
                other = "another model" if what in ("model", "values") else "other data"
                raise InputError(f"{path}: the calibration is of {other}; {_REMEDY}")
        if done.content != wanted.content[: len(done.content)]:
            raise InputError(f"{path}: the calibration is of other data: a file has changed since; {_REMEDY}")
        done.content = wanted.content
        arrays = {name: opened.read(name) for name in opened.names if name != _JOURNAL}
    collector = Collector.from_state(arrays, str(path))
    if not set(collector.names) <= set(wanted.values):
        raise _damaged(path)
    return done, collector


def _read(path: Path, text: npt.NDArray[Any]) -> Collected:
    try:
        about = json.loads(text.astype(np.uint8).tobytes())
        if about.pop("version") != _VERSION:
            raise InputError(f"{path}: is of another version of mezzo; {_REMEDY}")
        about["values"], about["content"] = (tuple(map(str, about[name])) for name in ("values", "content"))
        done = Collected(**about)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path) from error
    texts, numbers = (done.model, done.data, done.last), (done.batches, done.samples)
    if not all(type(each) is str for each in texts) or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
        raise _damaged(path)
    return done


def _damaged(path: Path) -> InputError:
    return InputError(f"{path}: what it keeps of a calibration is damaged; {_REMEDY}")
