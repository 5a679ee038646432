"""Paddle Inference's mixed-precision pass: its default list, and its colouring, the strategy
`fixpoint`.

Source: PaddlePaddle 2.6, paddle/fluid/framework/ir/auto_mixed_precision_pass.cc, and the kernels
registered in paddle/phi/kernels/gpu. Every operator with a low-precision kernel is allowed, except
for the black list.

Operators correspond as follows. The black list's square is a Pow by 2 and a part of
ReduceSumSquare, sum is Sum (add_n), mean is Mean and ReduceMean, conv2d_transpose is ConvTranspose
except with three spatial dimensions, scale is Add and Mul by a constant, denied if the constant
exceeds the format's range. Registered for FP32 and FP64 only: rnn, lrn, roi_align, roi_pool,
grid_sample, affine_grid, unpool, fold, nms, nonzero, fft, and determinant in BF16. Tensor arrays
stay in FP32, as do random, range and window operators, which have no operand to follow. Bodies are
judged node by node. Operators that Paddle lacks go with the nearest one: LinearAttention with rnn,
ReduceLogSum with log, RMSNormalization with layer_norm. Quantized operators are left unchanged.

Colouring: every node that may run low does, except where several nodes write one variable and not
all can be low. The branches of an If, and what a loop returns, write the variable of their tie. A
writer is demoted if another writer or the tie is not low. Demotion only spreads, so the result is
the greatest fixed point, in any order. Two differences: values that enter a body from outside bind
no other node, as they can be cast on entry; weights follow their readers, and one that is read both
low and in FP32 is stored twice.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mezzo.contracts.coloring import ColouringStrategy
from mezzo.contracts.problem import Choice, Split
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.columns import GROUP
from mezzo.ir.components import reached
from mezzo.ir.nodes import Kind
from mezzo.ir.selectors import ByConstant, ByShape
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, Rule, rule

if TYPE_CHECKING:
    from mezzo.ir.columns import Bools, Ints

    # Pairs of nodes: if the first is not low, the second is not either.
    Bonds = list[tuple[Ints, Ints]]

_BF16 = (DType.BFLOAT16,)

_BLACK = (
    oplists.CASTS
    | oplists.LOSSES
    | names("ConvTranspose Exp Log Mean ReduceLogSum ReduceMean ReduceSum ReduceSumSquare Sum")
)
_NO_KERNEL = (
    oplists.POSITIONS
    | oplists.RANDOM
    | oplists.RECURRENT
    | oplists.SEQUENCES
    | oplists.SPECTRA
    | names(
        "AffineGrid Col2Im GridSample LRN MaxRoiPool MaxUnpool NonMaxSuppression NonZero RoiAlign"
    )
)
_FOLLOWS = oplists.CONSTANTS | oplists.CONTROL | oplists.LOGICAL
_LEFT_ALONE = oplists.FOREIGN | oplists.QUANTIZED
_LOW = oplists.FUSED_LINEAR | oplists.DOMAIN - _BLACK - _NO_KERNEL - _FOLLOWS - _LEFT_ALONE - names(
    "Det"
)


def _scale(low: DType, operand: int) -> Rule:
    return rule(
        "scale",
        Category.DENY,
        "scales or shifts by a constant past the format's range",
        ops=names("Add Mul"),
        where=(ByConstant(operand, at_least=FORMATS[low].overflow_from),),
        formats=(low,),
    )


POLICY = Policy(
    name="paddle",
    also=(
        "amp",
        "paddlepaddle",
        "paddle-amp",
        "paddle-inference",
    ),
    summary="the list of Paddle Inference: everything low but exp, log, squares and sums",
    rules=(
        rule(
            "kernel",
            Category.ALLOW,
            "Paddle has a kernel for it in fewer bits",
            ops=_LOW,
            worth=GRANTED,
        ),
        rule(
            "kernel",
            Category.ALLOW,
            "Paddle has a kernel for it in fp16",
            ops=("Det",),
            formats=(DType.FLOAT16,),
            worth=GRANTED,
        ),
        rule("black-list", Category.DENY, "is in Paddle's black list", ops=_BLACK),
        rule(
            "no-kernel", Category.DENY, "Paddle has no kernel for it in fewer bits", ops=_NO_KERNEL
        ),
        rule(
            "no-kernel",
            Category.DENY,
            "Paddle has no kernel for it in bf16",
            ops=("Det",),
            formats=_BF16,
        ),
        rule("follows", Category.CLEAR, "computes nothing that rounding changes", ops=_FOLLOWS),
        rule(
            "left-alone",
            Category.DENY,
            "reads bits, text or quantization parameters",
            ops=_LEFT_ALONE,
        ),
        rule(
            "square",
            Category.DENY,
            "squares, which is in Paddle's black list",
            ops=("Pow",),
            where=(ByConstant(1, at_least=2.0, at_most=2.0),),
        ),
        rule(
            "conv3d-transpose",
            Category.ALLOW,
            "has three spatial dimensions; the black list names two",
            ops=("ConvTranspose",),
            where=(ByShape(operand=1, axis=4),),
            worth=GRANTED,
        ),
        *(_scale(low, operand) for low in (DType.FLOAT16, DType.BFLOAT16) for operand in (0, 1)),
    ),
    findings=frozenset(),
    otherwise=Category.DENY,
    promotes_untroubled=False,
)


class Fixpoint(ColouringStrategy):
    name: ClassVar[str] = "fixpoint"
    summary: ClassVar[str] = (
        "everything low that may be; who writes one variable agrees on it (Paddle)"
    )
    because: ClassVar[str] = "who shares a variable agrees"

    def colour(self, split: Split) -> Sequence[bool]:
        is_denied = np.array([category is Category.DENY for category in split.categories], bool)
        free = split.has_choice(Choice.FREE)
        is_kept = split.has_choice(Choice.HIGH) | (free & is_denied)
        members, linked = np.arange(len(free)), np.array(split.linked, np.int64)
        bonds = [(members, linked), (linked, members)]
        bonds += _bonds_of_ties(split, is_kept)
        is_low: list[bool] = (
            split.has_choice(Choice.LOW) | (free & ~_bound_to(is_kept, bonds))
        ).tolist()
        return is_low


def _bonds_of_ties(split: Split, is_kept: "Bools") -> "Bonds":
    """The pairs of nodes in which one demotes the other, around ties.

    Marks ties in `is_kept` that are written in FP32 whatever their writers run in.
    """
    columns, scopes = split.graph.columns, split.graph.scopes
    depths = np.zeros(len(scopes), np.int64)
    for number, scope in enumerate(scopes):  # a scope comes after its parent
        depths[number] = 0 if scope.parent is None else depths[scope.parent] + 1
    depth_of_node = depths[[node.scope for node in split.graph.nodes]]
    depth_of_value = depths[[value.scope for value in split.graph.values]]
    values, ties = columns.use_value, columns.use_node
    writers = columns.value_producer[values]
    leads_in = columns.is_kind(Kind.TIE)
    leads_in[columns.value_producer[depth_of_value <= depth_of_node[columns.value_producer]]] = (
        False
    )
    # Ties inside a body, or ties into a body that nothing inside writes to.
    counts = columns.is_kind(Kind.TIE)[ties] & (
        (depth_of_value[values] > depth_of_node[ties]) | leads_in[ties]
    )
    from_source = counts & columns.is_kind(Kind.SOURCE)[writers]
    counts &= ~from_source
    high_outputs = np.isin(writers, list(split.high_outputs))
    decides = (columns.value_role[values] == GROUP) & ~high_outputs
    is_kept[ties[counts & ~decides & (high_outputs | ~split.holds_low[values])]] = True
    bound = counts & decides
    joined = bound & ~leads_in[ties]
    return [
        (writers[bound], ties[bound]),
        (ties[joined], writers[joined]),
        _readers(split, ties[from_source]),
    ]


def _readers(split: Split, ties: "Ints") -> "tuple[Ints, Ints]":
    """The pairs for ties that pass a weight into a body: an FP32 reader keeps the tie in FP32."""
    columns = split.graph.columns
    makers = columns.value_producer[columns.use_value]
    counts = np.isin(makers, ties) & (columns.use_role == GROUP)
    return columns.use_node[counts], makers[counts]


def _bound_to(is_kept: "Bools", bonds: "Bonds") -> "Bools":
    """The nodes that pairs lead to from the kept nodes, including those."""
    tails, heads = (np.concatenate(ends) for ends in zip(*bonds, strict=True))
    return reached(is_kept, tails, heads)
