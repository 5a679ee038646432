"""Opens exported programs, from memory and from files, and graphs that a compiler hands over."""

from typing import Any

from torch.export import ExportedProgram

from mezzo.core.frontend import Progress
from mezzo.errors import InputError
from mezzo.frontends.torch.model import TorchModel
from mezzo.frontends.torch.program import Program


def open_model(source: Any, *, progress: Progress | None) -> TorchModel:
    """Open a program. Raises InputError: it cannot be read."""
    if isinstance(source, Program):
        return TorchModel(source, progress)
    if isinstance(source, ExportedProgram):
        raise InputError("exported programs come later")
    raise InputError("files come later")
