"""Opening of exported programs and of graphs from a compiler."""

import warnings
from typing import Any

from torch.export import ExportedProgram

from mezzo.aten import encoder_layers
from mezzo.aten.edit.apply import Rewritten
from mezzo.aten.exported import ExportedModel
from mezzo.aten.model import TorchModel
from mezzo.aten.parts import with_parts_node_by_node
from mezzo.aten.program import Program
from mezzo.aten.unpacking import program_of
from mezzo.common.errors import ModelError, spell_raised
from mezzo.contracts.frontend import Progress

_LONGEST_FAULT = 300


def open_model(source: Any, *, progress: Progress | None) -> TorchModel:
    """Open a program.

    Raises ModelError: PyTorch cannot bring it into functional form.
    """
    if isinstance(source, Program | Rewritten):
        return TorchModel(source.program if isinstance(source, Rewritten) else source, progress)
    assert isinstance(source, ExportedProgram), "a front end opens what it says that it opens"
    exported = functional(source)
    return ExportedModel(program_of(exported), exported, progress)


def functional(exported: ExportedProgram) -> ExportedProgram:
    """The program in functional form: without in-place operators; composite operators stay whole.

    Raises ModelError: PyTorch cannot functionalize it.
    """
    try:
        with warnings.catch_warnings():  # PyTorch uses its own deprecated class
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            result: ExportedProgram = with_parts_node_by_node(exported).run_decompositions(
                dict(encoder_layers.DECOMPOSITIONS)
            )
        return result
    except Exception as error:
        message = spell_raised(error, _LONGEST_FAULT)
        raise ModelError(
            f"the program cannot be brought into functional form: {message}; export it anew"
        ) from error
