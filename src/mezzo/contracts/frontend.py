"""What a front end is: the only part that knows an IR. It opens models, reads them as graphs and carries edits out.

Whoever plans, judges and searches takes these contracts, and never asks which front end stands behind them. What a
model's numbers are asked is in `lab`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from mezzo.contracts.reading import Artifact, Reading
from mezzo.formats.dtypes import LEVEL_DTYPES, DType
from mezzo.tables.facts import OpFacts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mezzo.contracts.corrections import Correction
    from mezzo.contracts.lab import Lab
    from mezzo.contracts.plans import Edit
    from mezzo.contracts.replacements import Replacement
    from mezzo.ir.graph import Graph
    from mezzo.tables.target import Respelling

Progress = Callable[[str, int, int], None]  # (stage, done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How the users of a front end are spoken to."""

    form: str  # what a model is: "is not valid ONNX"
    checker: str  # who says so: "the ONNX checker"
    version: str  # what the dialect's versions are called: "opset"
    sources: tuple[str, ...]  # what is opened beside a path: "an onnx.ModelProto"
    elsewhere: str = ""  # what to do for formats that its results cannot have


class Frontend(ABC):
    """One kind of model. `name` is what it is called, `dialect` that of its operators, whose version a model states.

    `suffixes` are the ends of its files' names; "" stands for all that are no other front end's. `facts` are of
    operators that mezzo has no table of, by dialect and operator. `usual_target` is what must load a result where
    nobody names another; None where that hangs on the format. `formats` are what results are converted to. It is asked
    of every source, so importing it loads no library.
    """

    name: ClassVar[str]
    dialect: ClassVar[str]
    suffixes: ClassVar[Sequence[str]]
    words: ClassVar[Words]
    facts: ClassVar[Mapping[str, Mapping[str, OpFacts]]] = MappingProxyType({})
    usual_target: ClassVar[str | None] = None
    formats: ClassVar[Mapping[str, DType]] = LEVEL_DTYPES

    @abstractmethod
    def opens(self, source: object) -> bool:
        """Whether a source that is no path is a model of this kind; by its type, and nothing is imported for it."""

    @abstractmethod
    def open(self, source: Any, *, trust_external_paths: bool, progress: Progress | None) -> "Model":
        """Open a path or a source that it says it opens.

        Raises:
            InputError: it cannot be read.
            ModelError: it is damaged, or has no sound structure.
        """


class Standing(Protocol):
    """How a model as it came stands with its checker. `fault` is what that has against it, valid or not."""

    @property
    def is_valid(self) -> bool: ...
    @property
    def fault(self) -> str | None: ...


class Fault(NamedTuple):
    """What a checker has against a result, and the nodes that it speaks of, by id; empty where it names none."""

    text: str
    culprits: Set[int]


class Record(NamedTuple):
    """What a model tells of how it was made, or what is wrong with that."""

    text: str | None
    fault: str | None


class Applied(NamedTuple):
    """What an application has done beside its edits: names of the operators it has put in, Casts apart; names of all
    nodes in their new order, None where that is the graph's.
    """

    added: tuple[str, ...]
    order: Sequence[str] | None


class Port(NamedTuple):
    """An input or output of a model that is a tensor. Inputs that have a default count."""

    name: str
    is_input: bool
    dtype: DType


class Extract(NamedTuple):
    """A part of a model as a model of its own: how many nodes it has, what it reads and what it gives."""

    part: Artifact
    nodes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Store(Protocol):
    """Where results are written, of a front end whose models are files.

    `companions` are the files that the source has beside the first. `data_suffix` ends the name of a result's external
    data, and may be set.
    """

    data_suffix: str

    @property
    def companions(self) -> Sequence[str]: ...
    def write(self, result: Artifact, dst: str | os.PathLike[str], *, overwrite: bool) -> int:
        """Write a result, all at once or not at all. Returns its size in bytes, with all its files.

        Raises InputError: the place cannot be written, or is the source's and `overwrite` is not given.
        """

    def load(self, path: Path) -> Artifact:
        """Read a result back whole."""


class Model(Protocol):
    """A model that came in. It is never changed: every reading works on a copy, and what is refused leaves no trace.

    `name` is what errors call it, `path` the file that holds it as it is, None where none does. `version` is that of
    its dialect, None where it states none. `record` is what it tells of how it was made. `original` is what came in,
    large weights perhaps left where they are. `leniency` is what to tell the user once a result was held to less than
    the full check. `store` is None where results are no files, `lab` where nothing can be run. `given` is the model
    that came in, where this one was fused from it; else itself.
    """

    @property
    def frontend(self) -> Frontend: ...
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def given(self) -> "Model": ...
    @property
    def progress(self) -> Progress | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def record(self) -> Record | None: ...
    @property
    def standing(self) -> Standing: ...
    @property
    def leniency(self) -> str | None: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def original(self) -> Artifact: ...
    @property
    def store(self) -> Store | None: ...
    @property
    def lab(self) -> "Lab | None": ...

    # -- reading --------------------------------------------------------------------------------------------------

    def read(self, low: DType, version: int | None = None) -> Reading:
        """Read the model as a graph, at another version if asked. Raises ModelError: it has no sound structure."""

    def next_version(self, reading: Reading, wanted: Mapping[DType, Sequence[int]], limit: int | None) -> int | None:
        """The smallest step of the version that lets some of the wanted nodes run in what they are wanted in; None
        where none helps.

        No step goes beyond `limit`, where one is given.
        """

    def obstacle(self, reading: Reading, wanted: Mapping[DType, Sequence[int]], limit: int | None) -> str | None:
        """What keeps the model from a version that would let more of the wanted nodes run in what they are wanted in:
        the node, why, and what to do. None where no version would, or nothing keeps it.
        """

    def least_version(self, reading: Reading, first: Reading, nodes: Mapping[DType, Sequence[int]]) -> int:
        """The smallest version, from the model's own to that of `reading`, that lets nodes of it run as they do.
        `first` is the model as it came: what is legal there needs no step.
        """

    def weights(self, reading: Reading, values: Sequence[int]) -> "Iterator[tuple[int, npt.NDArray[np.float32]]]":
        """The numbers of constants, in FP32 and in their shapes, bodies' included: one at a time, in the order of
        `values`. What is no constant of floats is left out. Asked of a reading that is not spent.

        Raises ModelError: a constant cannot be read.
        """

    def widened(self) -> "Model":
        """The model on FP32 in place of lower floats, between inputs and outputs of the types that they have; itself
        where it has none, or cannot be widened. Weights keep their numbers; a result of it is a result of this model.
        """

    def fused(
        self, reading: Reading, apart: Sequence[int], copied: float = 1.0, respellings: "Sequence[Respelling]" = ()
    ) -> "Model":
        """The model in normal form: constants folded, no-ops and dead operators gone, operators folded into those
        before them that can say as much, where nobody else reads what is between them, and written as others that
        runtimes know better; itself where nothing changes. Nodes of `apart` stay as they are.

        What is left keeps its names, and its numbers but for rounding. A result of it is a result of this model too.
        `copied`: bytes that a second copy of a constant takes in the result, as a share of its own, 1 where it stays
        FP32; nothing is copied that makes the result larger than the model. `respellings` are those of a target.
        """

    def corrected(self, corrections: "Sequence[Correction]") -> "Model":
        """The model with constants of its main graph changed; itself where there are no corrections.

        Raises InputError: one is no constant of FP32 numbers there, or of another shape.
        """

    # -- applying -------------------------------------------------------------------------------------------------

    def apply(self, reading: Reading, edits: "Sequence[Edit]") -> Artifact:
        """Carry edits out. The reading is spent; the result may share weights with the source until it is written."""

    def applied(self, reading: Reading) -> Applied:
        """What an application to the reading has done beside its edits."""

    def replaced(self, result: Artifact, low: "DType", find: "Callable[[Graph], Sequence[Replacement]]") -> Artifact:
        """A result of this model with one operator in place of each group that `find` finds in its graph, read with
        `low` as its low float. The result itself is not changed.
        """

    def unchanged(self, reading: Reading) -> Artifact:
        """The model as it was read, to be handed on as it is. The reading is spent."""

    def fault(self, graph: "Graph", result: Artifact) -> Fault | None:
        """What the checker has against a result of the graph; None if nothing. It is held to what the source passes."""

    def note_record(self, result: Artifact, text: str) -> None:
        """Let a result say how it was made."""

    def runnable(self, result: Artifact) -> Artifact:
        """A result, or the model as it came, as a lab takes it beside another; its weights need not be in memory."""

    def materialize(self, result: Artifact) -> Artifact:
        """A result with all its weights, as users of Python get it."""

    def size_of(self, whole: Artifact) -> int:
        """The size of a result with all its weights, in bytes."""

    # -- looking --------------------------------------------------------------------------------------------------

    def ports(self, result: Artifact | None = None) -> tuple[Port, ...]:
        """Inputs and outputs that are tensors of a known type: the model's own, or those of a result."""

    def low_weights(self) -> DType | None:
        """The low dtype that holds more of the model's weights than FP32 does; None where FP32 holds as many."""

    def operators(self) -> Set[tuple[str, str]]:
        """Dialect and name of every operator in the model, bodies and functions included."""

    def attributes_of(self, op: str) -> Set[str] | None:
        """Names of the attributes that an operator of the model's own dialect has; None for other operators."""

    def show(self) -> str:
        """The typed text of the model: one line per input, weight, node and output."""

    def extract(self, reading: Reading, nodes: Sequence[int]) -> Extract:
        """Make a model of some nodes, and of all that lies between them.

        Raises:
            InputError: they are no part that can stand alone.
            ModelError: the type of an input or output is not known.
            ContractError: the part would be no valid model.
        """
