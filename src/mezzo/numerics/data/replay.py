"""Batches of an iterable that can be read only once, kept for further passes: the first megabytes
in memory, the rest in a temporary file without a name.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mezzo.common.errors import InputError
from mezzo.common.memory import current_memory_limit

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Stored:
    """An array in the file."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Replay:
    """Iterates over batches as often as needed, and reads each once. Passes may end early, and may
    alternate.
    """

    def __init__(self, batches: Iterator[Mapping[str, Any]]) -> None:
        self._batches = batches
        self._kept: list[dict[str, Any]] = []
        self._end = 0
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed with this object
            max_size=current_memory_limit().share_bytes(_MOST_BYTES)
        )

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        position = 0
        while True:
            if position < len(self._kept):
                yield self._load(self._kept[position])
            else:
                batch = next(self._batches, None)
                if batch is None:
                    return
                self._keep(batch)
                yield batch
            position += 1

    def _keep(self, batch: Mapping[str, Any]) -> None:
        try:
            self._kept.append({name: self._store(value) for name, value in batch.items()})
        except OSError as error:
            raise InputError(
                f"data: batches that can be read only once are kept in a temporary file, which"
                f" cannot be written ({error.strerror}); pass a function that makes them anew"
            ) from error

    def _store(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return value
        offset = self._end
        self._file.seek(offset)
        self._file.write(np.ascontiguousarray(value).tobytes())
        self._end += value.nbytes
        return _Stored(offset, value.shape, value.dtype)

    def _load(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._read(value) if isinstance(value, _Stored) else value
            for name, value in batch.items()
        }

    def _read(self, stored: _Stored) -> Any:
        array = np.empty(stored.shape, stored.dtype)
        self._file.seek(stored.offset)
        content = self._file.read(array.nbytes)
        array.reshape(-1).view(np.uint8)[:] = np.frombuffer(content, np.uint8)
        return array
