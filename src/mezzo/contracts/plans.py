"""Plan record: decisions, reasons and the edits that implement them. A plan is data: printed,
saved, diffed, edited, replayed.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from mezzo.common.late_binding import function_above
from mezzo.contracts.corrections import Correction
from mezzo.contracts.quantized_level import DynamicProduct
from mezzo.contracts.rounding import RoundedWeights
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.formats.format_words import (
    WEIGHT_BITS,
    weight_float_word,
    weight_word,
    words_of,
)
from mezzo.formats.precision_line import Precision, PrecisionLine
from mezzo.formats.quantization import Quantization
from mezzo.ir.display import Displayed, Tabled
from mezzo.ir.nodes import Use
from mezzo.tables.policy import Category
from mezzo.tables.sums import LowSum
from mezzo.tables.target import Gain, Target

# Names of the rules that measured ranges trigger.
DATA_OVERFLOW, DATA_VANISHES, DATA_LOGITS = "data-overflow", "data-vanishes", "data-logits"
# Of nodes in FP32 that were in a lower float in the source model.
WIDENED = "widened"
DATA_RULES = frozenset({DATA_OVERFLOW, DATA_VANISHES, DATA_LOGITS})


class Accumulation(NamedTuple):
    """Tiled accumulation: FP32 sums within `tile` steps of the contracted axis; partial sums are
    added in `dtype`, rounded after every tile.

    `kernels`: the operators that sum so, as a target's table says, each with a tile and lanes of
    its own; None for MatMul, Gemm and Conv, all in `tile`.
    """

    dtype: DType
    tile: int
    kernels: tuple[LowSum, ...] | None = None

    @classmethod
    def of(cls, target: Target, dtypes: Iterable[DType]) -> "Accumulation | None":
        """How a target's kernels sum that run in one of these formats; None if in FP32."""
        kernels = tuple(row for row in target.sums if row.dtype in dtypes)
        return cls(kernels[0].dtype, 1, kernels) if kernels else None


class Reason(NamedTuple):
    """Why a node has its precision: rule name, evidence as text, and the causing node."""

    rule: str
    because: str
    cause: int | None = None


class Retype(NamedTuple):
    """The value itself gets another dtype: its producer runs in it, or its constant is stored in
    it.

    `limit`: finite elements of the constant beyond it are clamped to it.
    """

    value: int
    dtype: DType
    limit: float | None = None


class AddCast(NamedTuple):
    """A further form of the value, made by one cast right after its producer, in the producer's
    scope.

    `reads`: the form that is cast, if it is not the value itself.
    """

    value: int
    dtype: DType
    reads: DType | None = None


class AddCopy(NamedTuple):
    """A further form of a source's value: a constant stored a second time, or a second cast of an
    integer.
    """

    value: int
    dtype: DType
    limit: float | None = None


class Rewire(NamedTuple):
    """Operand `operand` of `node` reads the form of `value` that has `dtype`."""

    node: int
    operand: int
    value: int
    dtype: DType


class Quantize(NamedTuple):
    """A further form of the value: its base form quantized, right after that form's producer, and
    dequantized for its uses. A weight is stored as integers and dequantized.

    `takes_over`: all uses of the base form read the dequantized one; else only those of a `Rewire`
    with the quantized dtype. `reader`: the only use, for a weight that other uses need in another
    form; it needs no Rewire.
    """

    value: int
    how: Quantization
    takes_over: bool
    reader: Use | None = None


class ScaledValue(NamedTuple):
    """A value that is stored times 2^-exponent, by name, and why."""

    value: str
    exponent: int
    because: str


class Rescaling(NamedTuple):
    """Changes of a model with which values have power-of-two scales and its answers are the same.

    `exponents`: by value id; a value is stored times 2^-exponent. `operands`: the power of two by
    which an operand is multiplied before it is read; `attributes`: likewise, by node id and name.
    """

    exponents: Mapping[int, int]
    operands: Mapping[Use, int]
    attributes: Mapping[tuple[int, str], int]


class StoreInBlocks(NamedTuple):
    """A weight stored as low-bit integers in blocks, which are dequantized for all its readers, or
    which all its readers read, as `storage.form` says.

    Its native form has the dtype of the scales; every other form is cast from that. Readers of
    integers read no other form.
    """

    value: int
    storage: BlockStorage


class RunDynamic(NamedTuple):
    """A matmul or LSTM with dynamic quantization: INT8 arithmetic, float inputs and outputs."""

    node: int
    product: DynamicProduct


Edit = Retype | AddCast | AddCopy | Quantize | Rewire | RunDynamic | StoreInBlocks


class PlannedNode(NamedTuple):
    """One node of a plan. `cause` is the name of the node that caused its precision."""

    name: str
    op: str
    kind: str
    precision: Precision
    category: Category | None
    rule: str
    because: str
    cause: str | None


class PlannedWeight(NamedTuple):
    """A float constant of a model whose weights may be stored in blocks or in a low float.

    `name`: of its node; `value`: its own. `size_bytes`: in the model, `stored_bytes`: in the
    result. `storage`: None if not in blocks. `rule`, `because`: why it is stored so. `readers`:
    nodes. `quantized`: the format of readers that multiply its integers; None if they do not.
    `low`: the float that it is stored in and cast from; None if it is not.
    """

    name: str
    value: str
    size_bytes: int
    stored_bytes: int
    storage: BlockStorage | None
    rule: str
    because: str
    readers: tuple[str, ...]
    quantized: DType | None = None
    low: DType | None = None

    @property
    def is_narrowed(self) -> bool:
        """Whether its storage is the plan's choice: in blocks, or in a low float."""
        return self.storage is not None or self.low is not None

    @property
    def stored_as(self) -> str:
        """The format's option name, or "floats"."""
        if self.low is not None:
            return weight_float_word(self.low)
        if self.storage is not None:
            return weight_word(self.storage.bits)
        return "floats" if self.quantized is None else FORMATS[self.quantized].words[0]

    @property
    def is_fused(self) -> bool:
        """Whether its readers become operators that read the integers."""
        return self.storage is not None and self.storage.form.is_fused


class NodeAliases(NamedTuple):
    """Other names of a plan's nodes: producers by value name; users of values that no planned node
    produces; the modules that nodes were exported from; dtypes of values without floats; by the
    nodes and values that an operator replaces, its node.
    """

    makers: Mapping[str, tuple[str, ...]]
    readers: Mapping[str, tuple[str, ...]]
    modules: Mapping[str, str]
    without_floats: Mapping[str, str]
    parts: Mapping[str, str] = MappingProxyType({})


_NO_NAMES = NodeAliases({}, {}, {}, {})


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Displayed):
    """An assignment with its reasons and edits, bound to one model by `fingerprint`.

    `dialect`: the model's; `version`: the opset that the edits need, None if unchanged. `settings`:
    the options of the plan, by name. `limits`: clamped constants: source name and bound.
    `quantized`: quantization parameters by value name; `dynamic`: names of nodes with dynamic
    quantization; `corrected`: constants changed before planning; `scaled`: values with a power of
    two as their scale, which the planned model has; `in_blocks`: storage of weights by name;
    `stored_floats`: likewise, the low float of those that are stored in one and cast to FP32;
    `rounded`: those of them that its search has rounded on data; `parts`: nodes of the model that
    an operator replaces, with the operator's node. `origin`: recorded decisions of
    the model that affect the plan; `gain`: the target's performance row; `choice`: the reason for a
    default format; `obstacle`: why the opset was not raised though more would run low; `apart`:
    number of operators that compute in a float that is no level of the plan, by dtype. `names` and
    `weights` are empty for a plan loaded without its model. They, nodes and fingerprint are
    computed on first access: most conversions need none.
    """

    line: PrecisionLine
    dialect: str
    version: int | None
    settings: tuple[tuple[str, str], ...]
    edits: tuple[Edit, ...]
    limits: tuple[tuple[str, float], ...]
    notes: tuple[str, ...]
    make_nodes: Callable[[], tuple[PlannedNode, ...]] = field(repr=False, compare=False)
    make_fingerprint: Callable[[], str] = field(repr=False, compare=False)
    origin: tuple[str, ...] = ()
    quantized: tuple[tuple[str, Quantization], ...] = ()
    dynamic: tuple[str, ...] = ()
    corrected: tuple[Correction, ...] = ()
    scaled: tuple[ScaledValue, ...] = ()
    in_blocks: tuple[tuple[str, BlockStorage], ...] = ()
    stored_floats: tuple[tuple[str, DType], ...] = ()
    rounded: RoundedWeights | None = None
    parts: tuple[tuple[str, str], ...] = ()
    gain: Gain | None = field(default=None, repr=False, compare=False)
    choice: str | None = field(default=None, repr=False, compare=False)
    obstacle: str | None = field(default=None, repr=False, compare=False)
    apart: tuple[tuple[DType, int], ...] = field(default=(), repr=False, compare=False)
    make_names: Callable[[], NodeAliases] = field(
        default=lambda: _NO_NAMES, repr=False, compare=False
    )
    make_weights: Callable[[], tuple[PlannedWeight, ...]] = field(
        default=tuple, repr=False, compare=False
    )

    def detached(self) -> "Plan":
        """A copy with nodes and names computed: it keeps no graph."""
        nodes, fingerprint, names = self.nodes, self.fingerprint, self.names
        weights = self.weights
        return replace(
            self,
            make_nodes=lambda: nodes,
            make_fingerprint=lambda: fingerprint,
            make_names=lambda: names,
            make_weights=lambda: weights,
        )

    @cached_property
    def names(self) -> NodeAliases:
        """Other names of the nodes."""
        return self.make_names()

    @cached_property
    def weights(self) -> tuple[PlannedWeight, ...]:
        """The float constants, if some were to be stored in blocks or in a low float and the model
        is at hand.
        """
        return self.make_weights()

    def weights_read(self, node: str) -> tuple[PlannedWeight, ...]:
        """The weights that a node reads, by its name."""
        return tuple(weight for weight in self.weights if node in weight.readers)

    @cached_property
    def nodes(self) -> tuple[PlannedNode, ...]:
        """One entry per node with a precision, in graph order."""
        return self.make_nodes()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the model's structure; a plan fits no other."""
        return self.make_fingerprint()

    @property
    def high(self) -> DType:
        """The base dtype, that of the model before conversion."""
        return self.line.base_dtype

    @property
    def lows(self) -> tuple[DType, ...]:
        """Output dtypes of the non-base levels, in order."""
        return self.line.other_dtypes

    @property
    def low(self) -> DType:
        """The one other dtype of a plan with two levels."""
        return self.line.only_other

    @property
    def formats(self) -> tuple[str, ...]:
        """Option names of the formats, those of weights first: ("int4", "bf16")."""
        bits = {storage.bits for _, storage in self.in_blocks}
        weights = (word for word, count in WEIGHT_BITS.items() if count in bits)
        floats = {dtype: weight_float_word(dtype) for _, dtype in self.stored_floats}
        return (*weights, *floats.values(), *words_of(self.lows))

    def with_nodes(self, nodes: Iterable[PlannedNode]) -> "Plan":
        """The same plan with other nodes, to be checked and lowered when it is replayed."""
        fixed = tuple(nodes)
        return replace(self, make_nodes=lambda: fixed)

    def explain(self, word: str) -> "Explanation":
        """Explain the precision of nodes, as `mezzo explain` does; prints as a text.

        `word`: the name of a node or a value, an operator such as "Softmax", a path of scopes or
        modules, or a glob. Raises InputError: nothing matches.
        """
        explanation: Explanation = function_above("api.explain", "explain_word")(self, word)
        return explanation

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan as a JSON file, for `mezzo.convert(plan=...)`, and weights that were
        rounded on data next to it, to PATH.rounded.safetensors. Raises InputError: a file cannot be
        written.
        """
        function_above("io.planfile", "save_plan")(self, path)

    @cached_property
    def by_name(self) -> dict[str, PlannedNode]:
        return {node.name: node for node in self.nodes}


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Explanation(Tabled):
    """The nodes of a plan that a word refers to, each with the chain of causes of its precision.

    `known`: the kind of name that the word is. `chains`: each node, the node that caused its
    precision, and so on. `changes`: keywords of `mezzo.convert` that change the precision of a
    single node, each with its effect. `weights`: the weight of that name, or those that a single
    node reads, of a plan that stores weights in blocks.
    """

    plan: Plan
    word: str
    known: str
    chains: tuple[tuple[PlannedNode, ...], ...]
    changes: tuple[tuple[str, str], ...]
    weights: tuple[PlannedWeight, ...] = ()

    def __repr__(self) -> str:
        return str(self)

    @property
    def nodes(self) -> tuple[PlannedNode, ...]:
        """The nodes themselves."""
        return tuple(chain[0] for chain in self.chains)
