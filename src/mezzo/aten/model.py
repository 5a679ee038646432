"""`TorchModel`, the front end's model contract implemented over FX graphs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mezzo.aten import FRONTEND
from mezzo.aten.edit.apply import Rewritten, apply_edits
from mezzo.aten.edit.constants import correct
from mezzo.aten.edit.rescaling import rescaled_copy
from mezzo.aten.lab.program_lab import TorchLab
from mezzo.aten.program import Program, dtype_of
from mezzo.aten.read.groups import dialect_and_op
from mezzo.aten.read.read import TorchReading, facts_of, read_program
from mezzo.common.errors import InputError
from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import (
    Applied,
    ConversionRecord,
    Fault,
    Frontend,
    Port,
    Progress,
)
from mezzo.contracts.plans import Edit, Rescaling
from mezzo.contracts.reading import Artifact, Extract
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.contracts.replacements import Replacement
from mezzo.contracts.sequences.sequence_lab import SequenceLab
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.ir.graph import Graph
from mezzo.tables.target import Respelling

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Store


@dataclass(frozen=True)
class TracedValidity:
    """The validity of a source; a traced program is always valid."""

    is_valid: bool = True
    fault: str | None = None


class TorchModel:
    """A functional graph to convert. Results are `Rewritten`."""

    leniency: str | None = None
    version: int | None = None
    record: ConversionRecord | None = None
    standing = TracedValidity()
    store: "Store | None" = None
    path: Path | None = None  # programs are in memory, even if loaded from a file

    def __init__(self, program: Program, progress: Progress | None = None) -> None:
        self.original, self.progress = program, progress
        self.name = program.name
        self.frontend: Frontend = FRONTEND

    def of(self, program: Program) -> "TorchModel":
        """The model of a program that was made of this one's."""
        return TorchModel(program, self.progress)

    @property
    def given(self) -> "TorchModel":
        return self

    @cached_property
    def lab(self) -> SequenceLab:
        return SequenceLab(TorchLab(self.original))

    @property
    def size_bytes(self) -> int:
        return self.size_of(self.original)

    def read(self, *lows: DType, version: int | None = None) -> TorchReading:
        return read_program(self.original, lows)

    peek = read

    def next_version(
        self, reading: AnyReading, wanted: Mapping[DType, Sequence[int]], limit: int | None
    ) -> int | None:
        return None

    def obstacle(
        self, reading: AnyReading, wanted: Mapping[DType, Sequence[int]], limit: int | None
    ) -> str | None:
        return None

    def least_version(
        self, reading: AnyReading, first: AnyReading, nodes: Mapping[DType, Sequence[int]]
    ) -> int:
        raise AssertionError("ATen states no version")

    def weights(
        self, reading: AnyReading, values: Sequence[int]
    ) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        torch_reading, constants = own_reading(reading), self.original.constants
        for value in values:
            holder = torch_reading.holders[value]
            weight = None if holder is None else constants.get(holder.name)
            if (
                holder is not None
                and weight is not None
                and weight.tensor is not None
                and dtype_of(holder) is HIGH
            ):
                yield value, np.ldexp(weight.tensor().detach().cpu().numpy(), weight.exponent)

    def widened(self, ports: Collection[str] = ()) -> "TorchModel":
        """The model itself: what a program has in lower floats stays so."""
        return self

    def widening_obstacle(self) -> str | None:
        """None: `widened` returns the model itself."""
        return None

    def fused(
        self,
        reading: AnyReading,
        apart: Sequence[int],
        copied: float = 1.0,
        respellings: Sequence[Respelling] = (),
    ) -> "TorchModel":
        return self

    def has_operators(self, names: Set[str]) -> bool:
        """Never: the operators that are replaced are ONNX's."""
        return False

    def raised(
        self, reading: AnyReading, replacements: Sequence[Replacement], version: int
    ) -> "TorchModel":
        raise AssertionError("programs of PyTorch have none of these operators")

    def rescaled(self, reading: AnyReading, changes: Rescaling) -> "TorchModel":
        return self.of(rescaled_copy(own_reading(reading), changes))

    def exchanged(self, weights: Mapping[str, object]) -> "TorchModel":
        if weights:
            raise InputError(f"{self.name}: weights of PyTorch programs are not stored in blocks")
        return self

    def corrected(self, corrections: Sequence[Correction]) -> "TorchModel":
        return self.of(correct(self.read(), corrections)) if corrections else self

    def apply(self, reading: AnyReading, edits: Sequence[Edit]) -> Rewritten:
        return apply_edits(own_reading(reading), edits)

    def applied(self, reading: AnyReading) -> Applied:
        return Applied((), None)

    def replaced(
        self,
        result: Rewritten,
        lows: Sequence[DType],
        find: Callable[[Graph], Sequence[Replacement]],
    ) -> Rewritten:
        return result

    def unchanged(self, reading: AnyReading) -> Rewritten:
        return Rewritten(program=own_reading(reading).program, casts=(), sums=(), fault=None)

    def fault(self, graph: Graph, result: Rewritten) -> Fault | None:
        return result.fault

    def note_record(self, result: Artifact, text: str) -> None:
        """Do nothing: a graph in memory has no metadata to write to."""

    def runnable(self, result: "Rewritten | Program") -> Artifact:
        return self.materialize(result)

    def materialize(self, result: "Rewritten | Program") -> Artifact:
        return result

    def size_of(self, whole: Rewritten | Program) -> int:
        return (whole.program if isinstance(whole, Rewritten) else whole).weight_bytes

    def ports(self, result: Rewritten | None = None) -> tuple[Port, ...]:
        program = self.original if result is None else result.program
        ports = []
        for node in program.graph.find_nodes(op="placeholder"):
            dtype = dtype_of(node)
            if dtype is not None and node.name not in program.weights:
                ports.append(Port(program.names.get(node.name, node.name), True, dtype))
        for name, returned in program.returned:
            dtype = None if returned is None else dtype_of(returned)
            if dtype is not None:
                ports.append(Port(name, False, dtype))
        return tuple(ports)

    def low_weights(self) -> DType | None:
        dtypes = [
            dtype_of(node)
            for node in self.original.graph.nodes
            if node.name in self.original.weights
        ]
        counts = {dtype: dtypes.count(dtype) for dtype in (*LOW_DTYPES.values(), HIGH)}
        commonest = max(LOW_DTYPES.values(), key=lambda dtype: counts[dtype])
        return commonest if counts[commonest] > counts[HIGH] else None

    def operators(self) -> Set[tuple[str, str]]:
        calls = [node for node in self.original.graph.nodes if node.op == "call_function"]
        return {dialect_and_op(call.target, facts_of) for call in calls}

    def attributes_of(self, op: str) -> Set[str] | None:
        return None

    def show(self) -> str:
        return str(self.original.graph)

    def extract(self, reading: AnyReading, nodes: Sequence[int]) -> Extract:
        raise InputError(
            f"{self.name}: no part is taken out of a PyTorch program; export the module that"
            " holds it"
        )


def own_reading(reading: AnyReading) -> TorchReading:
    """Narrow a reading to this front end's type."""
    assert isinstance(reading, TorchReading), "a model is handed its own readings"
    return reading
