"""Values with what was measured of them, for tests of what measurements decide."""

from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import FormatRange, ValueRange


def held(
    node: str, value: str, largest: float = 3.0, *, smallest: float = -1.0, count: int = 100, median: float = 1.0,
    beyond: float = 0.0, vanishing: float = 0.0, rounding: float = 3e-4,
) -> ValueRange:  # fmt: skip
    """What a node's value held, and what FP16 does to it: the shares past its range and below its normal numbers."""
    return ValueRange(
        value=value,
        node=node,
        op="?",
        count=count,
        sampled=count,
        minimum=smallest,
        maximum=largest,
        mean_absolute=1.0,
        has_nan=False,
        has_infinity=False,
        quantiles=((0.5, median),),
        formats={DType.FLOAT16: FormatRange(beyond, vanishing, vanishing, rounding)},
        largest_at="calib.npz",
    )


def held_masked(node: str, value: str) -> ValueRange:
    """Logits with a mask of -1e9 added to a quarter of them."""
    return held(node, value, smallest=-1e9, count=4, median=2.0, beyond=0.25, rounding=1.0)
