"""Normalizations and softmax: a reduction of the input, then a division by it.

`is_bounded` with scale and bias operands means bounded by these, whatever the input.
"""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional; statistics by the two-pass formula: Ba et al."
    " 2016 (arXiv:1607.06450), Zhang and Sennrich 2019 (arXiv:1910.07467); Ioffe and Szegedy 2015"
    " (arXiv:1502.03167)"
)

FACTS: tuple[OpFacts, ...] = (
    # An argument says whether the statistics are its own; where they are not, its result has no
    # bound.
    facts(
        "_batch_norm_impl_index",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "_batch_norm_with_update_functional",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts("_masked_softmax", Cost.NORMALIZATION, Risk.SOFTMAX, like="Softmax", is_bounded=True),
    facts(
        "_native_batch_norm_legit.no_stats",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "_native_batch_norm_legit_functional",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    # A direction of unit size times a size that is an operand.
    facts(
        "_weight_norm",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        like="LpNormalization",
        is_bounded=True,
    ),
    facts(
        "_weight_norm_interface",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        like="LpNormalization",
        is_bounded=True,
    ),
    facts("batch_norm_stats", Cost.REDUCTION, Risk.STATISTICS, like="BatchNormalization"),
    facts(
        "cosine_similarity",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        like="LpNormalization",
        is_bounded=True,
    ),
    facts(
        "cudnn_batch_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    # With running statistics it is a multiplication and an addition, and has no bound.
    facts(
        "instance_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="InstanceNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "miopen_batch_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "native_batch_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    # Slices whose norm passes a bound are scaled down to it.
    facts("renorm", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, like="LpNormalization"),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    # In inference its statistics are operands, so it is a multiplication and an addition.
    "_batch_norm_no_update": "BatchNormalization",
    "_fused_rms_norm": "RMSNormalization",
    # Its results go to minus infinity with the differences between the inputs.
    "_log_softmax": "LogSoftmax",
    "_native_batch_norm_legit_no_training": "BatchNormalization",
    "_safe_softmax": "Softmax",
    "_softmax": "Softmax",
    "batch_norm": "BatchNormalization",
    "group_norm": "GroupNormalization",
    "layer_norm": "LayerNormalization",
    "log_softmax": "LogSoftmax",
    "native_group_norm": "GroupNormalization",
    "native_layer_norm": "LayerNormalization",
    "rms_norm": "RMSNormalization",
    "softmax": "Softmax",
    "special_log_softmax": "LogSoftmax",
    "special_softmax": "Softmax",
}
