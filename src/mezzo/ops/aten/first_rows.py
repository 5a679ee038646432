"""A first few rows, until there are tables by family."""

from mezzo.core.facts import Cost, Risk, facts

SOURCE = "t"
FACTS = (
    tuple(facts(o, Cost.LINEAR) for o in ["mm", "addmm", "bmm", "baddbmm", "convolution", "linear", "matmul"])
    + tuple(
        facts(o, Cost.ATTENTION)
        for o in ["_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention"]
    )
    + tuple(
        facts(o, Cost.MOVEMENT, keeps_values=True)
        for o in [
            "view",
            "permute",
            "select",
            "slice",
            "clone",
            "expand",
            "cat",
            "unsqueeze",
            "squeeze",
            "split",
            "split_with_sizes",
            "transpose",
            "t",
            "_unsafe_view",
            "reshape",
            "embedding",
            "index",
        ]
    )
    + tuple(
        facts(o, Cost.POINTWISE)
        for o in ["add", "mul", "sub", "div", "gelu", "relu", "tanh", "erf", "where", "sigmoid", "silu", "neg", "rsqrt"]
    )
    + tuple(
        facts(o, Cost.NORMALIZATION, Risk.STATISTICS)
        for o in ["native_layer_norm", "layer_norm", "_native_batch_norm_legit_no_training"]
    )
    + (
        facts("_softmax", Cost.NORMALIZATION, Risk.SOFTMAX),
        facts("mean", Cost.REDUCTION),
        facts("var_mean", Cost.REDUCTION, Risk.STATISTICS),
    )
)
