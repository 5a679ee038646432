"""The default list of Paddle Inference: all that has a low-precision kernel is allowed, but for its black list.

Source: PaddlePaddle 2.6, paddle/fluid/framework/ir/auto_mixed_precision_pass.cc, and the kernels that
paddle/phi/kernels/gpu registers. Its strategy: `fixpoint`.

How its operators read here: the black list's square is a Pow by 2 and a part of ReduceSumSquare, sum is Sum (add_n),
mean is Mean and ReduceMean, conv2d_transpose is ConvTranspose but for three spatial dimensions, scale is Add and Mul by
a constant, which stay where it passes the format's range. Registered for FP32 and FP64 alone are rnn, lrn, roi_align,
roi_pool, grid_sample, affine_grid, unpool, fold, nms, nonzero, fft, and determinant in BF16. Arrays of tensors stay; so
do draws, ranges and windows, which have no operand to follow. Bodies are judged node by node. What Paddle lacks goes
with its nearest relative: LinearAttention with rnn, ReduceLogSum with log, RMSNormalization with layer_norm. Quantized
parts are left alone.
"""

from mezzo.formats.dtypes import FORMATS, DType
from mezzo.ir.selectors import ByConstant, ByShape
from mezzo.tables import oplists
from mezzo.tables.oplists import names
from mezzo.tables.policy import GRANTED, Category, Policy, Rule, rule

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
    | names("AffineGrid Col2Im GridSample LRN MaxRoiPool MaxUnpool NonMaxSuppression NonZero RoiAlign")
)
_FOLLOWS = oplists.CONSTANTS | oplists.CONTROL | oplists.LOGICAL
_LEFT_ALONE = oplists.FOREIGN | oplists.QUANTIZED
_LOW = oplists.FUSED_LINEAR | oplists.DOMAIN - _BLACK - _NO_KERNEL - _FOLLOWS - _LEFT_ALONE - names("Det")


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
        rule("kernel", Category.ALLOW, "Paddle has a kernel for it in fewer bits", ops=_LOW, worth=GRANTED),
        rule(
            "kernel",
            Category.ALLOW,
            "Paddle has a kernel for it in fp16",
            ops=("Det",),
            formats=(DType.FLOAT16,),
            worth=GRANTED,
        ),
        rule("black-list", Category.DENY, "stands in Paddle's black list", ops=_BLACK),
        rule("no-kernel", Category.DENY, "Paddle has no kernel for it in fewer bits", ops=_NO_KERNEL),
        rule("no-kernel", Category.DENY, "Paddle has no kernel for it in bf16", ops=("Det",), formats=_BF16),
        rule("follows", Category.CLEAR, "computes nothing that rounding changes", ops=_FOLLOWS),
        rule("left-alone", Category.DENY, "reads bits, text or quantization parameters", ops=_LEFT_ALONE),
        rule(
            "square",
            Category.DENY,
            "squares, which stands in Paddle's black list",
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
