"""Opens exported programs, and graphs that a compiler hands over."""

import os
from typing import Any

from torch.export import ExportedProgram

from mezzo.core.frontend import Progress
from mezzo.errors import InputError, ModelError
from mezzo.frontends.torch.apply import Rewritten
from mezzo.frontends.torch.exported import ExportedModel
from mezzo.frontends.torch.model import TorchModel
from mezzo.frontends.torch.program import Program
from mezzo.frontends.torch.unpacking import program_of

_LONGEST_FAULT = 300


def open_model(source: Any, *, progress: Progress | None) -> TorchModel:
    """Open a program.

    Raises:
        InputError: it is a file, which only PyTorch itself should load.
        ModelError: PyTorch cannot bring it into functional form.
    """
    if isinstance(source, Program | Rewritten):
        return TorchModel(source.program if isinstance(source, Rewritten) else source, progress)
    if isinstance(source, ExportedProgram):
        exported = functional(source)
        return ExportedModel(program_of(exported), exported, progress)
    raise InputError(
        f"{os.fspath(source)!r} is a saved program of PyTorch's, which unpickles what it reads; if you trust the file, "
        f"load it yourself and hand it over: mezzo.convert(torch.export.load(...))"
    )


def functional(exported: ExportedProgram) -> ExportedProgram:
    """The program without operators that write into their operands; composites stay whole.

    Raises ModelError: PyTorch cannot do so.
    """
    try:
        made: ExportedProgram = exported.run_decompositions({})
        return made
    except Exception as error:
        said = " ".join(str(error).split())[:_LONGEST_FAULT]
        raise ModelError(
            f"the program cannot be brought into functional form: {type(error).__name__}: {said}; export it anew"
        ) from error
