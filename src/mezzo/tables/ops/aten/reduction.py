"""Reductions, cumulative reductions and pooling."""

from mezzo.tables.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, reduction operations, and torch.nn.functional, pooling;"
    " error and growth of sums and products of n terms: N. J. Higham, Accuracy and Stability of"
    " Numerical Algorithms, 2nd ed., chapters 3 and 4"
)

FACTS: tuple[OpFacts, ...] = (
    # The number of elements per result depends on the input's size.
    facts("_adaptive_avg_pool2d", Cost.REDUCTION, like="GlobalAveragePool", transfer=Transfer.POOL),
    facts("_adaptive_avg_pool3d", Cost.REDUCTION, like="GlobalAveragePool", transfer=Transfer.POOL),
    facts("_aminmax", Cost.REDUCTION, like="ReduceMax", keeps_values=True, transfer=Transfer.MOVE),
    # Distances between points: by default the root of a sum of squares.
    facts("_cdist_forward", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("_embedding_bag", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("_embedding_bag_forward_only", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("_euclidean_dist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("_pdist_forward", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("adaptive_avg_pool1d", Cost.REDUCTION, like="GlobalAveragePool", transfer=Transfer.POOL),
    facts("adaptive_avg_pool2d", Cost.REDUCTION, like="GlobalAveragePool", transfer=Transfer.POOL),
    facts("adaptive_avg_pool3d", Cost.REDUCTION, like="GlobalAveragePool", transfer=Transfer.POOL),
    facts(
        "adaptive_max_pool1d",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "adaptive_max_pool2d",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "adaptive_max_pool3d",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "amax",
        Cost.REDUCTION,
        like="ReduceMax",
        function=Function.MAX,
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
    facts("amin", Cost.REDUCTION, like="ReduceMin", keeps_values=True, transfer=Transfer.EXTREME),
    facts("aminmax", Cost.REDUCTION, like="ReduceMax", keeps_values=True, transfer=Transfer.MOVE),
    # A window holds few elements, so its sum stays near its largest one.
    facts("avg_pool1d", Cost.REDUCTION, like="AveragePool", transfer=Transfer.POOL),
    facts("avg_pool2d", Cost.REDUCTION, like="AveragePool", transfer=Transfer.POOL),
    facts("avg_pool3d", Cost.REDUCTION, like="AveragePool", transfer=Transfer.POOL),
    # Integers are counted; the counts are weighed by an operand, if there is one.
    facts("bincount", Cost.REDUCTION, Risk.SUM, like="NonZero"),
    facts("cdist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("corrcoef", Cost.LINEAR, Risk.STATISTICS),
    facts("cov", Cost.LINEAR, Risk.STATISTICS),
    facts(
        "cumprod", Cost.REDUCTION, Risk.PRODUCT, like="CumProd", transfer=Transfer.RUNNING_PRODUCT
    ),
    # Besides long sums it makes positions: the cumulative sum of a mask.
    facts(
        "cumsum",
        Cost.REDUCTION,
        Risk.SUM,
        Risk.POSITION,
        like="CumSum",
        function=Function.CUMULATIVE_SUM,
        transfer=Transfer.RUNNING_SUM,
    ),
    facts("cumulative_trapezoid", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("dist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("embedding_bag", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("frobenius_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("linalg_matrix_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("linalg_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    # The exponent is an attribute; 2 is its default.
    facts(
        "linalg_vector_norm",
        Cost.REDUCTION,
        Risk.SUM_OF_SQUARES,
        like="ReduceL2",
        function=Function.L2_NORM,
        transfer=Transfer.L2_NORM,
    ),
    facts("logcumsumexp", Cost.REDUCTION, Risk.SOFTMAX, Risk.RECIPROCAL, like="ReduceLogSumExp"),
    facts(
        "logsumexp",
        Cost.REDUCTION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        like="ReduceLogSumExp",
        transfer=Transfer.LOG_SUM_EXP,
    ),
    facts(
        "max",
        Cost.REDUCTION,
        like="ReduceMax",
        function=Function.MAX,
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
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
    facts("max_pool1d", Cost.REDUCTION, like="MaxPool", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "max_pool1d_with_indices",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("max_pool2d", Cost.REDUCTION, like="MaxPool", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "max_pool2d_with_indices",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts("max_pool3d", Cost.REDUCTION, like="MaxPool", keeps_values=True, transfer=Transfer.MOVE),
    facts(
        "max_pool3d_with_indices",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    # Its other places are zeros, as a pad's would be.
    facts(
        "max_unpool2d", Cost.MOVEMENT, like="MaxUnpool", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "max_unpool3d", Cost.MOVEMENT, like="MaxUnpool", keeps_values=True, transfer=Transfer.MOVE
    ),
    facts(
        "mean", Cost.REDUCTION, like="ReduceMean", function=Function.MEAN, transfer=Transfer.MEAN
    ),
    facts("min", Cost.REDUCTION, like="ReduceMin", keeps_values=True, transfer=Transfer.EXTREME),
    facts(
        "min.dim",
        Cost.REDUCTION,
        Risk.STEP,
        like="ReduceMin",
        keeps_values=True,
        transfer=Transfer.EXTREME,
    ),
    facts(
        "mkldnn_max_pool2d",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "mkldnn_max_pool3d",
        Cost.REDUCTION,
        like="MaxPool",
        keeps_values=True,
        transfer=Transfer.MOVE,
    ),
    facts(
        "nanmean", Cost.REDUCTION, like="ReduceMean", function=Function.MEAN, transfer=Transfer.MEAN
    ),
    facts("nanquantile", Cost.REDUCTION, Risk.STEP, like="TopK"),
    facts(
        "nansum",
        Cost.REDUCTION,
        Risk.SUM,
        like="ReduceSum",
        function=Function.SUM,
        transfer=Transfer.SUM,
    ),
    facts(
        "norm",
        Cost.REDUCTION,
        Risk.SUM_OF_SQUARES,
        like="ReduceL2",
        function=Function.L2_NORM,
        transfer=Transfer.L2_NORM,
    ),
    facts("pairwise_distance", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("pdist", Cost.REDUCTION, Risk.SUM_OF_SQUARES, like="ReduceL2"),
    facts("prod", Cost.REDUCTION, Risk.PRODUCT, like="ReduceProd", transfer=Transfer.PRODUCT),
    facts("quantile", Cost.REDUCTION, Risk.STEP, like="TopK"),
    # Sums over parts of an axis.
    facts("segment_reduce", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts(
        "special_logsumexp",
        Cost.REDUCTION,
        Risk.SOFTMAX,
        Risk.RECIPROCAL,
        like="ReduceLogSumExp",
        transfer=Transfer.LOG_SUM_EXP,
    ),
    facts(
        "std",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
    ),
    facts(
        "std_mean",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
    ),
    facts(
        "sum",
        Cost.REDUCTION,
        Risk.SUM,
        like="ReduceSum",
        function=Function.SUM,
        transfer=Transfer.SUM,
    ),
    facts("trace", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("trapezoid", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    facts("trapz", Cost.REDUCTION, Risk.SUM, like="ReduceSum"),
    # The mean comes second.
    facts(
        "var",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
    ),
    facts(
        "var_mean",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        like="MeanVarianceNormalization",
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
    ),
)
