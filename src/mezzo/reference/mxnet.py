"""MXNet AMP: its default operator lists, and downstream colouring by lists, the strategy `lists`.

Source: Apache MXNet 2.0 (master), python/mxnet/amp/lists/symbol_fp16.py and symbol_bf16.py. Allow
is its target list, clear its neutral list, infer its widest-type list. Unlisted operators are
neutral in FP16. BF16 denies unlisted operators, which have no oneDNN kernel, and has no range
problem: Exp and Softmax are neutral there, Clip and Dropout are denied.

Operators correspond as follows. Convolution is Conv; FullyConnected is Gemm, and MatMul with a
weight; other MatMuls are `_npi_matmul` in FP16 and batch_dot in BF16, where the former is denied.
Activation is Relu, Sigmoid, Softplus, Softsign and Tanh; LeakyReLU is LeakyRelu, PRelu, Elu, Selu
and Gelu, so a denied `act_type` is an operator of its own. elemwise_* and broadcast_* are one
operator; Sum is add_n, Gather is take, ReduceL1 and ReduceL2 are norm. Operators that MXNet lacks
go with the nearest one: Celu with Elu, Mean with add_n, RMSNormalization with LayerNorm,
MeanVarianceNormalization with moments, LpPool with Pooling, DFT with fft, Attention with
masked_softmax in FP16 and with oneDNN's fused attention in BF16. Random and range operators have no
operand to follow and stay in FP32, as do quantized operators.

Colouring by lists (`ReducePrecision`, `low_precision_pass.cc` of MXNet 1.x and 2.x): allowed nodes
run low and have their operands cast. Clear follows if any operand is available in low precision,
infer if all are, so neither needs a cast of its own. Deny casts back to FP32. A value is available
if its producer runs low, or an allowed node reads it low. Weights decide nothing. MXNet's result
depends on the order of a value's readers, only partly fixed by the two sweeps of 2.x; this is the
least fixed point, and a cast made for one neutral operator serves no other. Values that cross into
a branch or a loop, which MXNet does not convert, follow like infer.
"""

from collections.abc import Sequence, Set
from typing import ClassVar

from mezzo.contracts.coloring import ColouringStrategy, makers, makes_low, settle, start
from mezzo.contracts.problem import Choice, Split
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Role
from mezzo.ir.selectors import ByAttribute, ByConstant
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, rule

_F16, _BF16 = (DType.FLOAT16,), (DType.BFLOAT16,)

_TARGET_F16 = oplists.FUSED_LINEAR | names(
    "CausalConvWithState Conv ConvTranspose Einsum GRU Gemm LSTM MatMul RNN"
)
_WIDEST_F16 = names(
    "Add Concat Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul"
    " NonMaxSuppression RoiAlign",
    "RotaryEmbedding Sub Sum SwiGLU Where",
)
_DENIED_F16 = (
    (oplists.NORMALIZATIONS - names("BatchNormalization"))
    | (oplists.SUMS - names("GlobalLpPool LpPool"))
    | oplists.EXPONENTIALS
    | oplists.EXPONENTIAL_UNITS
    | oplists.FOREIGN
    | oplists.LOSSES
    | oplists.POSITIONS
    | oplists.PRODUCTS
    | oplists.QUANTIZED
    | oplists.RANDOM
    | oplists.SOFTMAX
    | oplists.SPECTRA
    | names(
        "Acos Asin Atanh Attention DeformConv LinearAttention Log Pow Reciprocal ReduceMean Tan"
        " TopK"
    )
)
_NEUTRAL_F16 = oplists.DOMAIN - _TARGET_F16 - _WIDEST_F16 - _DENIED_F16

_TARGET_BF16 = oplists.FUSED_LINEAR | names("Attention CausalConvWithState Conv ConvTranspose Gemm")
_WIDEST_BF16 = names("Add Concat Div MatMul Mean Mul RotaryEmbedding Sub Sum SwiGLU")
_NEUTRAL_BF16 = (
    oplists.CASTS
    | oplists.CONTROL
    | oplists.SEQUENCES
    | oplists.SOFTMAX
    | names(
        "AveragePool BatchNormalization Celu Elu Exp Flatten Gather Gelu GlobalAveragePool"
        " GlobalLpPool GlobalMaxPool",
        "Identity LRN LayerNormalization LeakyRelu LpPool MaxPool PRelu RMSNormalization ReduceMean"
        " ReduceSum Relu",
        "Reshape Sigmoid SimplifiedLayerNormalization Slice Softplus Softsign SpaceToDepth Split"
        " Sqrt Swish Tanh",
        "Transpose Unsqueeze Where",
    )
)
_DENIED_BF16 = oplists.DOMAIN - _TARGET_BF16 - _WIDEST_BF16 - _NEUTRAL_BF16

_TARGET = "is in MXNet's target list"
_WIDEST = "is in MXNet's list of the widest type"
_NEUTRAL = "is in MXNet's neutral list"
_DENIED = "is in MXNet's fp32 list"

POLICY = Policy(
    name="mxnet",
    also=(
        "amp",
        "mx",
        "mxnet-amp",
    ),
    summary="the lists of MXNet's AMP: linear work low, what may overflow f32",
    rules=(
        rule("target", Category.ALLOW, _TARGET, ops=_TARGET_F16, formats=_F16, worth=GRANTED),
        rule("widest", Category.INFER, _WIDEST, ops=_WIDEST_F16, formats=_F16),
        rule("neutral", Category.CLEAR, _NEUTRAL, ops=_NEUTRAL_F16, formats=_F16),
        rule("fp32", Category.DENY, _DENIED, ops=_DENIED_F16, formats=_F16),
        rule(
            "index-add",
            Category.INFER,
            "adds where it scatters, as MXNet's index_add",
            ops=names("ScatterElements ScatterND"),
            where=(ByAttribute("reduction", ("add",)),),
            formats=_F16,
        ),
        rule("target", Category.ALLOW, _TARGET, ops=_TARGET_BF16, formats=_BF16, worth=GRANTED),
        rule("widest", Category.INFER, _WIDEST, ops=_WIDEST_BF16, formats=_BF16),
        rule("neutral", Category.CLEAR, _NEUTRAL, ops=_NEUTRAL_BF16, formats=_BF16),
        rule(
            "fp32",
            Category.DENY,
            "has no bf16 kernel of oneDNN in MXNet's lists",
            ops=_DENIED_BF16,
            formats=_BF16,
        ),
        rule(
            "fully-connected",
            Category.ALLOW,
            "multiplies by a weight, as MXNet's FullyConnected",
            ops=("MatMul",),
            where=(ByConstant(1),),
            formats=_BF16,
            worth=GRANTED,
        ),
        rule("unlisted", Category.CLEAR, "is in no list of MXNet, which is neutral", formats=_F16),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)


class Lists(ColouringStrategy):
    name: ClassVar[str] = "lists"
    summary: ClassVar[str] = (
        "allow converts, clear follows one low operand, infer needs all of them low (MXNet)"
    )
    because: ClassVar[str] = "its operands decide"

    def colour(self, split: Split) -> Sequence[bool]:
        def spread(demoted: Set[int]) -> list[bool]:
            return _Spread(split, demoted).run()

        return settle(split, spread)


class _Spread:
    """The least fixed point of the values available in low precision and the nodes that follow
    them.
    """

    def __init__(self, split: Split, demoted: Set[int]) -> None:
        self.split = split
        self.is_low = start(split)
        # By undecided node: the number of operands not available yet.
        self.missing: dict[int, int] = {}
        self.available: set[int] = set()
        self.queue: list[int] = []  # available values whose readers have not been visited
        for node in split.graph.nodes:
            if split.choices[node.id] is not Choice.FREE or node.id in demoted:
                continue
            if split.categories[node.id] is Category.ALLOW:
                self._take(node.id)
                for value, maker in makers(split, node):
                    if maker is not None:
                        self._offer(value)
            elif split.categories[node.id] in (Category.INFER, Category.CLEAR):
                self.missing[node.id] = sum(maker is not None for _, maker in makers(split, node))

    def run(self) -> list[bool]:
        graph = self.split.graph
        for value in range(len(graph.values)):
            if makes_low(self.split, self.is_low, value):
                self._offer(value)
        while self.queue:
            value = self.queue.pop()
            for use in graph.uses[value]:
                role = graph.nodes[use.node].signature.inputs[use.operand]
                # A loop's back edge decides nothing here: it agrees, or `settle` demotes the tie.
                if role is Role.GROUP and graph.values[value].producer < use.node:
                    self._count_available(use.node)
        return self.is_low

    def _count_available(self, number: int) -> None:
        """Count one more available operand of a node, which may then run low."""
        node = self.split.graph.nodes[number]
        if number not in self.missing:
            return
        self.missing[number] -= 1
        needs_one = self.split.categories[number] is Category.CLEAR and node.kind is not Kind.TIE
        if needs_one or self.missing[number] == 0:
            del self.missing[number]
            self._take(number)

    def _take(self, number: int) -> None:
        """Run a node low, which makes its outputs available."""
        self.is_low[number] = True
        for value in self.split.graph.nodes[number].outputs:
            if value is not None and makes_low(self.split, self.is_low, value):
                self._offer(value)

    def _offer(self, value: int) -> None:
        if value not in self.available:
            self.available.add(value)
            self.queue.append(value)
