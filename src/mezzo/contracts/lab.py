"""What a model's numbers are asked: a front end's lab, for whoever compares, measures, tunes and times.

Feeds and answers are by name: numpy arrays, lists of them for sequences, None for empty optionals. A lab says whose
fault it is: InputError for feeds and references, ContractError for results that do not run.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.contracts.reading import Artifact, Reading
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mezzo.contracts.plans import Accumulation, Edit
    from mezzo.contracts.profiles import Effort, NodeTimes
    from mezzo.contracts.timings import Loading, Stopwatch
    from mezzo.tables.target import Target

Feeds = Mapping[str, Any]
Answers = Mapping[str, Any]
Run = Callable[[Feeds], Answers]
# Inner values that both models of a pair have under one name, with what their front end knows of each.
Layers = Mapping[str, Any]


class Inputs(Protocol):
    """What a model is fed. `optional` need no feed, `empty` are None where nothing is fed.

    `fixed_length` is the first length that every input fixes alike, None if one does not; `has_fixed_length` says
    whether some input fixes its own.
    """

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def optional(self) -> frozenset[str]: ...
    @property
    def empty(self) -> Collection[str]: ...
    @property
    def fixed_length(self) -> int | None: ...
    @property
    def has_fixed_length(self) -> bool: ...
    @property
    def slots(self) -> Sequence[Slot]:
        """What the inputs that need a feed take, and what reads their numbers."""

    def check(self, feeds: Feeds) -> None:
        """Raises InputError: a feed is missing, unknown, or of another type, rank or length than its input."""

    def typed(self, feeds: Feeds) -> Feeds:
        """Feeds that fit, as the model takes them: what its types cannot hold is infinite there."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What one output depends on. `reads_data`: on numbers of the data, and not only on their shapes. `are_labels`:
    whether it holds the places of the largest or smallest numbers, as a classifier's classes.
    """

    formats: frozenset[DType]
    reads_data: bool
    are_labels: bool = False


class Subject(Protocol):
    """A model whose answers are judged: what they hang on, and what it answers when its weights move."""

    @property
    def inputs(self) -> Inputs: ...
    def reached(self, fed: Collection[str]) -> Mapping[str, Reached]:
        """What reaches each output, by name. `fed` are the inputs that the data feeds."""

    def moved(self, move: "Callable[[npt.NDArray[Any]], npt.NDArray[Any]]", most_bytes: int) -> Run:
        """Make it ready with its FP32 and FP64 weights moved; as it is where they take more than `most_bytes`.

        Raises InputError: it does not bear such weights.
        """


@dataclass(frozen=True, slots=True)
class Running:
    """How a pair is run. `names` are those of the models, for errors."""

    is_emulated: bool
    accumulation: "Accumulation | None"
    names: tuple[str, str]


# Both in their true precision, with the names that errors use where nobody gave others.
EMULATED = Running(is_emulated=True, accumulation=None, names=("the reference", "the model"))


class Sessions(Protocol):
    """Both models of a pair, ready to run."""

    def run(self, feeds: Feeds) -> tuple[Answers, Answers]:
        """Answers of both by the reference's names, for feeds by the reference's names.

        Raises: InputError: the feeds do not fit, or the reference fails. ContractError: the candidate fails.
        """

    def notes(self) -> list[str]:
        """What a reader has to know of how they were run."""


class Pair(Protocol):
    """Two models side by side. `formats` are those of all values of each; `outputs` are the candidate's names by the
    reference's; `notes` say what has no counterpart.
    """

    @property
    def formats(self) -> Sequence[frozenset[DType]]: ...
    @property
    def outputs(self) -> Mapping[str, str]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def reference(self) -> Subject: ...
    def reached(self, fed: Collection[str]) -> Mapping[str, tuple[Reached, Reached]]:
        """What reaches each output that both have, in the reference and in the candidate, by the reference's names."""

    def load(self, layers: Layers) -> Sessions:
        """Make both ready, with these layers among their answers."""

    def candidate(self) -> Run:
        """Make the candidate ready alone. Feeds and answers are by the reference's names."""

    def layers(self) -> Layers:
        """Inner float values that both models have, in the order of the reference's graph."""

    def split_layers(self, layers: Layers, feeds: Feeds) -> Sequence[Layers]:
        """Cut layers into parts of bounded size, judged by their sizes for the given feeds."""


class Emulator(Protocol):
    """A model ready to run under any assignment, in true rounding."""

    def run(self, feeds: Feeds, precision_of: Mapping[int, DType]) -> Answers:
        """Compute the outputs, each node of `precision_of`, by id, in its format and the rest as in the model.

        Raises: InputError if feeds do not fit, or a node cannot run in its format here.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What one measured run showed: one record per value, and per iteration of the bodies in which it stands.

    `values` are positions, as `MeasuredValue.record` tells them. Extremes are of finite numbers; the lowest is above
    the highest where there are none. `counts` are sizes of the tensors, `lengths` of their samples, which lie in a row
    in `samples`.
    """

    values: "npt.NDArray[np.int64]"
    lowest: "npt.NDArray[np.float32]"
    highest: "npt.NDArray[np.float32]"
    has_nan: "npt.NDArray[np.bool_]"
    has_infinity: "npt.NDArray[np.bool_]"
    counts: "npt.NDArray[np.int64]"
    lengths: "npt.NDArray[np.int64]"
    samples: "npt.NDArray[np.float32]"


class MeasuredValue(NamedTuple):
    """A value as plans spell it: its name, its producer's name and operator. `record` is the position of its records:
    values that hold the same numbers share it.
    """

    record: int
    name: str
    node: str
    op: str


class ObservedValue(NamedTuple):
    """What a value holds in one run: its id, and its numbers."""

    value: int
    numbers: "npt.NDArray[np.float32]"


class Instruments(Protocol):
    """A model ready to be measured. `values` are what it measures in the planner's order, `size` how many positions
    their records have; `skipped` says what it cannot measure, and why. `elements` are what a run is known to show
    before the first. `fingerprint` names the model with what its constants hold.
    """

    @property
    def fingerprint(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def elements(self) -> int: ...
    @property
    def values(self) -> Sequence[MeasuredValue]: ...
    @property
    def skipped(self) -> tuple[str, ...]: ...
    def run(self, feeds: Feeds, draw: int, sample: int) -> Records:
        """Run the model once. `draw` chooses the places that are sampled, at most `sample` per value.

        Raises: InputError if the feeds do not fit; ContractError if the model fails.
        """


class Profiler(Protocol):
    """Times models on a target that this machine has."""

    def find_runtime(self, target: "Target") -> str:
        """The installed version of a target's runtime. Raises InputError: it cannot be measured here."""

    def variant(self, reading: Reading, edits: "Sequence[Edit]") -> Artifact:
        """Carry edits out; operators of the result say which node they are. The reading is spent."""

    def profile(
        self,
        variants: Sequence[Artifact],
        target: "Target",
        feeds: Feeds,
        weights: Mapping[str, float],
        effort: "Effort",
    ) -> "tuple[NodeTimes, ...]":
        """Time the nodes of variants in turns, by their ids as text. `weights`: by what a kernel that holds several
        nodes shares its time out.

        Raises:
            InputError: the runtime is missing, or the feeds do not fit.
            ContractError: the runtime cannot load or run a variant.
        """

    def find_timed(self, target: "Target") -> str:
        """The runtime of a target that whole models are timed on, with its version.

        Raises InputError: nothing is timed on it, or its runtime is not installed.
        """

    def stopwatch(self, target: "Target", feeds: Feeds, loading: "Loading") -> "Stopwatch":
        """Make the model, as it came, ready to be loaded and timed. Raises InputError: the feeds do not fit."""


class Lab(Protocol):
    """Runs one model, and results of it. `formats` are those that it emulates; `profiler` is None where nothing is
    timed.
    """

    @property
    def inputs(self) -> Inputs: ...
    @property
    def outputs(self) -> Sequence[str]: ...
    @property
    def formats(self) -> Collection[DType]: ...
    @property
    def profiler(self) -> Profiler | None: ...
    def native(self) -> Run:
        """Make the model ready as its runtime runs it."""

    def emulated(self, accumulation: "Accumulation | None") -> Run:
        """Make the model ready in the true rounding of the types that it has."""

    def emulator(
        self,
        reading: Reading,
        formats: Sequence[DType],
        accumulation: "Accumulation | None" = None,
        *,
        sums_high: Collection[int] = frozenset(),
        limits: Mapping[int, float] = MappingProxyType({}),
        quantized: QuantizedPorts = NO_PORTS,
    ) -> Emulator:
        """Make the model ready for runs in any mix of FP32 and `formats`. The reading is spent.

        `accumulation` holds for what sums up and runs low, but for the node ids `sums_high`. `limits` bounds the finite
        numbers of constants where they are rounded, by value id. `quantized`: what nodes read and make that run
        quantized.

        Raises ContractError: no engine loads it, or it has no casts to a format.
        """

    def subject(self) -> Subject:
        """The model as one whose answers are judged."""

    def pair(self, candidate: Artifact, running: Running) -> Pair:
        """The model as it came beside another, as that one's `runnable` gives it.

        Raises InputError: their inputs or outputs do not match.
        """

    def observer(self, reading: Reading, values: Sequence[int]) -> "Callable[[Feeds], Iterator[ObservedValue]]":
        """Make the model ready to show what values hold, by their ids: one after the other, as FP32.

        The values are of the main graph of a reading, which runs at its version and is spent.

        Raises ContractError: it does not load. Calls raise InputError: the feeds do not fit.
        """

    def instruments(self, feeds: Feeds) -> Instruments:
        """Make the model ready to be measured; `feeds` show how long its tensors may be.

        Raises ContractError: it does not load.
        """
