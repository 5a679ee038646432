"""The PyTorch front end: functional ATen graphs, as produced by torch.export and AOTAutograd.

Importing it does not load torch; opening a program does.
"""

import os
from typing import TYPE_CHECKING, Any

from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Frontend, Progress, Words
from mezzo.formats.dtypes import LOW_DTYPES
from mezzo.plugins.discovery import target_for_device

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model


class TorchFrontend(Frontend):
    """Exported programs, in memory and as `.pt2` files."""

    name = "torch"
    dialect = "aten"
    suffixes = (".pt2",)
    words = Words(
        form="ATen",
        checker="PyTorch",
        version="version",
        sources=("a torch.export.ExportedProgram",),
        elsewhere="for others export the module to ONNX and convert that",
    )
    formats = (*LOW_DTYPES, "int8")
    rescales = True

    @property
    def usual_target(self) -> str | None:
        usual = target_for_device("cpu")
        return None if usual is None else usual.name

    def opens(self, source: object) -> bool:
        kind = type(source)
        return (kind.__module__, kind.__name__) in (
            ("torch.export.exported_program", "ExportedProgram"),
            ("mezzo.aten.edit.apply", "Rewritten"),
            ("mezzo.aten.program", "Program"),
        )

    def open(
        self, source: Any, *, trust_external_paths: bool, progress: Progress | None
    ) -> "Model":
        if isinstance(source, str | os.PathLike):
            raise InputError(
                f"{os.fspath(source)!r} is a saved program of PyTorch's, which unpickles what it"
                " reads; if you trust the file, load it in Python with torch.export.load, and"
                " convert what that gives"
            )
        from mezzo.aten.opening import open_model

        return open_model(source, progress=progress)


FRONTEND = TorchFrontend()
