"""Corrections of what INT8 does to a network, as numbers alone. None of them helps everywhere: whoever applies one
looks at data that it was not made from, and takes it back where it did not help.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def corrected_bias(
    bias: npt.NDArray[Any] | None, wanted_means: npt.NDArray[Any], quantized_means: npt.NDArray[Any]
) -> Floats:
    """A bias that moves the mean of each output channel of a quantized operator to where it was in floats.

    Means are of all numbers of a channel, on the same data; `bias` is None where the operator has none.
    Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019.
    """
    wanted, quantized = np.asarray(wanted_means, np.float64), np.asarray(quantized_means, np.float64)
    assert wanted.shape == quantized.shape, "each channel has both means"
    moved = wanted - quantized
    if bias is not None:
        moved = moved + np.asarray(bias, np.float64)
    found: Floats = moved.astype(np.float32)
    return found


def smoothing_scales(data_largest: npt.NDArray[Any], weights_largest: npt.NDArray[Any], alpha: float) -> Floats:
    """What each channel of the data is divided by, and its weights are multiplied with, so that both share what
    outliers a channel has. Given are the largest magnitudes of each channel in data and weights.

    `alpha`: 1 makes all channels of the data alike, 0 all of the weights, 0.5 is between. A channel that is zero in
    either, or has no largest, is left as it is. The middle of the scales is 1.
    Source: Xiao et al., "SmoothQuant", 2023: largest data ** alpha / largest weight ** (1 - alpha).
    """
    assert 0 <= alpha <= 1, "a share"
    data, weights = np.asarray(data_largest, np.float64), np.asarray(weights_largest, np.float64)
    assert data.shape == weights.shape, "each channel has both"
    counts = (data > 0) & (weights > 0) & np.isfinite(data) & np.isfinite(weights)
    scales = np.ones(data.shape, np.float32)
    if counts.any():
        logs = alpha * np.log2(data[counts]) - (1 - alpha) * np.log2(weights[counts])
        # FP32 holds such scales, and what is multiplied with one and divided by another.
        scales[counts] = np.exp2(np.clip(logs - np.median(logs), -60, 60))
    return scales
