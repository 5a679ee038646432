"""Every law of sizes and tolerances against data that has the stated moments, in FP64.

Forward: operands are drawn from moments, and what the law says of the result holds for what comes out. Backward: what
a law asks of an operand, given what is asked of the result, is by how much an error grows on the way, measured.
"""

import math
from dataclasses import dataclass

import pytest
from drawing import NEVER_FINE, Draw, draw, rms_of

from mezzo.analysis.estimates.moments import INTEGER, POSITIVE, UNIT, rms

_SEEDS = 2
# An output may be off by this share of its worth where the format is as coarse as NEVER_FINE.
_TOLERANCE = 0.02
# Rounding of FP32 constants, beside bounds that hold exactly.
_FP32 = 1e-6
_OF_BOTH = 0.9, 1.11


@dataclass(frozen=True)
class Law:
    """A graph, and how near its estimate is to data. The defaults are what is left to chance in 32,768 numbers, or 512
    sums of 64, and a law that is off by more says so.

    `size` and `spread` are factors either way; `mean` is in spreads of the data, `ends` in its width beyond its least
    and its largest number, less where it is negative. `slope` is between which ends the growth of errors that a law
    takes for granted lies, over the growth measured; below 1 it asks too little. `share` is the same of errors that
    are a share of each number. None: not held, since the law knows less.
    """

    text: str
    size: float | None = 1.08
    mean: float = 0.15
    spread: float | None = 1.15
    ends: tuple[float, float] | None = (-0.15, 0.45)
    slope: tuple[float, float] | None = _OF_BOTH
    share: tuple[float, float] | None = (0.5, 1.5)
    scale: tuple[float, float] = (0.1, 10.0)
    offset: float = 2.0
    x: str = "normal"

    def __str__(self) -> str:
        return f"{self.text} of {self.x}"


_SMALL, _ANGLE, _LARGE, _BESIDE_HALF = (0.05, 0.4), (0.05, 0.25), (3.0, 10.0), (0.5, 2.0)
# Errors of large numbers outweigh those of small ones, so a share of each is worth more than one of the whole.
_SQUARED = 0.5, 0.9
# What a divisor or a logarithm makes of its smallest numbers is not in the moments: the share of each number counts.
_STEEP = 0.1, 1.05
_SUMS = (-0.15, 0.45)

NORMAL = (
    Law("y = Neg(x)"),
    Law("y = Abs(x)", ends=(-0.35, 0.1)),
    Law("y = Mul(x, c)"),
    Law("y = Mul(c, x)"),
    Law("y = Mul(x, z)"),
    Law("y = Mul(x, x)", ends=(-0.4, 0.25), share=_SQUARED),
    Law("y = Pow(x, two)", ends=(-0.4, 0.25), share=_SQUARED),
    Law("y = Mul(x, g)"),
    Law("y = Div(x, c)"),
    Law("y = Add(x, c)"),
    Law("y = Add(c, x)"),
    Law("y = Add(x, z)"),
    Law("y = Add(x, x)"),
    Law("y = Sub(x, z)"),
    Law("y = Sub(x, c)"),
    Law("y = Sub(c, x)"),
    Law("y = Sum(x, z, c)"),
    Law("y = Mean(x, z)", slope=(1.9, 2.1), share=(1.9, 2.1)),  # as if it were the sum
    Law("y = MatMul(x, w)", spread=1.25),
    Law("t = Transpose<perm = [1, 0]>(x) y = MatMul(w, t)", spread=1.25),
    Law("y = Gemm<alpha = 0.25, transB = 1>(x, w, g)", size=1.2, spread=1.25),
    Law("y = Gemm(x, w, g)", size=1.2, spread=1.25),
    Law('y = Einsum<equation = "ij,kj->ik">(x, w)', size=1.2, spread=1.25, ends=(-0.2, 0.45)),
    Law('y = Einsum<equation = "ij,ij->i">(x, z)'),
    Law('y = Einsum<equation = "ij,ij->i">(x, x)', share=(0.4, 0.9)),
    Law('y = Einsum<equation = "ij->i">(x)', ends=(-0.15, 3.0)),  # all of them may be as large as the largest
    Law("y = ReduceSum(x, last)", ends=(-0.15, 3.0)),
    Law("y = ReduceSum<keepdims = 0>(x, first)", size=1.25, mean=0.4, spread=1.4, ends=(-0.1, 5.0)),
    Law(
        "y = ReduceSumSquare(x, first)",
        size=1.25,
        mean=0.4,
        spread=1.4,
        ends=(-0.1, 0.8),
        slope=(0.8, 1.25),
        share=_SQUARED,
    ),
    Law(
        "t = Transpose<perm = [1, 0]>(x) y = Gemm<transA = 1, alpha = 4.0>(t, w)",
        size=1.2,
        spread=1.25,
        ends=(-0.25, 0.4),
    ),
    Law('y = Einsum<equation = "ij,j">(x, g)', size=2.2, spread=2.2, ends=(-0.15, 1.0)),
    Law(
        'y = Einsum<equation = "ij,ij,j->i">(x, z, g)', size=1.3, spread=1.4, ends=(-0.15, 0.7), slope=None, share=None
    ),
    Law('y = Einsum<equation = "ij,ij->ij">(x, z)', ends=(-0.45, 0.2)),
    Law('s = Einsum<equation = "ij">(x) y = Neg(s)'),
    Law("y = ReduceMean(x, last)", ends=(-0.15, 3.0)),
    Law("y = ReduceSumSquare(x, last)", share=_SQUARED),
    Law("y = ReduceL2(x, last)", share=_SQUARED),
    Law("y = ReduceL1(x, last)", size=1.15, mean=1.2, spread=1.25),
    # Errors are taken to be the same again and again, as those of steps of a phase are: they do not average out.
    Law("y = CumSum(x, axis)", size=1.4, spread=1.4, slope=(9.0, 12.0), share=(9.0, 12.0)),
    Law("m = ReduceMean(x, last) y = Sub(x, m)"),
    Law("m = ReduceMax(x, last) y = Sub(x, m)", size=1.25, mean=0.6, slope=(0.65, 0.8), share=(0.25, 0.9)),
    Law("y = Relu(x)", spread=1.25, size=1.2, slope=(0.95, 1.1), share=(1.0, 2.0)),  # errors of some become zero
    Law("y = Sigmoid(x)", scale=(0.1, 3.0), share=(0.95, 3.0)),
    Law("y = Tanh(x)", scale=(0.6, 0.9), offset=0.5, share=(0.95, 2.3)),
    Law("y = Erf(x)", scale=(0.6, 0.9), offset=0.5, share=(0.95, 2.3)),
    Law("y = Softplus(x)", offset=1.0, share=(0.85, 2.0)),
    Law("y = HardSigmoid(x)", scale=(0.1, 3.0), offset=0.5, spread=1.25),
    Law("y = LeakyRelu<alpha = 0.2>(x)", size=1.15, spread=1.2, share=(0.9, 2.0), offset=0.5),
    Law("y = Elu(x)", size=1.2, spread=1.3, ends=(-0.3, 0.3), share=None, scale=(0.1, 3.0), offset=0.5),
    Law("y = Gelu(x)", slope=(0.9, 1.2), ends=(-0.25, 0.1), share=(0.9, 2.0), scale=(0.5, 10.0), offset=1.0),
    Law("y = HardSwish(x)", size=1.15, ends=(-0.25, 0.2), slope=(0.8, 1.15), share=(0.8, 2.0), offset=1.0),
    Law("y = Sin(x)", scale=_ANGLE, offset=1.0),
    Law("y = Sin(x)", scale=_LARGE),
    Law("y = Cos(x)", scale=_ANGLE, offset=1.0, ends=(-0.3, 0.2), spread=1.25),
    Law("y = Cos(x)", scale=_LARGE),
    Law("y = Exp(x)", scale=_SMALL, ends=(-0.3, 0.2)),
    Law("y = Pow(two, x)", scale=_SMALL, ends=(-0.3, 0.2)),
    Law("y = Softmax<axis = -1>(x)", scale=_SMALL, ends=None, slope=(0.8, 1.05)),  # any of them may be all there is
    Law("y = LogSoftmax<axis = -1>(x)", scale=_SMALL, mean=0.3, ends=None),
    # As large as the largest on the whole, which is the worst case: one number outdoes the others.
    Law(
        "y = ReduceLogSumExp(x, last)",
        scale=_SMALL,
        mean=3.0,
        spread=9.0,
        ends=None,
        share=(0.45, 1.5),
    ),
    Law("y = ReduceMax(x, last)", size=1.8, mean=1.5, spread=2.0, share=(0.25, 1.0)),
    Law("y = ReduceMin(x, last)", size=1.8, mean=1.5, spread=2.0, share=(0.25, 1.0)),
    Law("y = LayerNormalization<axis = -1>(x, g)"),
    Law("y = LayerNormalization<axis = -1>(x, g, h)", ends=(0.0, 0.6)),
    Law("y = LpNormalization(x)", mean=2.5, spread=2.5, ends=None),
    Law("y = Clip(x, half)", scale=_BESIDE_HALF, offset=0.5, size=1.2, spread=1.3, slope=(0.95, 1.5), share=(1.0, 3.0)),
    Law(
        "y = Max(x, half)",
        ends=(-0.25, 0.3),
        scale=_BESIDE_HALF,
        offset=0.5,
        size=1.2,
        spread=1.3,
        slope=(0.95, 1.15),
        share=(1.0, 3.0),
    ),
    Law("y = Min(x, half)", scale=_BESIDE_HALF, offset=0.5, size=1.2, spread=1.3, slope=(0.95, 1.15), share=(1.0, 3.0)),
    Law(
        "y = Max(x, z)",
        scale=(1.0, 2.0),
        offset=0.5,
        size=1.4,
        mean=1.0,
        spread=1.8,
        slope=(0.95, 2.0),
        share=(1.0, 3.0),
    ),
    Law(
        "y = Min(x, z)",
        scale=(1.0, 2.0),
        offset=0.5,
        size=1.4,
        mean=1.0,
        spread=1.8,
        slope=(0.95, 2.0),
        share=(1.0, 3.0),
    ),
    Law("y = Concat<axis = 0>(x, z)", slope=(1.0, 1.43), share=(1.0, 1.5)),  # each is half of what is read
    Law("y = Transpose<perm = [1, 0]>(x)"),
    Law("t = Add(x, z) y = Sub(t, x)", slope=None, share=None),  # x is gone: nothing grows
    Law("t = Add(x, z) y = Sub(x, t)", slope=None, share=None),
    Law("n = Neg(x) t = Add(x, z) y = Add(t, n)", slope=None, share=None),
    Law("n = Mul(x, minus) t = Add(x, z) y = Add(n, t)", slope=None, share=None),
    Law(
        "b = Greater(x, half) y = Where(b, x, half)",
        scale=_BESIDE_HALF,
        offset=0.5,
        size=2.0,
        mean=1.0,
        spread=2.5,
        slope=(1.0, 3.0),
        share=None,
    ),
    Law(
        "b = Less(x, half) y = Where(b, x, half)",
        scale=_BESIDE_HALF,
        offset=0.5,
        size=2.0,
        mean=1.0,
        spread=2.5,
        slope=(0.95, 1.3),
        share=None,
    ),
    Law(
        "a = Abs(x) b = Add(a, half) y = Sqrt(b)",
        offset=0.5,
        scale=(0.1, 1.0),
        mean=0.4,
        spread=1.6,
        ends=(-0.3, 0.1),
        slope=(0.8, 1.05),
        share=(1.0, 1.3),
    ),
    Law(
        "a = Abs(x) b = Add(a, half) y = Log(b)",
        offset=0.5,
        scale=(0.1, 1.0),
        mean=0.5,
        spread=1.6,
        size=None,
        ends=(-0.6, 0.1),
        slope=(0.2, 1.05),
        share=(1.0, 2.0),
    ),
)
# Sums of two that follow the same values: what they leave is far smaller than either.
_NEAR = "e = Mul(z, tiny) p = Add(x, e) "
_FAR = "e = Mul(z, tiny) f = Add(x, hundred) p = Add(f, e) "
CANCELLING = tuple(
    Law(text, slope=None, share=None, size=2.0, spread=2.0, ends=(-0.8, 0.8), offset=0.5)
    for text in (
        _NEAR + "q = Sub(x, e) y = Sub(p, q)",
        _NEAR + "q = Sub(e, x) y = Add(p, q)",
        _NEAR + "q = Mul(x, half) r = Sub(p, q) y = Sub(r, q)",
        _NEAR + "q = Div(x, two) h = Mul(x, half) r = Add(q, h) y = Sub(p, r)",
        _NEAR + "n = Neg(p) h = Mul(x, two) r = Sub(h, x) y = Add(n, r)",
        _FAR + "q = Pow(f, two) r = Mul(q, tiny) s = Mul(r, half) y = Sub(p, s)",
        _FAR + "q = Abs(f) y = Sub(p, q)",
        _FAR.replace("Add(x", "Sub(x") + "q = Pow(f, two) r = Mul(q, tiny) s = Mul(r, half) y = Add(p, s)",
        _FAR.replace("Add(x", "Sub(x") + "q = Abs(f) y = Add(p, q)",
        _FAR + "q = Mul(f, f) u = Add(q, e) v = Mul(f, f) y = Sub(u, v)",
    )
)
_IMAGE = "i = Reshape(x, image) "
IMAGES = (
    Law(_IMAGE + "y = Conv(i, k)", size=1.2, spread=1.25),
    Law(_IMAGE + "y = Conv<group = 16>(i, d)", size=1.2, spread=1.25),
    Law(_IMAGE + "y = ConvTranspose<strides = [2, 2]>(i, u)", size=1.2, spread=1.25, ends=(-0.25, 0.4)),
    Law(_IMAGE + "y = AveragePool<kernel_shape = [4, 2], strides = [4, 2]>(i)", ends=(-0.15, 2.0)),
    Law(_IMAGE + "y = GlobalAveragePool(i)", ends=(-0.15, 3.0)),
    Law(_IMAGE + "y = InstanceNormalization(i, b, b)", ends=(-0.1, 0.9)),
    Law(_IMAGE + "y = ReduceSum<keepdims = 0>(i, two_axes)", ends=(-0.15, 3.0)),
)
POSITIVE_ = tuple(
    Law(text, x="positive", **how)
    for text, how in (
        ("y = Sqrt(x)", {"slope": (0.75, 1.0)}),
        ("y = Pow(x, half)", {"slope": (0.75, 1.0)}),
        # As a quotient is: by the usual divisor, while small ones make most of what it holds.
        ("y = Pow(x, minus)", {"size": 3.0, "mean": 0.5, "spread": 4.5, "slope": None, "share": (0.65, 1.1)}),
        ("y = Log(x)", {"slope": (0.4, 1.0)}),
        ("y = Reciprocal(x)", {"size": 2.0, "mean": 0.5, "spread": 3.0, "slope": _STEEP, "share": (0.9, 1.1)}),
        (
            "y = Div(c, x)",
            {"size": 2.0, "mean": 0.5, "spread": 3.0, "slope": _STEEP, "share": (0.9, 1.1), "ends": None},
        ),
        ("y = Div(z, x)", {"size": 2.5, "mean": 0.5, "spread": 3.0, "slope": _STEEP, "share": (0.65, 1.1)}),
        ("y = Div(x, c)", {}),
        ("y = ReduceLogSum(x, last)", {}),
        ("y = ReduceSum(x, last)", {}),
        ("y = ReduceMean(x, last)", {}),
        ("s = ReduceSum(x, last) y = Div(x, s)", {"ends": None}),
        ("y = Add(x, z)", {"ends": (-0.2, 0.1)}),
        ("y = Add(x, half)", {}),
        ("y = Mul(x, z)", {}),
        ("y = Mul(x, x)", {"size": 1.25, "spread": 1.4}),
        ("y = Sub(x, z)", {"ends": (-0.2, 0.1)}),
        ("y = MatMul(x, w)", {"spread": 1.25}),
        ('y = Einsum<equation = "ij,ij->i">(x, z)', {}),
        ("y = ReduceSumSquare(x, last)", {}),
        ("y = CumSum(x, axis)", {"spread": 1.2, "slope": (9.0, 12.0), "share": (5.0, 12.0)}),
        ("y = Relu(x)", {}),
        ("y = Abs(x)", {}),
    )
)
LAWS_ = NORMAL + CANCELLING + IMAGES + POSITIVE_


def _drawn(law: Law, seed: int) -> Draw:
    return draw(law.text, seed, law.x, law.scale, law.offset)


@pytest.mark.parametrize("law", LAWS_, ids=str)
def test_what_a_law_says_of_its_result_holds_for_data(law: Law) -> None:
    for seed in range(_SEEDS):
        drawn = _drawn(law, seed)
        y, held = drawn.run(), drawn.held("y")
        said = f"seed {seed}: {held}, and data: {y.mean():.4g}, {y.std():.4g}, {y.min():.4g}, {y.max():.4g}"
        assert law.size is None or 1 / law.size <= rms(held) / rms_of(y) <= law.size, said
        assert abs(held.mean - y.mean()) <= law.mean * y.std(), said
        assert law.spread is None or 1 / law.spread <= held.std / y.std() <= law.spread, said
        width = y.max() - y.min()
        if law.ends is not None:
            least, most = law.ends
            assert least * width <= y.min() - held.low <= most * width, said
            assert least * width <= held.high - y.max() <= most * width, said
        slack = _FP32 * rms_of(y)
        assert not held.flags & POSITIVE or y.min() >= -slack, said
        assert not held.flags & UNIT or (y.min() >= -slack and y.max() <= 1 + slack), said
        assert not held.flags & INTEGER or (y == y.round()).all(), said


@pytest.mark.parametrize("law", [law for law in LAWS_ if law.slope is not None], ids=str)
def test_what_a_law_asks_of_an_operand_is_how_errors_grow(law: Law) -> None:
    assert law.slope is not None
    for seed in range(_SEEDS):
        drawn = _drawn(law, seed)
        worth = _TOLERANCE * rms(drawn.held("y"))
        for name in drawn.data:
            grown = worth / drawn.tolerated(name, NEVER_FINE)
            measured = drawn.amplification(name, seed)
            said = (
                f"seed {seed}: errors of {name} grow {measured:.4g} times, and {grown:.4g} times is taken for granted"
            )
            assert law.slope[0] <= grown / measured <= law.slope[1], said


@pytest.mark.parametrize("law", [law for law in LAWS_ if law.share is not None], ids=str)
def test_what_share_of_an_operand_a_law_bears_is_how_shares_grow(law: Law) -> None:
    assert law.share is not None
    for seed in range(_SEEDS):
        drawn = _drawn(law, seed)
        for name in drawn.data:
            borne, measured = drawn.tolerated_share(name), drawn.amplification_of_shares(name, seed)
            said = f"seed {seed}: {borne:.4g} of each number of {name} is borne, and grows {measured:.4g} times"
            assert law.share[0] <= _TOLERANCE / (borne * measured) <= law.share[1], said
            assert math.isfinite(borne), said
