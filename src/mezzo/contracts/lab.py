"""Lab contract: a front end's engine to run, compare, measure, calibrate and time models.

Feeds and outputs are by name: numpy arrays, lists of them for sequences, None for empty optionals.
Errors: InputError for feeds and references, ContractError for results that do not run.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.contracts.reading import Artifact, Extract, Reading
from mezzo.formats.block_storage import BlockStorage
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
# Inner values that both models of a pair have under one name, with data of their front end.
Layers = Mapping[str, Any]


class Inputs(Protocol):
    """Inputs of a model. `optional` inputs need no feed; `empty` ones are None without a feed.

    `fixed_length`: the first length, if all inputs fix the same, else None; `has_fixed_length`:
    whether some input fixes one.
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
    def types(self) -> Sequence[Slot]:
        """Types of the inputs that need a feed; all have the role of data."""

    @property
    def slots(self) -> Sequence[Slot]:
        """Types of the inputs that need a feed, and the nodes that use their elements."""

    def check(self, feeds: Feeds) -> None:
        """Raises InputError: a feed is missing, unknown, or has another type, rank or length."""

    def typed(self, feeds: Feeds) -> Feeds:
        """Feeds cast to the input types; values out of range become infinite."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Dependencies of one output. `reads_data`: on elements of the data, not only on shapes.
    `are_labels`: it holds argmax or argmin indices, such as a classifier's classes.
    """

    formats: frozenset[DType]
    reads_data: bool
    are_labels: bool = False


class Subject(Protocol):
    """A model under evaluation: dependencies of its outputs, and perturbed weights."""

    @property
    def inputs(self) -> Inputs: ...
    def reached(self, fed: Collection[str]) -> Mapping[str, Reached]:
        """Dependencies of each output, by name. `fed`: the inputs that the data feeds."""

    def moved(self, move: "Callable[[npt.NDArray[Any]], npt.NDArray[Any]]", most_bytes: int) -> Run:
        """Prepare the model with perturbed FP32 and FP64 weights; unperturbed if they take more
        than `most_bytes`.

        Raises InputError: the model cannot take such weights.
        """


@dataclass(frozen=True, slots=True)
class Running:
    """How to run a pair. `names`: of the models, for errors."""

    is_emulated: bool
    accumulation: "Accumulation | None"
    names: tuple[str, str]


# Both with emulated rounding, with default names for errors.
EMULATED = Running(is_emulated=True, accumulation=None, names=("the reference", "the model"))


class Sessions(Protocol):
    """Both models of a pair, ready to run."""

    def run(self, feeds: Feeds, apart: Feeds | None = None) -> tuple[Answers, Answers]:
        """Outputs of both models; feeds and outputs by the reference's names. `apart`: feeds of the
        candidate, if they are others.

        Raises InputError: the feeds do not fit, or the reference fails. ContractError: the
        candidate fails.
        """

    def notes(self) -> list[str]:
        """Notes on how they were run."""


class Pair(Protocol):
    """Two models side by side. `formats`: dtypes of each model's values; `outputs`: the candidate's
    names by the reference's; `notes`: parts without a counterpart.
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
        """Dependencies of each common output, in the reference and in the candidate, by the
        reference's names.
        """

    def saturating(self) -> Sequence[str]:
        """The candidate's products whose INT8 weights are so large that the sum of two neighbouring
        products may exceed INT16.
        """

    def load(self, layers: Layers) -> Sessions:
        """Prepare both, with these layers as further outputs."""

    def candidate(self) -> Run:
        """Prepare the candidate alone. Feeds and outputs are by the reference's names."""

    def layers(self) -> Layers:
        """Inner float values that both models have, in the order of the reference's graph."""

    def split_layers(self, layers: Layers, feeds: Feeds) -> Sequence[Layers]:
        """Split layers into parts of bounded size for the given feeds."""


class Emulator(Protocol):
    """A model ready to run under any assignment, with the rounding of each format."""

    def run(self, feeds: Feeds, precision_of: Mapping[int, DType]) -> Answers:
        """Compute the outputs, each node of `precision_of`, by id, in its format and the rest as in
        the model.

        Raises InputError: the feeds do not fit, or a node cannot run in its format here.
        """


class WeightTrials(Protocol):
    """A model ready to run with some of its weights exchanged. Elements are FP32, in the weight's
    shape; weights are given by value id.
    """

    def weight(self, value: int) -> "npt.NDArray[np.float32]":
        """The elements of a weight."""

    def dequantized(
        self, numbers: "npt.NDArray[np.float32]", storage: BlockStorage
    ) -> "npt.NDArray[np.float32]":
        """Elements of a weight, or of some of its whole blocks, after a round trip through
        blocks.
        """

    def keep(self, numbers: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
        """The same numbers, on disk where the model's weights are read from files."""

    def run(self, feeds: Feeds, exchanged: "Mapping[int, npt.NDArray[np.float32]]") -> Answers:
        """The outputs with these elements in place of weights. Raises InputError: the feeds do not
        fit.
        """

    def each_alone(
        self, many: Sequence[Feeds]
    ) -> "Iterator[tuple[int, Callable[[npt.NDArray[np.float32]], Sequence[Answers]]]]":
        """Each weight, in the order in which the model reads them, and what runs all feeds with
        other elements in its place alone; calls in another order take longer. Raises InputError:
        the feeds do not fit.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Statistics of one measured run: one record per value, and per iteration of its subgraph.

    `values`: positions, as in `MeasuredValue.record`. Extremes are of finite elements; the lowest
    exceeds the highest if there are none. `counts`: tensor sizes; `lengths`: sample sizes;
    `samples`: all samples, concatenated.
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
    """A value as plans name it: its name, its producer's name and operator. `record`: position of
    its records, shared by values with equal elements.
    """

    record: int
    name: str
    node: str
    op: str


class ObservedValue(NamedTuple):
    """A value's content in one run: its id, and its elements."""

    value: int
    numbers: "npt.NDArray[np.float32]"


class Instruments(Protocol):
    """A model ready to be measured. `values`: the measured values in the planner's order; `size`:
    number of record positions; `skipped`: what cannot be measured, and why; `elements`: number of
    elements that a run is expected to measure; `fingerprint`: hash of the model with its constants.
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
        """Run the model once. `draw`: seed of the sampled positions, at most `sample` per value.

        Raises InputError: the feeds do not fit. ContractError: the model fails.
        """


class NamedOperator(NamedTuple):
    """A node as plans name it, and its operator."""

    name: str
    op: str


class Parts(Protocol):
    """Parts of a model's main graph, each as a model of its own. Nodes are positions in it;
    functions are inlined. `nodes`: those that depend on an input, in topological order.
    """

    @property
    def nodes(self) -> Mapping[int, NamedOperator]: ...
    def closed(self, nodes: Collection[int]) -> tuple[int, ...]:
        """The nodes, and those on paths between them."""

    def extract(self, nodes: Collection[int], shown: Collection[str] = ()) -> Extract:
        """The nodes, and those on paths between them, as a model. `shown`: values made in the part
        that become outputs too.

        Raises ModelError: the type of an input or output is unknown.
        """


class Profiler(Protocol):
    """Runs and times models on a target of this machine."""

    def find_runtime(self, target: "Target") -> str:
        """The installed version of a target's runtime. Raises InputError: it cannot be measured
        here.
        """

    def variant(self, reading: Reading, edits: "Sequence[Edit]") -> Artifact:
        """Apply edits; result operators are labelled with their node. Spends the reading."""

    def profile(
        self,
        variants: Sequence[Artifact],
        target: "Target",
        feeds: Feeds,
        weights: Mapping[str, float],
        effort: "Effort",
    ) -> "tuple[NodeTimes, ...]":
        """Time the nodes of variants in interleaved rounds, by node id as text. `weights`: shares
        of nodes in the time of a fused kernel.

        Raises InputError: the runtime is missing, or the feeds do not fit. ContractError: the
        runtime cannot load or run a variant.
        """

    def find_loaded(self, target: "Target") -> str:
        """The runtime, with version, that loads whole models for a target.

        Raises InputError: there is none for the target, or it is not installed.
        """

    def find_timed(self, target: "Target") -> str:
        """The runtime, with version, that times whole models for a target.

        Raises InputError: there is none for the target, or it is not installed.
        """

    def parts(self) -> Parts:
        """Prepare the original model to be run in parts."""

    def stopwatch(self, target: "Target", feeds: Feeds, loading: "Loading") -> "Stopwatch":
        """Prepare the original model for loading and timing. Raises InputError: the feeds do not
        fit.
        """


class Lab(Protocol):
    """Runs one model and its results. `formats`: those it emulates; `profiler`: None if timing is
    unavailable.
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
        """Prepare the model as its runtime runs it."""

    def emulated(self, accumulation: "Accumulation | None") -> Run:
        """Prepare the model with the exact rounding of its types."""

    def emulator(
        self,
        reading: Reading,
        formats: Sequence[DType],
        accumulation: "Accumulation | None" = None,
        *,
        sums_high: Collection[int] = frozenset(),
        limits: Mapping[int, float] = MappingProxyType({}),
        quantized: QuantizedPorts = NO_PORTS,
        in_blocks: Mapping[int, BlockStorage] = MappingProxyType({}),
        stored_floats: Mapping[int, DType] = MappingProxyType({}),
    ) -> Emulator:
        """Prepare the model for runs in any mix of FP32 and `formats`. The reading is spent.

        `accumulation`: for contractions in low precision, except the node ids `sums_high`.
        `limits`: bounds of rounded constants, by value id. `quantized`: quantized inputs and
        outputs of nodes. `in_blocks`: weights, by value id, that every run takes as dequantized
        from blocks; `stored_floats`: likewise, those rounded to a low float.

        Raises ContractError: no engine loads it, or it has no casts to a format.
        """

    def weight_trials(self, reading: Reading, values: Sequence[int]) -> WeightTrials:
        """Prepare the model for runs with these constants, by value id, exchanged.

        Raises ContractError: one is no constant of the main graph, or no engine loads the model.
        """

    def subject(self) -> Subject:
        """The model for evaluation of its outputs."""

    def pair(self, candidate: Artifact, running: Running) -> Pair:
        """The original model and a candidate, in the form of `runnable`.

        Raises InputError: their inputs or outputs do not match.
        """

    def observer(
        self, reading: Reading, values: Sequence[int]
    ) -> "Callable[[Feeds], Iterator[ObservedValue]]":
        """Prepare the model to show values, by id: one after the other, as FP32.

        The values are of the reading's main graph; the model runs at its opset, and the reading is
        spent.

        Raises ContractError: it does not load. Calls raise InputError: the feeds do not fit.
        """

    def instruments(self, feeds: Feeds) -> Instruments:
        """Prepare the model for range measurements; `feeds` show the lengths of its tensors.

        Raises ContractError: it does not load.
        """
