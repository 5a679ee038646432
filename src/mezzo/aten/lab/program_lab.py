"""`TorchLab`: runs a program eagerly, emulated, instrumented, or against another."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch.export import ExportedProgram

from mezzo.aten.edit.apply import Rewritten, refuse_blocks
from mezzo.aten.lab.arithmetic import Arithmetic, AsTyped
from mezzo.aten.lab.emulator import AtenEmulator
from mezzo.aten.lab.inputs import TorchInputs
from mezzo.aten.lab.instruments import AtenInstruments
from mezzo.aten.lab.observer import AtenObserver
from mezzo.aten.lab.pairs import AtenPair
from mezzo.aten.lab.rounding import EMULATED
from mezzo.aten.lab.runner import AtenRunner, tensors_of, wide
from mezzo.aten.lab.subject import TorchSubject
from mezzo.aten.program import Program
from mezzo.aten.read.read import TorchReading, read_program
from mezzo.aten.unpacking import program_of
from mezzo.contracts.lab import Feeds, ObservedValue, Run, Running, WeightTrials
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.contracts.lab import Profiler


class TorchLab:
    """The lab of one program. `arithmetic` computes the reference; default: its own types."""

    formats: Collection[DType] = EMULATED
    profiler: "Profiler | None" = None

    def __init__(self, program: Program, arithmetic: Arithmetic | None = None) -> None:
        self._program, self._arithmetic = program, arithmetic

    @cached_property
    def inputs(self) -> TorchInputs:
        return TorchInputs(self._program)

    @property
    def outputs(self) -> Sequence[str]:
        return [name for name, _ in tensors_of(self._program)]

    def native(self) -> Run:
        return AtenRunner(self._program, self._arithmetic)

    def emulated(self, accumulation: Accumulation | None) -> Run:
        return AtenRunner(self._program, wide(accumulation))

    def emulator(
        self,
        reading: AnyReading,
        formats: Sequence[DType],
        accumulation: Accumulation | None = None,
        *,
        sums_high: Collection[int] = frozenset(),
        limits: Mapping[int, float] = MappingProxyType({}),
        quantized: QuantizedPorts = NO_PORTS,
        in_blocks: Mapping[int, BlockStorage] = MappingProxyType({}),
        stored_floats: Mapping[int, DType] = MappingProxyType({}),
    ) -> AtenEmulator:
        refuse_blocks(reading.graph, [*in_blocks, *stored_floats])
        return AtenEmulator(_own(reading), formats, accumulation, sums_high, limits, quantized)

    def observer(
        self, reading: AnyReading, values: Sequence[int]
    ) -> Callable[[Feeds], Iterator[ObservedValue]]:
        return AtenObserver(_own(reading), values).show

    def weight_trials(self, reading: AnyReading, values: Sequence[int]) -> WeightTrials:
        refuse_blocks(reading.graph, values)
        raise AssertionError("trials of weights are of some weight")

    def subject(self) -> TorchSubject:
        return TorchSubject(self._program, self._arithmetic or AsTyped())

    def pair(
        self, candidate: "Program | Rewritten | ExportedProgram", running: Running
    ) -> AtenPair:
        if isinstance(candidate, ExportedProgram):
            candidate = program_of(candidate)
        other = candidate.program if isinstance(candidate, Rewritten) else candidate
        return AtenPair(self._program, other, running, self._arithmetic)

    def instruments(self, feeds: Feeds) -> AtenInstruments:
        self.inputs.check(feeds)
        return AtenInstruments(read_program(self._program, (DType.FLOAT16,)))


def _own(reading: AnyReading) -> TorchReading:
    assert isinstance(reading, TorchReading), "a lab is handed readings of its own program"
    return reading
