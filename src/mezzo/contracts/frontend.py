"""Front end contract: opens models, reads them as graphs and applies edits; the only part that
knows an IR. Running models is in `lab`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from mezzo.common.errors import InputError
from mezzo.contracts.reading import Artifact, Extract, Reading
from mezzo.formats.dtypes import DType
from mezzo.formats.format_words import FORMAT_WORDS
from mezzo.tables.facts import OpFacts

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mezzo.contracts.corrections import Correction
    from mezzo.contracts.lab import Lab
    from mezzo.contracts.plans import Edit, Rescaling
    from mezzo.contracts.replacements import Replacement
    from mezzo.formats.weight_grid import GridElements
    from mezzo.ir.graph import Graph
    from mezzo.tables.target import Respelling

Progress = Callable[[str, int, int], None]  # (stage, done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Terms of a front end for user messages."""

    form: str  # what a model is: "is not valid ONNX"
    checker: str  # who says so: "the ONNX checker"
    version: str  # what the dialect's versions are called: "opset"
    sources: tuple[str, ...]  # what is opened other than a path: "an onnx.ModelProto"
    elsewhere: str = ""  # what to do for formats that its results cannot have


class Frontend(ABC):
    """One kind of model. `name`: its option; `dialect`: of its operators, whose version a model
    states.

    `suffixes`: file name endings; "" matches all files of no other front end. `facts`: of operators
    without a table in mezzo, by dialect and operator. `formats`: those of results. `blocks_since`:
    the version of the dialect from which a weight in blocks can be dequantized;
    `casts_since`: that from which a low float can be cast, where that is not the first; `rewrites`:
    whether models can be written with operators in place of others before they are planned;
    `rescales`: whether values can have power-of-two scales. Every source is offered to every front
    end, so importing one must not load its libraries.
    """

    name: ClassVar[str]
    dialect: ClassVar[str]
    suffixes: ClassVar[Sequence[str]]
    words: ClassVar[Words]
    facts: ClassVar[Mapping[str, Mapping[str, OpFacts]]] = MappingProxyType({})
    formats: ClassVar[Collection[str]] = FORMAT_WORDS
    blocks_since: ClassVar[int | None] = None
    casts_since: ClassVar[Mapping[DType, int]] = MappingProxyType({})
    rewrites: ClassVar[bool] = False
    rescales: ClassVar[bool] = False

    @property
    def usual_target(self) -> str | None:
        """The default target; None if it depends on the format."""
        return None

    @abstractmethod
    def opens(self, source: object) -> bool:
        """Whether a source that is no path is a model of this kind; without imports."""

    @abstractmethod
    def open(
        self, source: Any, *, trust_external_paths: bool, progress: Progress | None
    ) -> "Model":
        """Open a path or a source that it says it opens.

        Raises:
            InputError: it cannot be read.
            ModelError: it is damaged, or has no sound structure.
        """


class Validity(Protocol):
    """Validity of the original model. `fault`: the checker's complaint, for valid models too."""

    @property
    def is_valid(self) -> bool: ...
    @property
    def fault(self) -> str | None: ...


class Fault(NamedTuple):
    """A checker's complaint about a result, and the ids of the nodes it names, if any."""

    text: str
    culprits: Set[int]


class ConversionRecord(NamedTuple):
    """A model's recorded conversion, or what is wrong with the record."""

    text: str | None
    fault: str | None


class Applied(NamedTuple):
    """Side effects of an application: names of operators added other than Casts, all node names
    in their new order, None if unchanged, and by name the operators of nodes that have another.
    """

    added: tuple[str, ...]
    order: Sequence[str] | None
    operators: Mapping[str, str] = MappingProxyType({})


class Port(NamedTuple):
    """A tensor input or output of a model. Inputs with a default count."""

    name: str
    is_input: bool
    dtype: DType


class Store(Protocol):
    """Writer of results, for front ends whose models are files.

    `companions`: further files of the source. `data_suffix`: ending of the name of a result's
    external data; may be set.
    """

    data_suffix: str

    @property
    def companions(self) -> Sequence[str]: ...
    def write(self, result: Artifact, dst: str | os.PathLike[str], *, overwrite: bool) -> int:
        """Write a result atomically. Returns its size in bytes, with all its files.

        Raises InputError: the path cannot be written, or is the source's without `overwrite`.
        """

    def load(self, path: Path) -> Artifact:
        """Read a result back with all weights."""


class Model(Protocol):
    """An opened model. It is never changed: every reading works on a copy.

    `name`: for errors; `path`: its file, None if there is none. `version`: its opset, None if it
    states none. `record`: its recorded conversion. `original`: the model object, large weights
    possibly not loaded. `leniency`: a note that a result did not get the full check. `store`: None
    if results are not files; `lab`: None if nothing can be run. `given`: the model that this one
    was fused from; else itself.
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
    def record(self) -> ConversionRecord | None: ...
    @property
    def standing(self) -> Validity: ...
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

    # -- reading -----------------------------------------------------------------------------------

    def read(self, *lows: DType, version: int | None = None) -> Reading:
        """Read the model as a graph, at another opset if requested. Raises ModelError: its
        structure is invalid.
        """

    def peek(self, *lows: DType) -> Reading:
        """The reading that `read` returns next for these floats at the model's own opset."""

    def next_version(
        self, reading: Reading, wanted: Mapping[DType, Sequence[int]], limit: int | None
    ) -> int | None:
        """The smallest higher opset, up to `limit`, that allows some of the given nodes to run in
        the given dtypes; None if none does.
        """

    def obstacle(
        self, reading: Reading, wanted: Mapping[DType, Sequence[int]], limit: int | None
    ) -> str | None:
        """Why the opset cannot be raised to allow more of the given nodes in the given dtypes: the
        node, the cause and a remedy. None if no opset would help, or nothing prevents it.
        """

    def least_version(
        self, reading: Reading, first: Reading, nodes: Mapping[DType, Sequence[int]]
    ) -> int:
        """The smallest opset, from the model's own to that of `reading`, that allows `nodes` to run
        as planned. `first`: the model's own reading; dtypes legal there need no step.
        """

    def weights(
        self, reading: Reading, values: Sequence[int]
    ) -> "Iterator[tuple[int, npt.NDArray[np.float32]]]":
        """The elements of constants as FP32 arrays in their shapes, subgraphs included: lazily, in
        the order of `values`. Values that are no float constants are left out. The reading must be
        unspent.

        Raises ModelError: a constant cannot be read.
        """

    def widened(self, ports: Collection[str] = ()) -> "Model":
        """The model in FP32 instead of lower floats, with its input and output types unchanged
        except those of `ports`; itself if it has none or cannot be widened. Weights keep their
        values; a result of it is a result of this model.
        """

    def widening_obstacle(self) -> str | None:
        """A sentence on the node for which the model cannot be widened; None if it can be."""

    def fused(
        self,
        reading: Reading,
        apart: Sequence[int],
        copied: float = 1.0,
        respellings: "Sequence[Respelling]" = (),
    ) -> "Model":
        """The model in normal form: constant folding, removal of no-ops and dead code, fusion of
        operators into their producers where nothing else uses the value between, and rewrites that
        runtimes recognize; itself if nothing changes. Nodes of `apart` stay unchanged.

        Remaining nodes keep their names, and values are equal up to rounding. A result of it is a
        result of this model. `copied`: size of a second copy of a constant in the result, relative
        to its own, 1 if it stays FP32, infinite to make none; nothing is copied that makes the
        result larger than the model. `respellings`: the target's rewrites.
        """

    def has_operators(self, names: Set[str]) -> bool:
        """Whether some node, of subgraphs too, is an operator of these names; without reading."""

    def raised(
        self, reading: Reading, replacements: "Sequence[Replacement]", version: int
    ) -> "Model | None":
        """The model of a reading, which is spent, at an opset, with one operator in place of each
        group of nodes; None if its other nodes do not reach that opset. A result of it is a result
        of this model. Only of a front end that `rewrites`.
        """

    def corrected(self, corrections: "Sequence[Correction]") -> "Model":
        """The model with changed constants of its main graph; itself without corrections.

        Raises InputError: a name is no FP32 constant there, or has another shape.
        """

    def rescaled(self, reading: Reading, changes: "Rescaling") -> "Model":
        """The model with operands and attributes multiplied by powers of two; a constant is scaled
        itself. Nodes and values keep their names. The reading is spent; it is of the model at its
        own version. Only of a front end that `rewrites`.
        """

    def exchanged(self, weights: "Mapping[str, npt.NDArray[np.float32] | GridElements]") -> "Model":
        """The model with other elements of FP32 constants of its main graph, by name of the
        value; itself without any.

        Raises InputError: one is no such constant.
        """

    # -- applying ----------------------------------------------------------------------------------

    def apply(self, reading: Reading, edits: "Sequence[Edit]") -> Artifact:
        """Apply edits. The reading is spent; the result may share weights with the source until it
        is written.
        """

    def applied(self, reading: Reading) -> Applied:
        """Side effects of applying edits to the reading."""

    def replaced(
        self,
        result: Artifact,
        lows: "Sequence[DType]",
        find: "Callable[[Graph], Sequence[Replacement]]",
    ) -> Artifact:
        """A copy of the result with each group that `find` returns for its graph replaced by one
        operator; `lows` are the low floats for reading.
        """

    def unchanged(self, reading: Reading) -> Artifact:
        """The model as it was read, without edits. The reading is spent."""

    def fault(self, graph: "Graph", result: Artifact) -> Fault | None:
        """The checker's complaint about a result of the graph; None if valid. It must pass the
        checks that the source passes.
        """

    def note_record(self, result: Artifact, text: str) -> None:
        """Write the conversion record into a result's metadata."""

    def runnable(self, result: Artifact) -> Artifact:
        """A result, or the original, in the form that a lab compares; weights may stay on disk."""

    def materialize(self, result: Artifact) -> Artifact:
        """A result with all its weights, for Python users."""

    def size_of(self, result: Artifact) -> int:
        """Size of a result with all its weights, in bytes, before it is written."""

    # -- looking -----------------------------------------------------------------------------------

    def ports(self, result: Artifact | None = None) -> tuple[Port, ...]:
        """Tensor inputs and outputs of known type: the model's own, or those of a result."""

    def low_weights(self) -> DType | None:
        """The low dtype that holds more of the model's weights than FP32; None if FP32 holds as
        many.
        """

    def operators(self) -> Set[tuple[str, str]]:
        """Dialect and name of every operator, subgraphs and functions included."""

    def attributes_of(self, op: str) -> Set[str] | None:
        """Attribute names of an operator of the model's own dialect; None for others."""

    def show(self) -> str:
        """The typed text of the model: one line per input, weight, node and output."""

    def extract(self, reading: Reading, nodes: Sequence[int]) -> Extract:
        """Extract some nodes, and all nodes between them, as a model.

        Raises InputError: they cannot form a model. ModelError: the type of an input or output is
        unknown. ContractError: the part is no valid model.
        """


def lab_of(model: Model) -> "Lab":
    """The runtime of a model. Raises InputError: its front end has none."""
    if model.lab is None:
        raise InputError(
            f"{model.name} cannot be run: front end {model.frontend.name!r} has no runtime; leave"
            " data out"
        )
    return model.lab
