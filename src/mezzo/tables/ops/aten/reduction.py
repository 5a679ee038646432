"""Reductions, cumulative reductions and pooling."""

from collections.abc import Mapping

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, reduction operations, and torch.nn.functional, pooling;"
    " error and growth of sums and products of n terms: N. J. Higham, Accuracy and Stability of"
    " Numerical Algorithms, 2nd ed., chapters 3 and 4"
)

FACTS: tuple[OpFacts, ...] = (
    # The number of elements per result depends on the input's size.
    facts(
        "_adaptive_avg_pool2d",
        Cost.REDUCTION,
        like="GlobalAveragePool",
        transfer=Transfer.POOL,
        scaling="x -> x",
    ),
    facts(
        "_adaptive_avg_pool3d",
        Cost.REDUCTION,
        like="GlobalAveragePool",
        transfer=Transfer.POOL,
        scaling="x -> x",
    ),
    facts("_aminmax", Cost.REDUCTION, like="ReduceMax", keeps_values=True, transfer=Transfer.MOVE),
    # Distances between points: by default the root of a sum of squares.
    facts("_cdist_forward", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("_embedding_bag", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("_embedding_bag_forward_only", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("_euclidean_dist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("_pdist_forward", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts(
        "adaptive_avg_pool1d",
        Cost.REDUCTION,
        like="GlobalAveragePool",
        transfer=Transfer.POOL,
        scaling="x -> x",
    ),
    facts(
        "adaptive_avg_pool2d",
        Cost.REDUCTION,
        like="GlobalAveragePool",
        transfer=Transfer.POOL,
        scaling="x -> x",
    ),
    facts(
        "adaptive_avg_pool3d",
        Cost.REDUCTION,
        like="GlobalAveragePool",
        transfer=Transfer.POOL,
        scaling="x -> x",
    ),
    facts("aminmax", Cost.REDUCTION, like="ReduceMax", keeps_values=True, transfer=Transfer.MOVE),
    # Integers are counted; the counts are weighed by an operand, if there is one.
    facts("bincount", Cost.REDUCTION, Risk.SUM, like="NonZero"),
    facts("cdist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("corrcoef", Cost.LINEAR, Risk.STATISTICS),
    facts("cov", Cost.LINEAR, Risk.STATISTICS),
    facts("cumulative_trapezoid", Cost.REDUCTION, Risk.SUM, like="ReduceSum", scaling="x -> x"),
    facts("dist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("embedding_bag", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("frobenius_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2", scaling="x -> x"),
    facts("linalg_matrix_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("linalg_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("logcumsumexp", Cost.REDUCTION, Risk.SOFTMAX, Risk.RECIPROCAL, like="ReduceLogSumExp"),
    # The values are the input's own; their indices may flip.
    facts(
        "max.dim",
        Cost.REDUCTION,
        Risk.STEP,
        like="ReduceMax",
        function=Function.MAX,
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
    facts(
        "min.dim",
        Cost.REDUCTION,
        Risk.STEP,
        like="ReduceMin",
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
    facts("nanquantile", Cost.REDUCTION, Risk.STEP, like="TopK"),
    facts("pairwise_distance", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("pdist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("quantile", Cost.REDUCTION, Risk.STEP, like="TopK"),
    # Sums over parts of an axis.
    facts("segment_reduce", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts(
        "std",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        scaling="x -> x",
    ),
    facts(
        "std_mean",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        scaling="x -> x, x",
    ),
    facts("trace", Cost.REDUCTION, Risk.SUM, like="ReduceSum", scaling="x -> x"),
    facts("trapezoid", Cost.REDUCTION, Risk.SUM, like="ReduceSum", scaling="x -> x"),
    facts("trapz", Cost.REDUCTION, Risk.SUM, like="ReduceSum", scaling="x -> x"),
    # The mean comes second.
    facts(
        "var",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
        scaling="x -> 2x",
    ),
    facts(
        "var_mean",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
        scaling="x -> 2x, x",
    ),
)

# Operators with all facts of the ONNX operator named.
EQUIVALENTS: Mapping[str, str] = {
    "adaptive_max_pool1d": "MaxPool",
    "adaptive_max_pool2d": "MaxPool",
    "adaptive_max_pool3d": "MaxPool",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    # A window holds few elements, so its sum stays near its largest one.
    "avg_pool1d": "AveragePool",
    "avg_pool2d": "AveragePool",
    "avg_pool3d": "AveragePool",
    "cumprod": "CumProd",
    # Besides long sums it makes positions: the cumulative sum of a mask.
    "cumsum": "CumSum",
    # The exponent is an attribute; 2 is its default.
    "linalg_vector_norm": "ReduceL2",
    "logsumexp": "ReduceLogSumExp",
    "max": "ReduceMax",
    "max_pool1d": "MaxPool",
    "max_pool1d_with_indices": "MaxPool",
    "max_pool2d": "MaxPool",
    "max_pool2d_with_indices": "MaxPool",
    "max_pool3d": "MaxPool",
    "max_pool3d_with_indices": "MaxPool",
    # Its other places are zeros, as a pad's would be.
    "max_unpool2d": "MaxUnpool",
    "max_unpool3d": "MaxUnpool",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "mkldnn_max_pool2d": "MaxPool",
    "mkldnn_max_pool3d": "MaxPool",
    "nanmean": "ReduceMean",
    "nansum": "ReduceSum",
    "norm": "ReduceL2",
    "prod": "ReduceProd",
    "special_logsumexp": "ReduceLogSumExp",
    "sum": "ReduceSum",
}
