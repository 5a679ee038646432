"""Backward operators. Factors are within the bounds of the function's derivative.

Sums over an axis are a risk as in the forward: gradients of repeated or normalized values add up.
"""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, OpFacts, Risk, Transfer, facts

SOURCE = "PyTorch 2.13 tools/autograd/derivatives.yaml and torch/_decomp/decompositions.py"

FACTS: tuple[OpFacts, ...] = (
    facts(
        "_adaptive_avg_pool2d_backward",
        Cost.MOVEMENT,
        like="GlobalAveragePool",
        transfer=Transfer.MOVE,
    ),
    facts(
        "_adaptive_avg_pool3d_backward",
        Cost.MOVEMENT,
        like="GlobalAveragePool",
        transfer=Transfer.MOVE,
    ),
    facts("_cdist_backward", Cost.REDUCTION, Risk.SUM, Risk.RECIPROCAL, like="ReduceL2"),
    facts("_embedding_bag_backward", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("_embedding_bag_dense_backward", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("_embedding_bag_per_sample_weights_backward", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts(
        "_fused_rms_norm_backward",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        Risk.SUM,
        like="RMSNormalization",
    ),
    facts(
        "_log_softmax_backward_data", Cost.NORMALIZATION, Risk.SOFTMAX, Risk.SUM, like="LogSoftmax"
    ),
    facts("_masked_softmax_backward", Cost.NORMALIZATION, Risk.SUM, like="Softmax"),
    facts("_pdist_backward", Cost.REDUCTION, Risk.SUM, Risk.RECIPROCAL, like="ReduceL2"),
    facts("_prelu_kernel_backward", Cost.POINTWISE, like="PRelu"),
    facts("_segment_reduce_backward", Cost.MOVEMENT, like="Expand"),
    facts("_softmax_backward_data", Cost.NORMALIZATION, Risk.SUM, like="Softmax"),
    facts(
        "_weight_norm_differentiable_backward",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        Risk.SUM,
        like="LpNormalization",
    ),
    facts(
        "_weight_norm_interface_backward",
        Cost.NORMALIZATION,
        Risk.SUM_OF_SQUARES,
        Risk.SUM,
        like="LpNormalization",
    ),
    # Windows that overlap are added; a number lies in no more windows than a window has numbers.
    facts("adaptive_max_pool2d_backward", Cost.MOVEMENT, like="MaxPool", transfer=Transfer.MOVE),
    facts("adaptive_max_pool3d_backward", Cost.MOVEMENT, like="MaxPool", transfer=Transfer.MOVE),
    facts("avg_pool2d_backward", Cost.MOVEMENT, like="AveragePool", transfer=Transfer.MOVE),
    facts("avg_pool3d_backward", Cost.MOVEMENT, like="AveragePool", transfer=Transfer.MOVE),
    facts(
        "batch_norm_backward",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        Risk.SUM,
        like="BatchNormalization",
    ),
    facts(
        "cudnn_batch_norm_backward",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        Risk.SUM,
        like="BatchNormalization",
    ),
    facts("elu_backward", Cost.POINTWISE, like="Elu"),
    facts("embedding_backward", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("embedding_dense_backward", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("fractional_max_pool2d_backward", Cost.MOVEMENT, like="MaxPool", transfer=Transfer.MOVE),
    facts("fractional_max_pool3d_backward", Cost.MOVEMENT, like="MaxPool", transfer=Transfer.MOVE),
    facts("gelu_backward", Cost.POINTWISE, like="Gelu"),
    facts("grid_sampler_2d_backward", Cost.MOVEMENT, Risk.POSITION, Risk.SUM, like="GridSample"),
    facts("grid_sampler_3d_backward", Cost.MOVEMENT, Risk.POSITION, Risk.SUM, like="GridSample"),
    # The gradient where the input is in range, else zero; the input was computed in the forward.
    facts("hardshrink_backward", Cost.POINTWISE, Risk.STEP, like="Shrink"),
    facts("hardsigmoid_backward", Cost.POINTWISE, like="HardSigmoid"),
    facts("hardswish_backward", Cost.POINTWISE, like="HardSwish"),
    facts("hardtanh_backward", Cost.POINTWISE, Risk.STEP, like="Clip"),
    facts("leaky_relu_backward", Cost.POINTWISE, like="LeakyRelu"),
    facts("log_sigmoid_backward", Cost.POINTWISE, like="Softplus"),
    facts("logit_backward", Cost.POINTWISE, Risk.RECIPROCAL, Risk.STEEP, like="Log"),
    facts(
        "max_pool2d_with_indices_backward", Cost.MOVEMENT, like="MaxPool", transfer=Transfer.MOVE
    ),
    facts(
        "max_pool3d_with_indices_backward", Cost.MOVEMENT, like="MaxPool", transfer=Transfer.MOVE
    ),
    facts(
        "miopen_batch_norm_backward",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        Risk.SUM,
        like="BatchNormalization",
    ),
    facts("mish_backward", Cost.POINTWISE, like="Mish"),
    facts(
        "native_batch_norm_backward",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        Risk.SUM,
        like="BatchNormalization",
    ),
    facts("native_dropout_backward", Cost.POINTWISE, like="Dropout", numbers=("scale",)),
    facts(
        "native_group_norm_backward",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        Risk.SUM,
        like="GroupNormalization",
    ),
    facts(
        "native_layer_norm_backward",
        Cost.NORMALIZATION,
        Risk.STATISTICS,
        Risk.SUM,
        like="LayerNormalization",
    ),
    facts("reflection_pad1d_backward", Cost.MOVEMENT, like="Pad", transfer=Transfer.MOVE),
    facts("reflection_pad2d_backward", Cost.MOVEMENT, like="Pad", transfer=Transfer.MOVE),
    facts("reflection_pad3d_backward", Cost.MOVEMENT, like="Pad", transfer=Transfer.MOVE),
    facts("replication_pad1d_backward", Cost.MOVEMENT, like="Pad", transfer=Transfer.MOVE),
    facts("replication_pad2d_backward", Cost.MOVEMENT, like="Pad", transfer=Transfer.MOVE),
    facts("replication_pad3d_backward", Cost.MOVEMENT, like="Pad", transfer=Transfer.MOVE),
    facts("rrelu_with_noise_backward", Cost.POINTWISE, like="LeakyRelu"),
    # One and a square taken off it: bounded factors of the gradient.
    facts("sigmoid_backward", Cost.POINTWISE, like="Sigmoid"),
    facts("silu_backward", Cost.POINTWISE, like="Swish"),
    facts("softplus_backward", Cost.POINTWISE, like="Softplus"),
    facts("softshrink_backward", Cost.POINTWISE, Risk.STEP, like="Shrink"),
    facts("tanh_backward", Cost.POINTWISE, like="Tanh"),
    facts("threshold_backward", Cost.POINTWISE, Risk.STEP, like="Relu"),
    facts(
        "value_selecting_reduction_backward",
        Cost.MOVEMENT,
        like="ScatterElements",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "_upsample_bicubic2d_aa_backward": "Resize",
    "_upsample_bilinear2d_aa_backward": "Resize",
    "_upsample_nearest_exact1d_backward": "Resize",
    "_upsample_nearest_exact2d_backward": "Resize",
    "_upsample_nearest_exact3d_backward": "Resize",
    "diagonal_backward": "Slice",
    "glu_backward": "SwiGLU",
    "masked_scatter_backward": "Compress",
    "select_backward": "Slice",
    "slice_backward": "Slice",
    # Windows that overlap are added.
    "unfold_backward": "Col2Im",
    "upsample_bicubic2d_backward": "Resize",
    "upsample_bilinear2d_backward": "Resize",
    "upsample_linear1d_backward": "Resize",
    "upsample_nearest1d_backward": "Resize",
    "upsample_nearest2d_backward": "Resize",
    "upsample_nearest3d_backward": "Resize",
    "upsample_trilinear3d_backward": "Resize",
}
