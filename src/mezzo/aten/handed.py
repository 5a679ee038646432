"""A graph that a compiler hands over, and holds on to: it is edited where it stands."""

from collections.abc import Sequence

from mezzo.aten.apply import Rewritten, edit_in_place
from mezzo.aten.journal import Journal
from mezzo.aten.model import TorchModel, own_reading
from mezzo.aten.program import Program
from mezzo.aten.read.read import TorchReading, read_program
from mezzo.contracts.frontend import Progress
from mezzo.contracts.plans import Edit
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.dtypes import DType


class HandedModel(TorchModel):
    """A compiler's graph. Applying edits it; it is as it was again where PyTorch has something against a call."""

    def __init__(self, program: Program, progress: Progress | None = None) -> None:
        super().__init__(program, progress)
        self._journal = Journal(program.graph)

    def read(self, low: DType, version: int | None = None) -> TorchReading:
        return read_program(self.original, low, self._unread)

    @property
    def _unread(self) -> frozenset[str]:
        """Copies of weights that may come in, before anybody reads them, are no part of what is planned."""
        inputs = (node for node in self.original.graph.nodes if node.op == "placeholder")
        return frozenset(node.name for node in inputs if not node.users)

    def apply(self, reading: AnyReading, edits: Sequence[Edit]) -> Rewritten:
        made = edit_in_place(own_reading(reading), edits, self._journal)
        if made.fault is not None:
            self.restore()
        return made

    def restore(self) -> None:
        """Bring the graph back to what it was when it was handed over."""
        self._journal.undo()
