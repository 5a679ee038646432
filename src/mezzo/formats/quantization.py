"""Quantization parameters of a tensor, as QuantizeLinear and DequantizeLinear take them."""

from dataclasses import dataclass

from mezzo.formats.dtypes import STORES, DType, storage_span


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Affine quantization: a float x is stored as round(x / scale) + zero_point, rounded to nearest
    even and saturated to the dtype.

    `scales` and `zero_points` have one entry per tensor if `axis` is None, else one per slice along
    `axis`, counted from the front. Scales are positive, finite FP32 numbers; zero points are within
    the range of the dtype.

    `turned`, for constants only: one bit per element in memory order, most significant bit first,
    set where the element is rounded to the farther of its two neighbouring integers (GPTQ); empty
    if none is.
    """

    dtype: DType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    turned: bytes = b""

    def __post_init__(self) -> None:
        assert len(self.scales) == len(self.zero_points), "one zero point for each scale"
        assert self.axis is not None or len(self.scales) == 1, (
            "a tensor without an axis has one scale"
        )
        assert all(0 < scale < float("inf") for scale in self.scales), (
            "scales are finite and above 0"
        )

    @property
    def is_symmetric(self) -> bool:
        """Whether all zero points are 0."""
        return not any(self.zero_points)

    @property
    def span(self) -> tuple[int, int]:
        """Smallest and largest stored number."""
        return storage_span(self.dtype)

    @property
    def format(self) -> DType:
        """The quantized format that this storage type belongs to."""
        return STORES[self.dtype]
