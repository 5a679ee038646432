"""Nodes of old opsets in the variants of their attributes: what they start from, and the graph around them.

`x` is FP32 of the shape given, `y` what comes out. What no engine runs any more says in numpy what it means.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Case(NamedTuple):
    since: int
    body: str
    shape: tuple[int, ...] = (2, 3, 4, 5)
    weights: str = ""
    is_exact: bool = True  # else spelled in other operators, which round elsewhere
    meaning: Callable[[np.ndarray], np.ndarray] | None = None


def _channels(*numbers: float) -> np.ndarray:
    """Numbers along the second axis of four."""
    return np.array(numbers, np.float32)[:, None, None]


def _selu(x: np.ndarray) -> np.ndarray:
    alpha, gamma = np.float32(1.6732), np.float32(1.0507)
    return np.where(x > 0, gamma * x, gamma * (alpha * np.exp(x) - alpha))


def _compare(x: np.ndarray) -> np.ndarray:
    less, greater = x < _channels(0, 0.5, 1), x > _channels(-1, 0, 0.5)
    return ((less & greater) ^ (less | greater)).astype(np.float32)


def _per_channel(shape: str, count: int) -> str:
    numbers = ",".join(f"{1 + index % 7 / 8}" for index in range(count))
    return "<" + ", ".join(f"float[{shape}] {name} = {{{numbers}}}" for name in "sbmv") + ">"


_NORM = _per_channel("3", 3)
_RNN = "<float[1,{g},5] w = {{{w}}}, float[1,{g},2] r = {{{r}}}>"
_SCALE_UP, _SCALE_DOWN, _SCALE_BOTH, _SCALE_AROUND = (
    f"<float[4] s = {{{numbers}}}>" for numbers in ("1,1,2,1.5", "1,1,0.6,0.4", "1,1,0.5,2", "1,1,2.5,1")
)


def _rnn(gates: int) -> str:
    def numbers(count: int) -> str:
        return ",".join(f"{(index * 7 % 11 - 5) / 16}" for index in range(count))

    return _RNN.format(g=gates * 2, w=numbers(gates * 2 * 5), r=numbers(gates * 2 * 2))


_NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")

CASES = {
    # Operands that were aligned at an axis.
    "add_at_an_axis": Case(
        6,
        "y = Add<broadcast=1, axis=1>(x, c)",
        weights="<float[3] c = {1,2,3}>",
        meaning=lambda x: x + _channels(1, 2, 3),
    ),
    "sub_at_two_axes": Case(
        6,
        "y = Sub<broadcast=1, axis=1>(x, c)",
        (2, 2, 2, 5),
        "<float[2,2] c = {1,2,3,4}>",
        meaning=lambda x: x - np.array([[[1], [2]], [[3], [4]]], np.float32),
    ),
    "mul_at_the_end": Case(6, "y = Mul<broadcast=1>(x, c)", weights="<float[5] c = {1,2,3,4,5}>"),
    "div_at_the_last_axis": Case(6, "y = Div<broadcast=1, axis=3>(x, c)", weights="<float[5] c = {1,2,3,4,5}>"),
    "pow_by_a_scalar": Case(6, "y = Pow<broadcast=1>(x, c)", weights="<float[1] c = {2}>", meaning=np.square),
    "add_alike": Case(6, "y = Add(x, x)"),
    "less_at_an_axis": Case(
        6,
        "a = Less<broadcast=1, axis=1>(x, c)\n b = Greater<broadcast=1, axis=1>(x, d)\n"
        " e = And(a, b)\n f = Or(a, b)\n g = Xor(e, f)\n y = Cast<to=1>(g)",
        weights="<float[3] c = {0,0.5,1}, float[3] d = {-1,0,0.5}>",
        meaning=_compare,
    ),
    "gemm": Case(6, "y = Gemm<broadcast=1>(x, c, d)", (2, 3), "<float[3,2] c = {1,2,3,4,5,6}, float[2] d = {1,2}>"),
    "prelu_per_channel": Case(6, "y = PRelu(x, c)", weights="<float[3] c = {0.1,0.2,0.3}>"),
    "prelu_of_one_slope": Case(6, "y = PRelu(x, c)", weights="<float[1] c = {0.1}>"),
    # Hints and defaults of the first opsets.
    "in_place": Case(
        1,
        "a = Relu<consumed_inputs=[0]>(x)\n b = Sigmoid<consumed_inputs=[0]>(a)\n c = Tanh(b)\n y = Exp(c)",
        is_exact=False,
    ),
    "selu": Case(1, "y = Selu(x)", is_exact=False, meaning=_selu),
    "cast_by_word": Case(1, 'a = Cast<to="DOUBLE">(x)\n y = Cast<to="FLOAT">(a)', meaning=lambda x: x),
    "concat_of_no_axis": Case(1, "y = Concat(x, x)", meaning=lambda x: np.concatenate([x, x], 1)),
    "reshape_by_attribute": Case(1, "y = Reshape<shape=[0,-1]>(x)"),
    "tile_of_one_axis": Case(
        1,
        "y = Tile(x, t, a)",
        weights="<float[1] t = {3}, float[1] a = {2}>",
        meaning=lambda x: np.tile(x, (1, 1, 3, 1)),
    ),
    "pad_by_paddings": Case(1, "y = Pad<paddings=[0,0,1,2,0,0,0,1]>(x)"),
    "split_by_attribute": Case(
        1,
        "a, b = Split<axis=3, split=[2,3]>(x)\n y = Concat<axis=3>(b, a)",
        meaning=lambda x: np.concatenate([x[..., 2:], x[..., :2]], 3),
    ),
    # Attributes that became operands.
    "clip": Case(9, "y = Clip<min=-0.5, max=0.5>(x)"),
    "clip_below": Case(9, "y = Clip<min=-0.5>(x)"),
    "clip_above": Case(9, "y = Clip<max=0.5>(x)"),
    "clip_at_no_bound": Case(9, "y = Clip(x)"),
    "clip_of_doubles": Case(9, "a = Cast<to=11>(x)\n b = Clip<min=-0.5, max=0.5>(a)\n y = Cast<to=1>(b)"),
    "pad_with_zeros": Case(9, "y = Pad<pads=[0,0,1,2,0,0,0,1]>(x)"),
    "pad_with_ones": Case(9, "y = Pad<pads=[0,0,1,2,0,0,0,1], value=1.0>(x)"),
    "pad_by_reflection": Case(9, 'y = Pad<pads=[0,0,1,2,0,0,0,1], mode="reflect">(x)'),
    "pad_by_the_edge": Case(9, 'y = Pad<pads=[0,0,-1,2,0,0,0,1], mode="edge">(x)'),
    "slice": Case(9, "y = Slice<starts=[1,0], ends=[3,-1], axes=[2,3]>(x)"),
    "slice_of_the_first_axes": Case(9, "y = Slice<starts=[0,1], ends=[1,100]>(x)"),
    "top_k": Case(9, "y, i = TopK<k=2, axis=1>(x)"),
    "squeeze_and_unsqueeze": Case(11, "a = Unsqueeze<axes=[0,4]>(x)\n y = Squeeze<axes=[4]>(a)"),
    "squeeze_of_all": Case(11, "a = Unsqueeze<axes=[0]>(x)\n y = Squeeze(a)"),
    "split_with_sizes": Case(11, "a, c = Split<axis=3, split=[1,4]>(x)\n y = Concat<axis=3>(c, a)"),
    "split_in_equal_parts": Case(11, "a, c = Split<axis=2>(x)\n y = Add(c, a)"),
    "reduce_sum": Case(11, "y = ReduceSum<axes=[1], keepdims=0>(x)"),
    "reduce_sum_of_all": Case(11, "y = ReduceSum(x)"),
    "reduce_mean": Case(13, "y = ReduceMean<axes=[-1], keepdims=1>(x)"),
    "reductions": Case(
        9,
        "a = ReduceL1<axes=[1]>(x)\n b = ReduceL2<axes=[2]>(x)\n c = ReduceMax<axes=[3]>(x)\n"
        " d = ReduceMin<axes=[1,2]>(x)\n e = ReduceProd<axes=[3]>(x)\n f = ReduceSumSquare(x)\n"
        " p = Exp(x)\n h = ReduceLogSum<axes=[2]>(p)\n i = ReduceLogSumExp<axes=[1]>(x)\n"
        " y = Sum(a, b, c, d, e, f, h, i)",
    ),
    "dropout_of_7": Case(7, "y = Dropout<ratio=0.7>(x)"),
    "dropout_whose_mask_nobody_reads": Case(10, "y, k = Dropout<ratio=0.7>(x)"),
    "erf": Case(9, "y = Erf(x)"),
    "scatter": Case(
        9,
        "y = Scatter<axis=1>(x, i, u)",
        weights="<int64[1,2,1,2] i = {0,2,1,0}, float[1,2,1,2] u = {9,8,7,6}>",
    ),
    "dft_of_a_named_axis": Case(17, "y = DFT<axis=2>(x)", (2, 3, 4, 1), is_exact=False),
    "dft_of_no_axis": Case(17, "y = DFT(x)", (2, 3, 4, 1), is_exact=False),
    "grid_sample": Case(
        16,
        'y = GridSample<mode="bicubic">(x, g)',
        (1, 1, 4, 4),
        "<float[1,2,2,2] g = {-0.5,-0.5,0.25,0.5,0.1,-0.9,0.9,0.7}>",
    ),
    "grid_sample_as_it_was": Case(
        16, "y = GridSample(x, g)", (1, 1, 4, 4), "<float[1,2,2,2] g = {-0.5,-0.5,0.25,0.5,0.1,-0.9,0.9,0.7}>"
    ),
    "roi_align": Case(
        10,
        "y = RoiAlign<output_height=2, output_width=2, sampling_ratio=2>(x, r, i)",
        (1, 1, 6, 6),
        "<float[2,4] r = {0,0,4,4,1,1,3,5}, int64[2] i = {0,0}>",
    ),
    # Softmax and its kin: over one axis, over several, counted from either end.
    "softmax_of_no_axis": Case(11, "y = Softmax(x)", is_exact=False),
    "softmax_of_the_last_axis": Case(11, "y = Softmax<axis=3>(x)", is_exact=False),
    "softmax_of_minus_one": Case(11, "y = LogSoftmax<axis=-1>(x)", is_exact=False),
    "softmax_of_minus_two": Case(11, "y = Softmax<axis=-2>(x)", is_exact=False),
    "softmax_of_all": Case(9, "y = LogSoftmax<axis=0>(x)", is_exact=False),
    "softmax_of_rank_two": Case(9, "y = Softmax<axis=1>(x)", (3, 7), is_exact=False),
    "softmax_of_one_long_axis": Case(9, "y = Softmax<axis=1>(x)", (2, 7, 1, 1), is_exact=False),
    "softmax_of_a_vector": Case(11, "y = Softmax<axis=0>(x)", (7,), is_exact=False),
    "hardmax_of_several": Case(11, "y = Hardmax<axis=2>(x)"),
    # Norms.
    "batch_norm_of_7": Case(7, "y = BatchNormalization<spatial=1>(x, s, b, m, v)", weights=_NORM, is_exact=False),
    "batch_norm_of_9": Case(9, "y = BatchNormalization(x, s, b, m, v)", weights=_NORM, is_exact=False),
    "batch_norm_per_activation": Case(
        7,
        "y = BatchNormalization<spatial=0, epsilon=0.1>(x, s, b, m, v)",
        (2, 3, 2),
        _per_channel("3,2", 6),
        is_exact=False,
    ),
    "batch_norm_that_trains": Case(
        9, "y, o, p, q, r = BatchNormalization<momentum=0.7>(x, s, b, m, v)", weights=_NORM, is_exact=False
    ),
    "group_norm": Case(
        18,
        "y = GroupNormalization<num_groups=2>(x, c, d)",
        (2, 6, 4),
        "<float[2] c = {1,2}, float[2] d = {0.5,0.25}>",
        is_exact=False,
    ),
    "mean_variance_norm": Case(9, "y = MeanVarianceNormalization(x)", is_exact=False),
    "instance_norm": Case(6, "y = InstanceNormalization(x, c, c)", weights="<float[3] c = {1,2,3}>", is_exact=False),
    # Upsample and Resize: larger, smaller, both, scales that nobody knows.
    "upsample_of_7": Case(7, "y = Upsample<scales=[1.0,1.0,2.0,1.5]>(x)"),
    "upsample_linear_of_7": Case(7, 'y = Upsample<scales=[1.0,1.0,2.0,2.0], mode="linear">(x)', is_exact=False),
    "upsample_of_9": Case(9, "y = Upsample(x, s)", weights=_SCALE_UP),
    "upsample_by_unknown_scales": Case(9, "i = Identity(s)\n y = Upsample(x, i)", weights=_SCALE_UP),
    "resize_larger": Case(10, "y = Resize(x, s)", weights=_SCALE_AROUND),
    "resize_smaller": Case(10, "y = Resize(x, s)", weights=_SCALE_DOWN),
    "resize_both_ways": Case(10, "y = Resize(x, s)", weights=_SCALE_BOTH),
    "resize_by_unknown_scales": Case(10, "i = Identity(s)\n y = Resize(x, i)", weights=_SCALE_BOTH),
    "resize_linear": Case(10, 'y = Resize<mode="linear">(x, s)', weights=_SCALE_UP, is_exact=False),
    "resize_linear_smaller": Case(10, 'y = Resize<mode="linear">(x, s)', weights=_SCALE_DOWN, is_exact=False),
    **{
        f"resize_of_11_{mode}_{place}_{nearest}": Case(
            11,
            f'y = Resize<mode="{mode}", coordinate_transformation_mode="{place}", nearest_mode="{nearest}">(x, e, s)',
            weights=f"<float[0] e = {{}}, {_SCALE_BOTH.removeprefix('<')}",
            is_exact=False,
        )
        for mode in ("nearest", "linear", "cubic")
        for place in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
        for nearest in (_NEAREST if mode == "nearest" else ("floor",))
    },
    "resize_of_11_to_sizes": Case(
        11,
        "y = Resize(x, e, e, z)",
        weights="<float[0] e = {}, int64[4] z = {2,3,6,7}>",
    ),
    "resize_of_11_tensorflow": Case(
        11,
        'y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor">(x, e, s)',
        weights=f"<float[0] e = {{}}, {_SCALE_BOTH.removeprefix('<')}",
    ),
    "resize_of_11_tensorflow_rounded": Case(
        11,
        'y = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn">(x, e, s)',
        weights=f"<float[0] e = {{}}, {_SCALE_BOTH.removeprefix('<')}",
    ),
    "resize_of_11_a_crop": Case(
        11,
        'y = Resize<coordinate_transformation_mode="tf_crop_and_resize", mode="linear">(x, r, s)',
        weights=f"<float[8] r = {{0,0,0.2,0.1,1,1,0.9,0.8}}, {_SCALE_UP.removeprefix('<')}",
        is_exact=False,
    ),
    # Recurrent ones: [steps, batch, 5] to a state of 2.
    "gru": Case(7, "y, h = GRU<hidden_size=2>(x, w, r)", (4, 3, 5), _rnn(3), is_exact=False),
    "gru_after_reset": Case(
        7, "y = GRU<hidden_size=2, linear_before_reset=1>(x, w, r)", (4, 3, 5), _rnn(3), is_exact=False
    ),
    "lstm": Case(7, "y, h, c = LSTM<hidden_size=2>(x, w, r)", (4, 3, 5), _rnn(4), is_exact=False),
    "rnn": Case(7, "y, h = RNN<hidden_size=2>(x, w, r)", (4, 3, 5), _rnn(1), is_exact=False),
    # A Scan over [batch, steps, features] that adds up, with sequences from either end.
    "scan_of_8": Case(
        8,
        "e, y = Scan<num_scan_inputs=1, body=add {dirs}(float[4] s, float[4] t) => (float[4] u, float[4] o)"
        " {{ u = Add(s, t)\n o = Identity(u) }}>(, i, x)".format(dirs=""),
        (2, 3, 4),
        "<float[2,4] i = {1,2,3,4,5,6,7,8}>",
    ),
    "scan_of_8_backwards": Case(
        8,
        "e, y = Scan<num_scan_inputs=1, directions=[1], body=add (float[4] s, float[4] t) => (float[4] u, float[4] o)"
        " { u = Add(s, t)\n o = Clip<min=0.0>(u) }>(, i, x)",
        (2, 3, 4),
        "<float[2,4] i = {1,2,3,4,5,6,7,8}>",
    ),
    # What only types and optional ports have changed.
    "pooling": Case(
        7, "a = MaxPool<kernel_shape=[2,2]>(x)\n y = AveragePool<kernel_shape=[2,2], pads=[1,1,1,1]>(a)", is_exact=False
    ),
    "sum_of_several": Case(6, "a = Max(x, x)\n b = Mean(x, a)\n y = Sum(x, a, b)"),
    "arg_max": Case(7, "a = ArgMax<axis=1>(x)\n y = Cast<to=1>(a)"),
    "quantized": Case(
        10,
        "a = QuantizeLinear(x, c, z)\n y = DequantizeLinear(a, c, z)",
        weights="<float c = {0.05}, int8 z = {3}>",
    ),
    "non_max_suppression": Case(
        10,
        "a = NonMaxSuppression(x, c, k, p)\n y = Cast<to=1>(a)",
        (1, 4, 4),
        "<float[1,1,4] c = {0.9,0.8,0.7,0.6}, int64[1] k = {3}, float[1] p = {0.5}>",
    ),
    # What ONNX took back, and ONNX Runtime still has.
    "affine": Case(8, "y = Affine<alpha=2.0, beta=0.5>(x)", is_exact=False),
    "scale": Case(8, "y = Scale<scale=2.0>(x)", is_exact=False),
    "image_scaler": Case(8, "y = ImageScaler<scale=2.0, bias=[1.0,2.0,3.0]>(x)", is_exact=False),
    "parametric_softplus": Case(8, "y = ParametricSoftplus<alpha=2.0, beta=0.5>(x)", is_exact=False),
    "scaled_tanh": Case(8, "y = ScaledTanh<alpha=2.0, beta=0.5>(x)", is_exact=False),
    "crop": Case(8, "y = Crop<border=[1,2,1,0]>(x)"),
    "crop_to_a_size": Case(8, "y = Crop<border=[1,2,0,0], scale=[2,3]>(x)"),
    "thresholded_relu": Case(8, "y = ThresholdedRelu<alpha=0.3>(x)"),
    "mean_norm_of_7": Case(7, "y = MeanVarianceNormalization<normalize_variance=0>(x)", is_exact=False),
    "mean_variance_norm_of_7": Case(7, "y = MeanVarianceNormalization<across_channels=1>(x)", is_exact=False),
}
