"""A second front end, for the tests: programs of the toy dialect over numpy arrays, in memory and as `.toy` files.

It is installed as another package's would be, by an entry point, and the verbs take it as they take ONNX. A program is
lines, as in `toy_dialect`, with what conversions add: `h_f16 = cast.f16 h`, and a third word of an output, the value
that it shows. A line computes in the dtype of its operands, which its checker holds to be one.

At version 1 of the dialect `plus` takes FP32 alone. And as real checkers do, this one refuses what no schema tells: a
`join` that reads one value twice must be FP32. Programs that are typed already run, and are not read.
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import toy_dialect

from mezzo.common.errors import InputError, ModelError
from mezzo.common.safe_paths import write_file
from mezzo.contracts.corrections import Correction
from mezzo.contracts.frontend import Applied, ConversionRecord, Fault, Frontend, Port, Progress, Words
from mezzo.contracts.plans import AddCast, AddCopy, Edit, Rescaling, Retype
from mezzo.contracts.reading import Extract
from mezzo.contracts.reading import Reading as AnyReading
from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Signature
from mezzo.tables.target import Respelling

if TYPE_CHECKING:
    from toy_lab import ToyLab

Array = npt.NDArray[Any]

NUMPY = {
    HIGH: np.dtype(np.float32), DType.FLOAT16: np.dtype(np.float16), DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip
NEWEST = 2
_SINCE = {"plus": 2}  # the first version at which an operator takes a low format


def round_to(values: Array, dtype: DType) -> Array:
    """FP32 numbers that hold what the dtype keeps of them."""
    with np.errstate(all="ignore"):
        return values.astype(NUMPY[dtype]).astype(np.float32)


@dataclass(frozen=True)
class ToyProgram:
    """Lines, weights of [k, m] in their dtypes, the version of the dialect, and how it was made, if it says so."""

    text: str
    weights: Mapping[str, Array]
    version: int = NEWEST
    record: str | None = field(default=None, compare=False)

    @cached_property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(line.split()) for line in self.text.strip().splitlines())

    @cached_property
    def dtypes(self) -> Mapping[str, DType]:
        """What each value holds, by name: a line's result is in the dtype of its first operand."""
        of_numpy = {kind: dtype for dtype, kind in NUMPY.items()}
        found: dict[str, DType] = {}
        for line in self.lines:
            match line:
                case ("in", name, _, *low):
                    found[name] = DType(low[0]) if low else HIGH
                case ("const", name, _):
                    found[name] = of_numpy[self.weights[name].dtype]
                case ("out", *_):
                    pass
                case (name, "=", op, first, *_):
                    found[name] = DType(op.removeprefix("cast.")) if op.startswith("cast.") else found[first]
        return found

    def shown(self) -> dict[str, str]:
        """The value that each output shows, by the output's name."""
        return {words[1]: words[-1] for words in self.lines if words[0] == "out"}

    def to_json(self) -> str:
        weights = {
            name: {
                "dtype": array.dtype.name,
                "shape": array.shape,
                "numbers": array.astype(float).ravel().tolist(),
            }
            for name, array in self.weights.items()
        }
        return json.dumps({"version": self.version, "text": self.text, "weights": weights, "record": self.record})


def read_program(text: str) -> ToyProgram:
    """Read a file's text. Raises ValueError, KeyError, TypeError: it is none."""
    document = json.loads(text)
    weights = {
        name: np.array(stored["numbers"]).reshape(stored["shape"]).astype(stored["dtype"])
        for name, stored in document["weights"].items()
    }
    return ToyProgram(document["text"], weights, document["version"], document["record"])


@dataclass
class Reading:
    """A program as a graph, at a version."""

    graph: Graph
    program: ToyProgram
    lows: tuple[DType, ...]
    dialect = toy_dialect.DIALECT

    @property
    def version(self) -> int:
        return self.program.version


@dataclass(frozen=True)
class Standing:
    """A program that the checker has nothing against, or what it has."""

    fault: str | None

    @property
    def is_valid(self) -> bool:
        return self.fault is None


class ToyStore:
    """Writes programs as `.toy` files."""

    data_suffix = ""
    companions: Sequence[str] = ()

    def write(self, result: ToyProgram, dst: str | os.PathLike[str], *, overwrite: bool) -> int:
        data = result.to_json().encode()
        write_file(dst, data)
        return len(data)

    def load(self, path: Path) -> ToyProgram:
        return read_program(path.read_text(encoding="utf-8"))


class ToyModel:
    """A program that came in."""

    leniency: str | None = None
    path: Path | None = None

    def __init__(self, program: ToyProgram, name: str, progress: Progress | None) -> None:
        self.original, self.name, self.progress = program, name, progress
        self.frontend: Frontend = FRONTEND
        self.version = program.version
        self.record = None if program.record is None else ConversionRecord(program.record, None)
        self.size_bytes = self.size_of(program)
        self.store = ToyStore()

    @property
    def given(self) -> "ToyModel":
        return self

    @cached_property
    def lab(self) -> "ToyLab":
        from toy_lab import ToyLab

        return ToyLab(self)

    @property
    def standing(self) -> Standing:
        found = _find_fault(self.original)
        return Standing(None if found is None else found[0])

    def read(self, *lows: DType, version: int | None = None) -> Reading:
        program = replace(self.original, version=version or self.version)
        if {*program.dtypes.values()} != {HIGH}:
            raise ModelError(f"{self.name} is low already; convert what it was made of")
        graph = toy_dialect.read(program.text)
        nodes = tuple(node._replace(signature=_at(node.signature, program.version)) for node in graph.nodes)
        return Reading(replace(graph, nodes=nodes), program, lows)

    peek = read

    def next_version(self, reading: AnyReading, wanted: Mapping[DType, Sequence[int]], limit: int | None) -> int | None:
        assert reading.version is not None, "every program states one"
        steps = {_SINCE.get(reading.graph.nodes[number].op, 0) for held in wanted.values() for number in held}
        return min((step for step in steps if reading.version < step <= (limit or NEWEST)), default=None)

    def obstacle(self, reading: AnyReading, wanted: Mapping[DType, Sequence[int]], limit: int | None) -> str | None:
        return None

    def least_version(self, reading: AnyReading, first: AnyReading, nodes: Mapping[DType, Sequence[int]]) -> int:
        numbers = [number for held in nodes.values() for number in held]
        return max([self.version, *(_SINCE.get(reading.graph.nodes[number].op, 0) for number in numbers)])

    def weights(self, reading: AnyReading, values: Sequence[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        held = self.unchanged(reading).weights
        names = [(value, reading.graph.values[value].name) for value in values]
        return ((value, held[name].astype(np.float32)) for value, name in names if name in held)

    def widened(self, ports: Collection[str] = ()) -> "ToyModel":
        return self

    def widening_obstacle(self) -> str | None:
        return None

    def fused(
        self, reading: AnyReading, apart: Sequence[int], copied: float = 1.0, respellings: Sequence[Respelling] = ()
    ) -> "ToyModel":
        return self

    def replaced(
        self, result: ToyProgram, lows: Sequence[DType], find: Callable[[Graph], Sequence[Replacement]]
    ) -> ToyProgram:
        return result

    def has_operators(self, names: Set[str]) -> bool:
        return False

    def raised(self, reading: AnyReading, replacements: Sequence[Replacement], version: int) -> "ToyModel":
        raise AssertionError("the toy dialect has no operators in place of others")

    def corrected(self, corrections: Sequence[Correction]) -> "ToyModel":
        return self

    def rescaled(self, reading: AnyReading, changes: Rescaling) -> "ToyModel":
        raise AssertionError("the toy dialect has no scales")

    def exchanged(self, weights: Mapping[str, object]) -> "ToyModel":
        assert not weights, "no weight of it is stored in blocks"
        return self

    def apply(self, reading: AnyReading, edits: Sequence[Edit]) -> ToyProgram:
        """A new program: the source's is never touched, so what the checker refuses leaves no trace."""
        program = self.unchanged(reading)
        return _Applier(reading.graph, program).apply(edits)

    def unchanged(self, reading: AnyReading) -> ToyProgram:
        assert isinstance(reading, Reading), "a model is handed its own readings"
        return reading.program

    def applied(self, reading: AnyReading) -> Applied:
        return Applied((), None)

    def fault(self, graph: Graph, result: ToyProgram) -> Fault | None:
        found = _find_fault(result)
        return None if found is None else Fault(found[0], {graph.by_name[name] for name in found[1:]})

    def note_record(self, result: ToyProgram, text: str) -> None:
        object.__setattr__(result, "record", text)

    def runnable(self, result: ToyProgram) -> ToyProgram:
        return result

    def materialize(self, result: ToyProgram) -> ToyProgram:
        return result

    def size_of(self, whole: ToyProgram) -> int:
        return len(whole.to_json())

    def ports(self, result: ToyProgram | None = None) -> tuple[Port, ...]:
        program = self.original if result is None else result
        inputs = [Port(words[1], True, program.dtypes[words[1]]) for words in program.lines if words[0] == "in"]
        return (*inputs, *(Port(name, False, program.dtypes[held]) for name, held in program.shown().items()))

    def low_weights(self) -> DType | None:
        held = {self.original.dtypes[name] for name in self.original.weights}
        return next((dtype for dtype in LOW_DTYPES.values() if dtype in held), None)

    def operators(self) -> Set[tuple[str, str]]:
        return {(FRONTEND.dialect, words[2]) for words in self.original.lines if words[1] == "="}

    def attributes_of(self, op: str) -> Set[str] | None:
        return frozenset() if op in toy_dialect.FACTS else None

    def show(self) -> str:
        return "\n".join(" ".join(words) for words in self.original.lines)

    def extract(self, reading: AnyReading, nodes: Sequence[int]) -> Extract:
        raise InputError(f"{self.name}: no part is taken out of a toy")


class ToyFrontend(Frontend):
    """Programs of the toy dialect."""

    name = "toy"
    dialect = toy_dialect.DIALECT
    suffixes = (".toy",)
    words = Words(form="toy", checker="the toy checker", version="version", sources=("a ToyProgram",))
    facts = MappingProxyType({toy_dialect.DIALECT: toy_dialect.FACTS})

    def opens(self, source: object) -> bool:
        return isinstance(source, ToyProgram)

    def open(self, source: Any, *, trust_external_paths: bool, progress: Progress | None) -> ToyModel:
        if isinstance(source, ToyProgram):
            return ToyModel(source, "the program", progress)
        try:
            return ToyModel(ToyStore().load(Path(source)), repr(os.fspath(source)), progress)
        except OSError as error:
            raise InputError(f"cannot read {os.fspath(source)!r}: {error.strerror}; name a .toy file") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{os.fspath(source)!r} is no toy program ({error}); write it anew") from error


FRONTEND = ToyFrontend()


def _at(signature: Signature, version: int) -> Signature:
    return replace(signature, legal=_legal(signature.op, signature.legal, version))


def _legal(op: str, legal: frozenset[DType], version: int) -> frozenset[DType]:
    return legal if version >= _SINCE.get(op, 1) else frozenset({HIGH})


def _find_fault(program: ToyProgram) -> tuple[str, ...] | None:
    """What the checker says, and the results of the lines that it speaks of."""
    for words in program.lines:
        if words[1] != "=" or words[2].startswith("cast."):
            continue
        name, op, operands = words[0], words[2], words[3:]
        held = {program.dtypes[operand] for operand in operands}
        if len(held) > 1:
            return f"{name}: {op} of {' and '.join(sorted(map(str, held)))}", name
        (dtype,) = held
        if dtype not in _legal(op, toy_dialect.LEGAL.get(op, toy_dialect.LOWS) | {HIGH}, program.version):
            return f"{name}: version {program.version} has no {op} of {dtype}", name
        if op == "join" and dtype is not HIGH and len({*operands}) < len(operands):
            return f"{name}: join of one value with itself must be {HIGH}", name
    return None


class _Applier:
    """Carries edits out on a copy of the lines."""

    def __init__(self, graph: Graph, program: ToyProgram) -> None:
        self.graph, self.program = graph, program
        self.native = {value.name: HIGH for value in graph.values}
        self.weights = dict(program.weights)
        self.behind: dict[str, list[str]] = {}  # lines that follow the line of a value
        self.operands: dict[tuple[str, int], str] = {}  # by node and position

    def apply(self, edits: Sequence[Edit]) -> ToyProgram:
        for edit in edits:
            if isinstance(edit, Retype):
                self.native[self.graph.values[edit.value].name] = edit.dtype
        for edit in edits:
            name = self.graph.values[edit.value].name
            match edit:
                case Retype(_, dtype, limit) if name in self.weights:
                    self.weights[name] = _store(self.program.weights[name], dtype, limit)
                case AddCopy(_, dtype, limit):
                    copy = self._form(name, dtype)
                    self.weights[copy] = _store(self.program.weights[name], dtype, limit)
                    self.behind.setdefault(name, []).append(f"const {copy} {self.weights[copy].size}")
                case AddCast(_, dtype, reads):
                    source = self._form(name, reads or self.native[name])
                    self.behind.setdefault(name, []).append(f"{self._form(name, dtype)} = cast.{dtype} {source}")
                case _ if not isinstance(edit, Retype):
                    node = self.graph.nodes[edit.node]
                    self.operands[node.name, edit.operand] = self._form(name, edit.dtype)
        text = "\n".join(line for words in self.program.lines for line in self._rewrite(words))
        return replace(self.program, text=text, weights=self.weights, record=None)

    def _form(self, name: str, dtype: DType) -> str:
        return name if dtype is self.native[name] else f"{name}_{dtype}"

    def _rewrite(self, words: Sequence[str]) -> Sequence[str]:
        match words:
            case ("in", name, size):
                held = self.native[name]
                line = f"in {name} {size}" if held is HIGH else f"in {name} {size} {held}"
            case ("out", name, *_):
                line, name = f"out {name} {self.operands.get((f'output {name}', 0), name)}", ""
            case (name, "=", op, *operands):
                read = [self.operands.get((name, at), operand) for at, operand in enumerate(operands)]
                line = " ".join([name, "=", op, *read])
            case _:
                line, name = " ".join(words), words[1]
        return [line, *self.behind.get(name, [])]


def _store(array: Array, dtype: DType, limit: float | None) -> Array:
    held = array if limit is None else np.clip(array, -limit, limit)
    with np.errstate(all="ignore"):
        stored: Array = held.astype(NUMPY[dtype])
    return stored


def digest_of(program: ToyProgram) -> str:
    """Names a program with its numbers."""
    return hashlib.sha256(program.to_json().encode()).hexdigest()[:32]
