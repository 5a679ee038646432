"""The lab of an ONNX model: native and emulated runs, comparison, calibration, timing."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import onnx

from mezzo.contracts.lab import Feeds, ObservedValue, Run, Running
from mezzo.contracts.plans import Accumulation, Edit
from mezzo.contracts.profiles import Effort, NodeTimes
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.contracts.sequences.sequence_lab import SequenceLab
from mezzo.contracts.timings import Loading, Stopwatch
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import DType
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.files.save import save
from mezzo.onnx.measure.inputs import OnnxInputs
from mezzo.onnx.measure.instruments import OnnxInstruments
from mezzo.onnx.measure.observing import OnnxObserver
from mezzo.onnx.measure.pairs import OnnxPair
from mezzo.onnx.measure.subject import OnnxSubject
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.protos.graphs import inline_functions
from mezzo.onnx.protos.lowcast import FORMATS
from mezzo.onnx.read.reading import own
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.parts import OnnxParts
from mezzo.onnx.run.runtime import ALL_CORES, EMULATING
from mezzo.onnx.run.session import native_session
from mezzo.onnx.run.weight_trials import OnnxWeightTrials
from mezzo.tables.target import Target


class OnnxLab:
    """Runs one model and its converted forms; implements the contract `contracts.lab`."""

    formats = FORMATS

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self.profiler = OnnxProfiler(model)

    @cached_property
    def inputs(self) -> OnnxInputs:
        return OnnxInputs(self._model.original)

    @property
    def outputs(self) -> Sequence[str]:
        return [port.name for port in self._model.original.graph.output]

    def native(self) -> Run:
        return _native(self._whole)

    def emulated(self, accumulation: Accumulation | None) -> Run:
        runnable = self._whole
        return emulated_session(
            runnable.model, accumulation=accumulation, settings=EMULATING, weights=runnable.weights
        ).run

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
    ) -> OnnxEmulator:
        return OnnxEmulator(
            self._model,
            own(reading),
            formats,
            accumulation,
            sums_high=sums_high,
            limits=limits,
            quantized=quantized,
            in_blocks=in_blocks,
            stored_floats=stored_floats,
        )

    def observer(
        self, reading: AnyReading, values: Sequence[int]
    ) -> Callable[[Feeds], Iterator[ObservedValue]]:
        runnable = self._model.runnable(self._model.unchanged(reading))
        return OnnxObserver(runnable, own(reading).graph, values)

    def weight_trials(self, reading: AnyReading, values: Sequence[int]) -> OnnxWeightTrials:
        graph = own(reading).graph
        runnable = self._model.runnable(self._model.unchanged(reading))
        return OnnxWeightTrials(runnable, {value: graph.values[value].name for value in values})

    def subject(self) -> OnnxSubject:
        runnable = self._whole
        return OnnxSubject(runnable.with_model(inline_functions(runnable.model)), _native)

    def pair(self, candidate: RunnableModel, running: Running) -> OnnxPair:
        return OnnxPair(self._whole, candidate, running)

    def instruments(self, feeds: Feeds) -> OnnxInstruments:
        return OnnxInstruments(self._model, feeds)

    @property
    def _whole(self) -> RunnableModel:
        return self._model.runnable(self._model.original)


def open_lab(model: OnnxModel) -> SequenceLab:
    """The lab of a model, which also runs sequences."""
    return SequenceLab(OnnxLab(model))


def _native(runnable: RunnableModel) -> Run:
    return native_session(runnable.model, weights=runnable.weights, settings=ALL_CORES).run


def _find_runtime(target: Target, *, is_timed: bool) -> str:
    from mezzo.onnx.profile.runtimes import run_on, timed_on

    return timed_on(target) if is_timed else run_on(target)


class OnnxProfiler:
    """Times a model and its variants in a child process."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model

    def find_runtime(self, target: Target) -> str:
        from mezzo.onnx.profile.runtimes import profiling_version

        return profiling_version(target)

    def variant(self, reading: AnyReading, edits: Sequence[Edit]) -> onnx.ModelProto:
        from mezzo.onnx.profile.variants import variant

        return variant(self._model, own(reading), edits)

    def profile(
        self, variants: Sequence[onnx.ModelProto], target: Target, feeds: Feeds,
        weights: Mapping[str, float], effort: Effort,
    ) -> tuple[NodeTimes, ...]:  # fmt: skip
        from mezzo.onnx.profile.nodes import profile_models
        from mezzo.onnx.profile.variants import label_of

        source = self._model.source

        def write(variant: onnx.ModelProto, path: Path) -> None:
            save(variant, source, path)

        return profile_models(variants, target, feeds, label_of, weights, effort, write)

    def find_loaded(self, target: Target) -> str:
        return _find_runtime(target, is_timed=False)

    def find_timed(self, target: Target) -> str:
        return _find_runtime(target, is_timed=True)

    def parts(self) -> OnnxParts:
        return OnnxParts(self._model.original)

    def stopwatch(self, target: Target, feeds: Feeds, loading: Loading) -> Stopwatch:
        from mezzo.onnx.profile.stopwatch import OnnxStopwatch

        model = self._model
        if model.path is None:
            return OnnxStopwatch(model.materialize(model.original), target, feeds, loading)
        return OnnxStopwatch(model.path, target, feeds, loading, structure=model.original)
