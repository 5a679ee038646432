"""How a tensor of floats is held in few bits with a scale: the parameters that Quantize and Dequantize take."""

from dataclasses import dataclass

from mezzo.formats.dtypes import STORES, DType, storage_span


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What stands for a float x: round(x / scale) + zero_point, rounded to the nearest number of the dtype, ties to
    even, and kept within the dtype.

    `scales` and `zero_points` have one entry for the whole tensor, where `axis` is None, or one per slice along `axis`,
    counted from the front. Scales are above 0, finite, and FP32 numbers; zero points are within the dtype.

    `turned`, of a constant: a bit per element in the order of memory, the first of a byte its highest, set where the
    other of the two integers next to x / scale stands for it than the nearest; empty where none is.
    """

    dtype: DType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    turned: bytes = b""

    def __post_init__(self) -> None:
        assert len(self.scales) == len(self.zero_points), "one zero point for each scale"
        assert self.axis is not None or len(self.scales) == 1, "a tensor without an axis has one scale"
        assert all(0 < scale < float("inf") for scale in self.scales), "scales are finite and above 0"

    @property
    def is_symmetric(self) -> bool:
        """Whether zero is stored as zero."""
        return not any(self.zero_points)

    @property
    def span(self) -> tuple[int, int]:
        """Smallest and largest number that is stored."""
        return storage_span(self.dtype)

    @property
    def format(self) -> DType:
        """The format whose numbers are stored so."""
        return STORES[self.dtype]
