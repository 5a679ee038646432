"""Store that writes converted ONNX models and loads them again."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import onnx

from mezzo.contracts.frontend import Progress
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.files.save import DATA_SUFFIX, save


class OnnxStore:
    """Writes models converted from one source. `data_suffix` ends the name of their data file."""

    def __init__(self, source: ModelSource, progress: Progress | None) -> None:
        self._source, self._progress = source, progress
        self.data_suffix = _find_data_suffix(source)

    @property
    def companions(self) -> Sequence[str]:
        return [file.path for file in self._source.files[1:]]

    def write(
        self, result: onnx.ModelProto, dst: str | os.PathLike[str], *, overwrite: bool
    ) -> int:
        progress = None if self._progress is None else partial(self._progress, "writing")
        saved = save(
            result, self._source, dst, overwrite=overwrite, data_suffix=self.data_suffix,
            progress=progress
        )  # fmt: skip
        return saved.size_bytes

    @staticmethod
    def load(path: Path) -> onnx.ModelProto:
        return onnx.load(os.fspath(path))


def _find_data_suffix(source: ModelSource) -> str:
    """Suffix of the source's data file, as Hugging Face tools expect model.onnx_data."""
    named = {os.path.basename(file.path) for file in source.files[1:]}
    return (
        "_data" if source.path is not None and f"{source.path.name}_data" in named else DATA_SUFFIX
    )
