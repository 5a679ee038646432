"""`HandedModel`, a compiler's graph that is edited in place."""

from collections.abc import Sequence

from mezzo.aten.edit.apply import Rewritten, edit_in_place
from mezzo.aten.edit.constants import correct
from mezzo.aten.edit.journal import EditJournal
from mezzo.aten.edit.rescaling import rescale_in_place
from mezzo.aten.model import TorchModel, own_reading
from mezzo.aten.program import Program
from mezzo.aten.read.read import TorchReading, read_program
from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Progress
from mezzo.contracts.plans import Edit, Rescaling
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.dtypes import DType


class HandedModel(TorchModel):
    """A compiler's graph. Edits are in place, and undone if PyTorch rejects a call."""

    def __init__(
        self,
        program: Program,
        progress: Progress | None = None,
        journal: EditJournal | None = None,
    ) -> None:
        super().__init__(program, progress)
        self._journal = EditJournal(program.graph) if journal is None else journal

    def of(self, program: Program) -> "HandedModel":
        return HandedModel(program, self.progress)

    def rescaled_in_place(self, reading: AnyReading, changes: Rescaling) -> "HandedModel":
        """The model, whose own graph has power-of-two scales now, until it is restored."""
        program = rescale_in_place(own_reading(reading), changes, self._journal)
        return HandedModel(program, self.progress, self._journal)

    def read(self, *lows: DType, version: int | None = None) -> TorchReading:
        return read_program(self.original, lows, self._unread)

    @property
    def _unread(self) -> frozenset[str]:
        """Unused placeholders: inputs for low-precision weights that planning ignores."""
        inputs = self.original.graph.find_nodes(op="placeholder")
        return frozenset(node.name for node in inputs if not node.users)

    def apply(self, reading: AnyReading, edits: Sequence[Edit]) -> Rewritten:
        result = edit_in_place(own_reading(reading), edits, self._journal)
        if result.fault is not None:
            self.restore()
        return result

    def corrected(self, corrections: Sequence[Correction]) -> "HandedModel":
        """The model with other elements of its weights: the graph still reads the caller's own."""
        if not corrections:
            return self
        program = correct(self.read(), corrections)
        return HandedModel(program, self.progress, self._journal)

    def restore(self) -> None:
        """Undo all edits of the graph."""
        self._journal.undo()
