"""Runs programs of the toy dialect in numpy: every line in FP32, rounded to the dtype that it computes in."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from toy_frontend import NUMPY, Array, Reading, ToyModel, ToyProgram, digest_of, round_to

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.lab import (
    Answers,
    Feeds,
    Layers,
    MeasuredValue,
    ObservedValue,
    Reached,
    Records,
    Run,
    Running,
    WeightTrials,
)
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.input_roles import Slot
from mezzo.ir.nodes import Kind

_OPERATORS: Mapping[str, Callable[..., Array]] = {
    "blur": lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5)),
    "explode": np.exp,
    "join": np.add,
    "move": lambda x: x,
    "plus": np.add,
    "product": lambda x, w: x @ w,
}


def compute(program: ToyProgram, feeds: Feeds) -> dict[str, Array]:
    """Every value of a program, as FP32 numbers that its dtype holds."""
    found: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        for words in program.lines:
            match words:
                case ("in", name, *_):
                    found[name] = round_to(np.asarray(feeds[name], np.float32), program.dtypes[name])
                case ("const", name, _):
                    found[name] = program.weights[name].astype(np.float32)
                case (name, "=", op, *operands):
                    read = [found[operand] for operand in operands]
                    made = read[0] if op.startswith("cast.") else _OPERATORS[op](*read)
                    found[name] = round_to(made, program.dtypes[name])
    return found


class ToyInputs:
    """What a program is fed: [N, elements] for each input."""

    optional: frozenset[str] = frozenset()
    empty: Collection[str] = ()
    fixed_length: int | None = None
    has_fixed_length = False

    def __init__(self, program: ToyProgram) -> None:
        self._widths = {words[1]: int(words[2]) for words in program.lines if words[0] == "in"}
        self.names = tuple(self._widths)

    @property
    def types(self) -> Sequence[Slot]:
        return self.slots

    @property
    def slots(self) -> Sequence[Slot]:
        return [Slot(name=name, dtype=DType.FLOAT32, lengths=("N", width)) for name, width in self._widths.items()]

    def check(self, feeds: Feeds) -> None:
        for name, width in self._widths.items():
            shape = np.shape(feeds[name])
            if len(shape) != 2 or shape[1] != width:
                raise InputError(f"input {name!r}: found {list(shape)}, wanted [N, {width}]; feed such an array")

    def typed(self, feeds: Feeds) -> Feeds:
        return {name: np.asarray(feed, np.float32) for name, feed in feeds.items()}


@dataclass(frozen=True)
class ToySubject:
    """A program whose answers are judged."""

    program: ToyProgram

    @cached_property
    def inputs(self) -> ToyInputs:
        return ToyInputs(self.program)

    def reached(self, fed: Collection[str]) -> dict[str, Reached]:
        known: dict[str, Reached] = {}
        for words in self.program.lines:
            match words:
                case ("in" | "const", name, *_):
                    known[name] = Reached(frozenset({self.program.dtypes[name]}), name in fed)
                case (name, "=", _, *operands):
                    read = [known[operand] for operand in operands]
                    formats = frozenset({self.program.dtypes[name]}).union(*(each.formats for each in read))
                    known[name] = Reached(formats, any(each.reads_data for each in read))
        return {name: known[held] for name, held in self.program.shown().items()}

    def moved(self, move: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], most_bytes: int) -> Run:
        weights = {name: move(array) for name, array in self.program.weights.items()}
        return _run_of(replace(self.program, weights=weights))


@dataclass(frozen=True)
class ToyPair:
    """Two programs side by side; outputs belong together by name."""

    programs: tuple[ToyProgram, ToyProgram]
    notes: Sequence[str] = ()

    @property
    def formats(self) -> Sequence[frozenset[DType]]:
        return [frozenset(program.dtypes.values()) for program in self.programs]

    @property
    def outputs(self) -> Mapping[str, str]:
        names = [program.shown().keys() for program in self.programs]
        lost = names[0] - names[1]
        if lost:
            raise InputError(f"the program lacks output {min(lost)!r} of the reference; compare programs of one origin")
        return {name: name for name in names[0]}

    @property
    def reference(self) -> ToySubject:
        return ToySubject(self.programs[0])

    def saturating(self) -> Sequence[str]:
        return ()

    def reached(self, fed: Collection[str]) -> Mapping[str, tuple[Reached, Reached]]:
        ours, theirs = (ToySubject(program).reached(fed) for program in self.programs)
        return {name: (ours[name], theirs[name]) for name in self.outputs}

    def load(self, layers: Layers) -> "ToySessions":
        return ToySessions(self.programs, tuple(layers))

    def candidate(self) -> Run:
        return lambda feeds: self.load({}).run(feeds)[1]

    def layers(self) -> Layers:
        shown = {held for program in self.programs for held in program.shown().values()}
        results = [{words[0] for words in program.lines if words[1] == "="} for program in self.programs]
        return dict.fromkeys(name for name in self.programs[0].dtypes if name in results[0] & results[1] - shown)

    def split_layers(self, layers: Layers, feeds: Feeds) -> Sequence[Layers]:
        return [layers] if layers else []


@dataclass(frozen=True)
class ToySessions:
    """Both programs, ready to run."""

    programs: tuple[ToyProgram, ToyProgram]
    layers: tuple[str, ...]

    def run(self, feeds: Feeds, apart: Feeds | None = None) -> tuple[Answers, Answers]:
        reference, candidate = self.programs
        return self._answers(reference, feeds), self._answers(candidate, feeds if apart is None else apart)

    def _answers(self, program: ToyProgram, feeds: Feeds) -> Answers:
        values = compute(program, feeds)
        return {name: values[held] for name, held in program.shown().items()} | {n: values[n] for n in self.layers}

    def notes(self) -> list[str]:
        return []


@dataclass(frozen=True)
class ToyEmulator:
    """Runs any assignment: operands and results of a node are rounded to its format."""

    program: ToyProgram
    graph: Graph
    limits: Mapping[int, float]

    def run(self, feeds: Feeds, precision_of: Mapping[int, DType]) -> Answers:
        found: dict[int, Array] = {}
        answers: dict[str, Array] = {}
        with np.errstate(all="ignore"):
            for node in self.graph.nodes:
                dtype = precision_of.get(node.id, HIGH)
                read = [round_to(found[value], dtype) for value in node.inputs if value is not None]
                match node.kind:
                    case Kind.INPUT:
                        made = np.asarray(feeds[node.name.removeprefix("input ")], np.float32)
                    case Kind.SOURCE:
                        made = self.program.weights[node.name.removeprefix("weight ")].astype(np.float32)
                    case Kind.OUTPUT:
                        answers[node.name.removeprefix("output ")] = read[0]
                        continue
                    case _:
                        made = _OPERATORS[node.op](*read)
                (value,) = node.outputs
                assert value is not None, "every line makes a value"
                found[value] = round_to(made, HIGH if node.kind is Kind.SOURCE else dtype)
        return answers


class ToyInstruments:
    """Measures every value that is not a weight; its samples are all of it."""

    skipped: tuple[str, ...] = ()
    elements = 0

    def __init__(self, program: ToyProgram, graph: Graph) -> None:
        self._program, self.fingerprint = program, digest_of(program)
        producers = [graph.nodes[value.producer] for value in graph.values]
        measured = [(v, n) for v, n in zip(graph.values, producers, strict=True) if n.kind is not Kind.SOURCE]
        self.values = [MeasuredValue(at, value.name, node.name, node.op) for at, (value, node) in enumerate(measured)]
        self.size = len(self.values)

    def run(self, feeds: Feeds, draw: int, sample: int) -> Records:
        values = compute(self._program, feeds)
        numbers = [values[value.name].ravel() for value in self.values]
        finite = [each[np.isfinite(each)] for each in numbers]
        counts = np.array([each.size for each in numbers], np.int64)
        return Records(
            values=np.arange(self.size),
            lowest=np.array([each.min(initial=np.inf) for each in finite], np.float32),
            highest=np.array([each.max(initial=-np.inf) for each in finite], np.float32),
            has_nan=np.array([np.isnan(each).any() for each in numbers]),
            has_infinity=np.array([np.isinf(each).any() for each in numbers]),
            counts=counts,
            lengths=counts,
            samples=np.concatenate(numbers),
        )


class ToyLab:
    """The lab of one program. Nothing times it."""

    profiler = None
    formats = NUMPY.keys() - {HIGH}

    def __init__(self, model: ToyModel) -> None:
        self._model, self._program = model, model.original
        self.inputs = ToyInputs(model.original)
        self.outputs = tuple(model.original.shown())

    def native(self) -> Run:
        return _run_of(self._program)

    def emulated(self, accumulation: Accumulation | None) -> Run:
        return _run_of(self._program)

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
    ) -> ToyEmulator:
        assert isinstance(reading, Reading), "a lab is handed readings of its own model"
        assert not in_blocks and not stored_floats, "toy programs have no weights in blocks or low floats"
        return ToyEmulator(reading.program, reading.graph, limits)

    def observer(self, reading: AnyReading, values: Sequence[int]) -> Callable[[Feeds], Iterator[ObservedValue]]:
        names = {value: reading.graph.values[value].name for value in values}

        def show(feeds: Feeds) -> Iterator[ObservedValue]:
            held = compute(self._program, feeds)
            return (ObservedValue(value, held[name]) for value, name in names.items())

        return show

    def weight_trials(self, reading: AnyReading, values: Sequence[int]) -> WeightTrials:
        raise ContractError("no weight of it is stored in blocks")

    def subject(self) -> ToySubject:
        return ToySubject(self._program)

    def pair(self, candidate: ToyProgram, running: Running) -> ToyPair:
        return ToyPair((self._program, candidate))

    def instruments(self, feeds: Feeds) -> ToyInstruments:
        return ToyInstruments(self._program, self._model.read(DType.FLOAT16).graph)


def _run_of(program: ToyProgram) -> Run:
    def run(feeds: Feeds) -> Answers:
        values = compute(program, feeds)
        return {name: values[held] for name, held in program.shown().items()}

    return run
