"""Reductions, cumulative reductions and pooling."""

from mezzo.core.facts import Cost, Function, OpFacts, Risk, Transfer, facts

SOURCE = (
    "PyTorch 2.13 documentation, torch, reduction operations, and torch.nn.functional, pooling; error and growth "
    "of sums and products of n terms: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., "
    "chapters 3 and 4"
)

FACTS: tuple[OpFacts, ...] = (
    # How many numbers go into one hangs on the input's size.
    facts("_adaptive_avg_pool2d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("_adaptive_avg_pool3d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("_aminmax", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    # Distances between points: by default the root of a sum of squares.
    facts("_cdist_forward", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("_embedding_bag", Cost.REDUCTION, Risk.SUM),
    facts("_embedding_bag_forward_only", Cost.REDUCTION, Risk.SUM),
    facts("_euclidean_dist", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("_pdist_forward", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("adaptive_avg_pool1d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("adaptive_avg_pool2d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("adaptive_avg_pool3d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("adaptive_max_pool1d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("adaptive_max_pool2d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("adaptive_max_pool3d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("amax", Cost.REDUCTION, function=Function.MAX, keeps_values=True, transfer=Transfer.EXTREME),
    facts("amin", Cost.REDUCTION, keeps_values=True, transfer=Transfer.EXTREME),
    facts("aminmax", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    # A window holds few elements, so its sum stays near its largest one.
    facts("avg_pool1d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("avg_pool2d", Cost.REDUCTION, transfer=Transfer.POOL),
    facts("avg_pool3d", Cost.REDUCTION, transfer=Transfer.POOL),
    # Integers are counted; the counts are weighed by an operand, if there is one.
    facts("bincount", Cost.REDUCTION, Risk.SUM),
    facts("cdist", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("corrcoef", Cost.LINEAR, Risk.STATISTICS),
    facts("cov", Cost.LINEAR, Risk.STATISTICS),
    facts("cumprod", Cost.REDUCTION, Risk.PRODUCT, transfer=Transfer.RUNNING_PRODUCT),
    # Besides long sums it makes positions: the cumulative sum of a mask.
    facts(
        "cumsum",
        Cost.REDUCTION,
        Risk.SUM,
        Risk.POSITION,
        function=Function.CUMULATIVE_SUM,
        transfer=Transfer.RUNNING_SUM,
    ),
    facts("cumulative_trapezoid", Cost.REDUCTION, Risk.SUM),
    facts("dist", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("embedding_bag", Cost.REDUCTION, Risk.SUM),
    facts("frobenius_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("linalg_matrix_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("linalg_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    # The exponent is an attribute; 2 is its default.
    facts(
        "linalg_vector_norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, function=Function.L2_NORM, transfer=Transfer.L2_NORM
    ),
    facts("logcumsumexp", Cost.REDUCTION, Risk.SOFTMAX, Risk.RECIPROCAL),
    facts("logsumexp", Cost.REDUCTION, Risk.SOFTMAX, Risk.RECIPROCAL, transfer=Transfer.LOG_SUM_EXP),
    facts("max", Cost.REDUCTION, function=Function.MAX, keeps_values=True, transfer=Transfer.EXTREME),
    # The values are the input's own; their indices may flip.
    facts("max.dim", Cost.REDUCTION, Risk.STEP, function=Function.MAX, keeps_values=True, transfer=Transfer.EXTREME),
    facts("max_pool1d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("max_pool1d_with_indices", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("max_pool2d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("max_pool2d_with_indices", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("max_pool3d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("max_pool3d_with_indices", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    # Its other places are zeros, as a pad's would be.
    facts("max_unpool2d", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("max_unpool3d", Cost.MOVEMENT, keeps_values=True, transfer=Transfer.MOVE),
    facts("mean", Cost.REDUCTION, function=Function.MEAN, transfer=Transfer.MEAN),
    facts("min", Cost.REDUCTION, keeps_values=True, transfer=Transfer.EXTREME),
    facts("min.dim", Cost.REDUCTION, Risk.STEP, keeps_values=True, transfer=Transfer.EXTREME),
    facts("mkldnn_max_pool2d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("mkldnn_max_pool3d", Cost.REDUCTION, keeps_values=True, transfer=Transfer.MOVE),
    facts("nanmean", Cost.REDUCTION, function=Function.MEAN, transfer=Transfer.MEAN),
    facts("nanquantile", Cost.REDUCTION, Risk.STEP),
    facts("nansum", Cost.REDUCTION, Risk.SUM, function=Function.SUM, transfer=Transfer.SUM),
    facts("norm", Cost.REDUCTION, Risk.SUM_OF_SQUARES, function=Function.L2_NORM, transfer=Transfer.L2_NORM),
    facts("pairwise_distance", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("pdist", Cost.REDUCTION, Risk.SUM_OF_SQUARES),
    facts("prod", Cost.REDUCTION, Risk.PRODUCT, transfer=Transfer.PRODUCT),
    facts("quantile", Cost.REDUCTION, Risk.STEP),
    # Sums over parts of an axis.
    facts("segment_reduce", Cost.REDUCTION, Risk.SUM),
    facts("special_logsumexp", Cost.REDUCTION, Risk.SOFTMAX, Risk.RECIPROCAL, transfer=Transfer.LOG_SUM_EXP),
    facts("std", Cost.REDUCTION, Risk.STATISTICS, Risk.SUM_OF_SQUARES),
    facts("std_mean", Cost.REDUCTION, Risk.STATISTICS, Risk.SUM_OF_SQUARES),
    facts("sum", Cost.REDUCTION, Risk.SUM, function=Function.SUM, transfer=Transfer.SUM),
    facts("trace", Cost.REDUCTION, Risk.SUM),
    facts("trapezoid", Cost.REDUCTION, Risk.SUM),
    facts("trapz", Cost.REDUCTION, Risk.SUM),
    # The mean comes second.
    facts(
        "var",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
    ),
    facts(
        "var_mean",
        Cost.REDUCTION,
        Risk.STATISTICS,
        Risk.SUM_OF_SQUARES,
        function=Function.VARIANCE,
        transfer=Transfer.VARIANCE,
    ),
)
