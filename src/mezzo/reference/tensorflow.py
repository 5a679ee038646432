"""TensorFlow's auto_mixed_precision (Grappler): its default operator lists, and its colouring, the
strategy `paint`.

Source: TensorFlow 2.x, tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h: the CUDA
lists for FP16 with the newest cuDNN, and the oneDNN lists for BF16. Allow, infer, deny and clear
are its own four lists. TensorFlow leaves unlisted operators unchanged, which is deny here.

Operators correspond to what TensorFlow builds them from, and take the strictest category of the
parts. So LayerNormalization is a Mean, LpNormalization and ReduceL1 a Sum, GlobalAveragePool a
Mean, Swish a Sigmoid and a Mul, and Gelu an Erf, or a Pow if it is approximated by tanh. Sum is
AddN, BatchNormalization FusedBatchNorm, ConvTranspose Conv2DBackpropInput, Gemm a MatMul and a
BiasAdd, GRU and LSTM the cuDNN and block cells, ReduceMax and GlobalMaxPool Max, Where Select,
ReduceSumSquare L2Loss. Resize is ResizeNearestNeighbor or ResizeBilinear, by its mode. The oneDNN
lists move Mean and Sum to infer, contain ScatterNd, and lack recurrent cells, fused attention and
OneHot.

Colouring (`auto_mixed_precision`):
1. Allowed nodes run low. Without any, nothing changes.
2. Deny spreads forward through infer and clear, up to the last infer or deny on a path: a value
   that may have left the range stays in FP32 until something is computed from it. Data movement
   after that point is not denied.
3. Infer and clear on a path between two allowed nodes that has no denied node run low.
4. Clear next to a low node follows it, in both directions.
5. Loops agree: if a body returns FP32, the state is FP32.
Nodes that share a sequence are one node in every step. Each step is a reachability query, so time
is linear.

Two differences: only operators that the policy denies spread deny, not those that the schema or the
target keeps in FP32; and after a disagreement all steps run again, so the result does not depend on
any order.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mezzo.contracts.coloring import ColouringStrategy, settle
from mezzo.contracts.problem import Choice, Split
from mezzo.formats.dtypes import DType
from mezzo.ir.columns import GROUP
from mezzo.ir.components import reached
from mezzo.ir.nodes import Kind
from mezzo.ir.selectors import ByAttribute
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

if TYPE_CHECKING:
    from mezzo.ir.columns import Bools, Ints

_F16, _BF16 = (DType.FLOAT16,), (DType.BFLOAT16,)

_ALLOW = oplists.FUSED_LINEAR | names("CausalConvWithState Conv ConvTranspose Einsum Gemm MatMul")
_ALLOW_F16 = names("Attention GRU LSTM RNN")
_INFER = (
    oplists.EXPONENTIAL_UNITS
    | oplists.GATED
    | oplists.SATURATING
    | oplists.SOFTMAX
    | (oplists.RECTIFIERS - names("Relu"))
    | names(
        "Add AveragePool BatchNormalization Div Log Mean Mul Reciprocal ReduceProd RotaryEmbedding"
        " Sqrt Sub Sum"
    )
)
# Mean and Sum, and operators that contain one.
_MEANS = names(
    "GlobalAveragePool GroupNormalization InstanceNormalization LayerNormalization LpNormalization",
    "MeanVarianceNormalization RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceMean"
    " ReduceSum",
    "SimplifiedLayerNormalization",
)
_DENY = oplists.LOSSES | names("Exp GlobalLpPool LpPool Pow ReduceLogSumExp ReduceSumSquare")
_CLEAR = (
    (oplists.MOVEMENT - names("MaxUnpool Scatter ScatterElements ScatterND TensorScatter Trilu"))
    | (oplists.CONSTANTS - names("OneHot"))
    | oplists.BOUNDS
    | oplists.CASTS
    | oplists.COMPARISONS
    | oplists.CONTROL
    | oplists.MAXIMA
    | oplists.SEQUENCES
    | names("Abs ArgMax ArgMin Ceil Floor Neg NonZero Relu Round Sign TopK")
)
_CLEAR_F16 = names("Hardmax OneHot")
_CLEAR_BF16 = names("ScatterND")
_LISTED = _ALLOW | _INFER | _MEANS | _DENY | _CLEAR

_UNTOUCHED = "is in no list of TensorFlow, which leaves it alone"
_RESIZE = names("Resize Upsample")

POLICY = Policy(
    name="tensorflow",
    also=(
        "amp",
        "tf",
        "tf-amp",
        "grappler",
    ),
    summary="the lists of TensorFlow's Grappler: linear work low, exp, powers and sums f32",
    rules=(
        rule("allow", Category.ALLOW, "is in TensorFlow's allow list", ops=_ALLOW, worth=GRANTED),
        rule(
            "allow",
            Category.ALLOW,
            "is in TensorFlow's allow list",
            ops=_ALLOW_F16,
            formats=_F16,
            worth=GRANTED,
        ),
        rule("infer", Category.INFER, "is in TensorFlow's infer list", ops=_INFER),
        rule("infer", Category.INFER, "is in TensorFlow's infer list", ops=_MEANS, formats=_BF16),
        rule("deny", Category.DENY, "is in TensorFlow's deny list", ops=_DENY),
        rule("deny", Category.DENY, "is in TensorFlow's deny list", ops=_MEANS, formats=_F16),
        rule("clear", Category.CLEAR, "is in TensorFlow's clear list", ops=_CLEAR),
        rule(
            "clear",
            Category.CLEAR,
            "is in TensorFlow's clear list",
            ops=_CLEAR_F16,
            formats=_F16,
        ),
        rule(
            "clear",
            Category.CLEAR,
            "is in TensorFlow's clear list",
            ops=_CLEAR_BF16,
            formats=_BF16,
        ),
        rule(
            "untouched",
            Category.DENY,
            _UNTOUCHED,
            ops=oplists.DOMAIN - _LISTED - _ALLOW_F16 - _CLEAR_F16,
            formats=_F16,
        ),
        rule(
            "untouched",
            Category.DENY,
            _UNTOUCHED,
            ops=oplists.DOMAIN - _LISTED - _CLEAR_BF16,
            formats=_BF16,
        ),
        rule(
            "gelu-by-tanh",
            Category.DENY,
            "holds a power where it is approximated by tanh",
            ops=("Gelu",),
            where=(ByAttribute("approximate", ("tanh",)),),
        ),
        rule(
            "resize",
            Category.CLEAR,
            "picks neighbours, as ResizeNearestNeighbor",
            ops=_RESIZE,
            where=(ByAttribute("mode", ("nearest",)),),
        ),
        rule(
            "resize",
            Category.CLEAR,
            "mixes neighbours, as ResizeBilinear, which oneDNN's lists hold",
            ops=_RESIZE,
            where=(ByAttribute("mode", ("linear",)),),
            formats=_BF16,
        ),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)


class Paint(ColouringStrategy):
    name: ClassVar[str] = "paint"
    summary: ClassVar[str] = (
        "allow and deny spread over infer and clear; between two allows all is low (TensorFlow)"
    )
    because: ClassVar[str] = "it is painted with what is around it"

    def colour(self, split: Split) -> Sequence[bool]:
        board, linked = _board(split), np.array(split.linked, np.int64)
        given, free = split.has_choice(Choice.LOW), split.has_choice(Choice.FREE)

        def paint(demoted: Set[int]) -> list[bool]:
            stays = split.has_choice(Choice.HIGH)
            stays[list(demoted)] = True
            stays = _of_links(linked, stays)
            painted = ~stays & (_of_links(linked, given) | board.paint(stays))
            is_low: list[bool] = (given | (free & painted[linked])).tolist()
            return is_low

        return settle(split, paint)


@dataclass(frozen=True, slots=True)
class _Edges:
    """Edges from producers to readers, as two arrays of node numbers."""

    tails: "Ints"
    heads: "Ints"

    def backwards(self) -> "_Edges":
        return _Edges(self.heads, self.tails)

    def both_ways(self) -> "_Edges":
        return _Edges(
            np.concatenate([self.tails, self.heads]), np.concatenate([self.heads, self.tails])
        )

    def reach(self, starts: "Bools", through: "Bools") -> "Bools":
        """The nodes reachable from `starts` through `through` only, including the starts."""
        counts = through[self.heads]
        return reached(starts, self.tails[counts], self.heads[counts])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Board:
    """The nodes to colour: operators and ties; linked nodes are one, at the smallest number.

    Deny spreads along `edges`, low precision along `low_edges`, which skip the model's Casts and
    the FP32 outputs of low nodes.
    """

    edges: _Edges
    low_edges: _Edges
    is_allow: "Bools"
    is_infer: "Bools"
    is_clear: "Bools"
    is_deny: "Bools"

    def paint(self, stays: "Bools") -> "Bools":
        """The nodes that run low, given those that stay in FP32."""
        barred = stays | self._denied()
        allowed = self.is_allow & ~barred
        below = self.low_edges.reach(allowed, (self.is_infer | self.is_clear) & ~barred)
        between = self.low_edges.backwards().reach(allowed, below)
        return self.low_edges.both_ways().reach(between, self.is_clear & ~barred)

    def _denied(self) -> "Bools":
        computes = self.is_infer | self.is_deny
        leads_on = self.edges.backwards().reach(computes, self.is_clear)
        return self.edges.reach(self.is_deny, leads_on)


def _board(split: Split) -> _Board:
    columns, linked = split.graph.columns, np.array(split.linked, np.int64)
    is_painted = columns.is_kind(Kind.OP, Kind.TIE)
    # A narrowing Cast is redundant once its operand is low, so it separates no low nodes.
    is_passed = is_painted | columns.is_kind(Kind.CAST)
    has = {}
    for category in Category:
        holds = np.array([each is category for each in split.categories], bool) & is_passed
        if category is Category.DENY:
            # Outputs of nodes that are low in the model are in range.
            holds &= ~split.has_choice(Choice.LOW)
        has[category] = _of_links(linked, holds)
    is_deny = has[Category.DENY]
    is_allow = has[Category.ALLOW] & ~is_deny
    is_infer = has[Category.INFER] & ~(is_deny | is_allow)
    is_clear = has[Category.CLEAR] & ~(is_deny | is_allow | is_infer)
    makers, readers = columns.value_producer[columns.use_value], columns.use_node
    joins = (columns.value_role[columns.use_value] == GROUP) & (columns.use_role == GROUP)
    high_outputs = np.isin(makers, list(split.high_outputs))

    def edges(counts: "Bools") -> _Edges:
        kept = joins & counts
        return _Edges(linked[makers[kept]], linked[readers[kept]])

    return _Board(
        edges=edges(is_painted[makers] & is_painted[readers]),
        low_edges=edges(is_passed[makers] & is_passed[readers] & ~high_outputs),
        is_allow=is_allow, is_infer=is_infer, is_clear=is_clear, is_deny=is_deny,
    )  # fmt: skip


def _of_links(linked: "Ints", holds: "Bools") -> "Bools":
    """A property of linked nodes as one node, at the smallest number: whether any has it."""
    is_linked = np.zeros(len(linked), bool)
    is_linked[linked[holds]] = True
    return is_linked
