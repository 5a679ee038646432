"""Normalizations and softmax: a reduction of the input, then a division by it.

`is_bounded` with scale and bias operands means bounded by these, whatever the input.
"""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch.nn.functional; statistics by the two-pass formula: Ba et al. 2016 "
    "(arXiv:1607.06450), Zhang and Sennrich 2019 (arXiv:1910.07467); Ioffe and Szegedy 2015 (arXiv:1502.03167)"
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
    # In inference its statistics are operands, so it is a multiplication and an addition.
    facts("_batch_norm_no_update", Cost.NORMALIZATION, like="BatchNormalization", transfer=Transfer.GIVEN_STATISTICS),
    facts(
        "_batch_norm_with_update_functional",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "_fused_rms_norm",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        like="RMSNormalization",
        is_bounded=True,
        transfer=Transfer.NORMALIZE_SIZE,
    ),
    # Its results go to minus infinity with the differences between the inputs.
    facts(
        "_log_softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        like="LogSoftmax",
        function=Function.LOG_SOFTMAX,
        transfer=Transfer.LOG_SOFTMAX,
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
    facts(
        "_native_batch_norm_legit_no_training",
        Cost.NORMALIZATION,
        like="BatchNormalization",
        transfer=Transfer.GIVEN_STATISTICS,
    ),
    facts(
        "_safe_softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        like="Softmax",
        function=Function.SOFTMAX,
        is_bounded=True,
        transfer=Transfer.SOFTMAX,
    ),
    facts(
        "_softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        like="Softmax",
        function=Function.SOFTMAX,
        is_bounded=True,
        transfer=Transfer.SOFTMAX,
    ),
    # A direction of unit size times a size that is an operand.
    facts("_weight_norm", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, like="LpNormalization", is_bounded=True),
    facts("_weight_norm_interface", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, like="LpNormalization", is_bounded=True),
    facts("batch_norm", Cost.NORMALIZATION, like="BatchNormalization", transfer=Transfer.GIVEN_STATISTICS),
    facts("batch_norm_stats", Cost.REDUCTION, Risk.STATISTICS, like="BatchNormalization"),
    facts("cosine_similarity", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, like="LpNormalization", is_bounded=True),
    facts(
        "cudnn_batch_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="BatchNormalization",
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "group_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="GroupNormalization",
        is_bounded=True,
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
        "layer_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="LayerNormalization",
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "log_softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        like="LogSoftmax",
        function=Function.LOG_SOFTMAX,
        transfer=Transfer.LOG_SOFTMAX,
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
    facts(
        "native_group_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="GroupNormalization",
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
    ),
    facts(
        "native_layer_norm",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        like="LayerNormalization",
        is_bounded=True,
        transfer=Transfer.STANDARDIZE,
    ),
    # Slices whose norm passes a bound are scaled down to it.
    facts("renorm", Cost.NORMALIZATION, Risk.SUM_OF_SQUARES, like="LpNormalization"),
    facts(
        "rms_norm",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        like="RMSNormalization",
        is_bounded=True,
        transfer=Transfer.NORMALIZE_SIZE,
    ),
    facts(
        "softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        like="Softmax",
        function=Function.SOFTMAX,
        is_bounded=True,
        transfer=Transfer.SOFTMAX,
    ),
    facts(
        "special_log_softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        like="LogSoftmax",
        function=Function.LOG_SOFTMAX,
        transfer=Transfer.LOG_SOFTMAX,
    ),
    facts(
        "special_softmax",
        Cost.NORMALIZATION,
        Risk.SOFTMAX,
        like="Softmax",
        function=Function.SOFTMAX,
        is_bounded=True,
        transfer=Transfer.SOFTMAX,
    ),
)
