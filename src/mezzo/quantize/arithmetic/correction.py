"""Bias correction and SmoothQuant scales, as numbers. Neither always helps, so callers verify each
on held-out data.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def corrected_bias(
    bias: npt.NDArray[Any] | None, wanted_means: npt.NDArray[Any], quantized_means: npt.NDArray[Any]
) -> Floats:
    """Bias correction: a bias that restores the float mean of each output channel of a quantized
    operator.

    `bias` is None if the operator has none. Source: Nagel et al., "Data-Free Quantization Through
    Weight Equalization and Bias Correction", 2019.
    """
    float_means, int8_means = (
        np.asarray(wanted_means, np.float64),
        np.asarray(quantized_means, np.float64),
    )
    assert float_means.shape == int8_means.shape, "each channel has both means"
    moved = float_means - int8_means
    if bias is not None:
        moved = moved + np.asarray(bias, np.float64)
    corrected: Floats = moved.astype(np.float32)
    return corrected


def smoothing_scales(
    data_largest: npt.NDArray[Any], weights_largest: npt.NDArray[Any], alpha: float
) -> Floats:
    """SmoothQuant scales: each channel of the activation is divided by its scale and the weights
    multiplied by it, which moves outliers into the weights. Arguments are the largest magnitudes
    per channel.

    `alpha`: 1 equalizes the activation's channels, 0 the weights', 0.5 is halfway. A channel that
    is zero or not finite in either keeps scale 1. The median scale is 1.
    Source: Xiao et al., "SmoothQuant", 2023: largest activation ** alpha / largest weight ** (1 -
    alpha).
    """
    assert 0 <= alpha <= 1, "a share"
    data, weights = np.asarray(data_largest, np.float64), np.asarray(weights_largest, np.float64)
    assert data.shape == weights.shape, "each channel has both"
    counts = (data > 0) & (weights > 0) & np.isfinite(data) & np.isfinite(weights)
    scales = np.ones(data.shape, np.float32)
    if counts.any():
        logs = alpha * np.log2(data[counts]) - (1 - alpha) * np.log2(weights[counts])
        # FP32 represents such scales, and the products and quotients of two.
        scales[counts] = np.exp2(np.clip(logs - np.median(logs), -60, 60))
    return scales
