"""ONNX Runtime's CPU provider: the typed models it loads and runs. FP16 graphs are computed in
FP32; BF16 kernels exist for a few data movement operators only.
"""

from dataclasses import replace
from functools import partial

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.fusions import Constraint, Fusion, Inside, Stage, Step
from mezzo.tables.quantized_kernels import (
    Bias,
    Operand,
    OutputMode,
    QuantizedKernel,
    Storage,
    weight,
)
from mezzo.tables.runtime import Runtime
from mezzo.tables.sums import MULTIPLIES_INT8, VNNI, PairSum
from mezzo.tables.target import (
    Gain,
    KernelListing,
    RaisedOperator,
    Refusal,
    Respelling,
    Target,
    kernels,
)

_SINCE = "ONNX Runtime 1.31.1"
_SOURCE = f"probe of {_SINCE}"
_BOTH = frozenset({DType.FLOAT16, DType.BFLOAT16})
_F16 = frozenset({DType.FLOAT16})


def _row(
    op: str, because: str, dtypes: frozenset[DType], dialect: str = "onnx", **attributes: object
) -> Refusal:
    return Refusal(
        dialect=dialect,
        op=op,
        because=because,
        source=_SOURCE,
        dtypes=dtypes,
        attributes=attributes,
        since=_SINCE,
    )


_ASKED = f"{_SOURCE} with avx512_vnni"
_S8 = Storage(DType.INT8)
_CUT = frozenset({"Clip", "Relu"})
_MOVING = (
    "DepthToSpace", "Expand", "Flatten", "Gather", "MaxPool", "ReduceMax", "ReduceMin", "Reshape",
    "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
)  # fmt: skip
_UNSCALED = frozenset({None, 1.0})
_OFF = frozenset({None, 0})
_FUSED = (
    "it fuses them as DynamicQuantizeMatMul, or MatMulIntegerToFloat where several read the same"
    " data"
)


def _data(position: int = 0, and_rest: bool = False) -> Operand:
    return Operand(position=position, also=(_S8,), and_rest=and_rest)


def _kernel(
    op: str,
    *operands: Operand,
    hands: OutputMode = OutputMode.INTEGERS,
    because: str = "",
    **attributes: object,
) -> QuantizedKernel:
    return QuantizedKernel(
        op=op,
        operands=operands,
        hands=hands,
        source=f"{_ASKED}; {because}" if because else _ASKED,
        since=_SINCE,
        attributes=attributes,
        needs=MULTIPLIES_INT8,
    )


def _product(
    op: str, *operands: Operand, hands: OutputMode = OutputMode.EITHER, **attributes: object
) -> QuantizedKernel:
    row = _kernel(op, *operands, hands=hands)
    return replace(row, followers=_CUT, is_cut=True, bias=Bias.INT32, attributes=attributes)


def _dynamic(op: str, *operands: Operand, **attributes: object) -> QuantizedKernel:
    row = _kernel(
        op, Operand(position=0), *operands, hands=OutputMode.FLOATS, because=_FUSED, **attributes
    )
    return replace(row, followers=frozenset({"Add"}), is_dynamic=True)


def _recurrent(*, axis: int, **attributes: object) -> QuantizedKernel:
    """An LSTM. With one direction a scale per gate of each state, else one per direction."""
    because = (
        "DynamicQuantizeLSTM: with 128 states 1.25 times as fast as FP32, 256 2.2 times, 512 4"
        " times"
    )
    weights = weight(1, axis=axis), weight(2, axis=axis)
    row = _kernel(
        "LSTM",
        Operand(position=0),
        *weights,
        hands=OutputMode.FLOATS,
        because=because,
        layout=_OFF,
        **attributes,
    )
    return replace(row, is_dynamic=True)


_QUANTIZED = (
    _product("Conv", _data(), weight(1, axis=0), hands=OutputMode.INTEGERS),
    _product(
        "Gemm", Operand(position=0), weight(1, axis=0), transB=1, alpha=_UNSCALED, beta=_UNSCALED
    ),
    _product(
        "Gemm",
        Operand(position=0),
        weight(1, axis=-1),
        transB=frozenset({None, 0}),
        alpha=_UNSCALED,
        beta=_UNSCALED,
    ),
    # S8 before a bias at opset 21: "output_dtype INT8 does not match y_zero_point type UINT8".
    _product("MatMul", Operand(position=0), weight(1, axis=-1, rank=2)),
    # Per-column scales of weights of another rank: "b zero point is not valid".
    _product("MatMul", Operand(position=0), weight(1)),
    _product("MatMul", Operand(position=0, is_weight=True), _data(1)),
    _product("MatMul", _data(), _data(1)),
    *(
        replace(_kernel(op, _data(), _data(1)), followers=_CUT, is_cut=True)
        for op in ("Add", "Mul")
    ),
    replace(_kernel("AveragePool", _data()), followers=_CUT, is_cut=True),
    *(_kernel(op, _data()) for op in ("GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax")),
    _kernel("Concat", _data(and_rest=True)),
    *(_kernel(op, _data(), hands=OutputMode.READ) for op in _MOVING),
    _kernel("Resize", _data(), hands=OutputMode.READ, mode=frozenset({None, "nearest"})),
    # A convolution would be ConvInteger: a quarter of FP32's pace (ResNet-50, AMX). With the weight
    # first it does not load: MatMulIntegerToFloat has no kernel for S8 and U8.
    _dynamic("Gemm", weight(1, axis=0), transA=_OFF, transB=1, alpha=_UNSCALED, beta=_UNSCALED),
    _dynamic("Gemm", weight(1, axis=-1), transA=_OFF, transB=_OFF, alpha=_UNSCALED, beta=_UNSCALED),
    *(_dynamic("MatMul", weight(1, axis=-1, rank=rank)) for rank in (2, 3)),
    _dynamic("MatMul", weight(1)),
    _recurrent(axis=1, direction=frozenset({None, "forward", "reverse"})),
    _recurrent(axis=0, direction="bidirectional"),
)

_BLOCK_SIZES = (32, 16, 64, 128, 256)
_FLAT = frozenset({None, 0})


def _blocks(
    op: str, because: str, *, bits: int, along: int, operand: int = 1,
    levels: tuple[int, ...] = (0,),
    least: int = 0, **attributes: object,
) -> BlockKernel:  # fmt: skip
    return BlockKernel(
        op=op,
        operand=operand,
        axis=along,
        bits=bits,
        blocks=_BLOCK_SIZES,
        form=BlockForm.FUSED,
        accuracy_levels=levels,
        least_elements=least,
        attributes=attributes,
        source=because,
        since="ONNX Runtime 1.32.0",
    )


# Of one row of 192 x 192 they have .66 to .79 of FP32's speed, of 256 x 256 1.2 to 2.4 times.
_LEAST_PRODUCT = 1 << 16
_IN_BLOCKS = tuple(
    _blocks(op, because, bits=bits, along=along, levels=levels, least=_LEAST_PRODUCT, **attributes)
    for bits, levels, because in (
        # At level 4 activations are rounded to INT8: an error of .015, where four bits have .1.
        (4, (4, 0), "MatMulNBits, one row: 4.5 times as fast as FP32, 2.0 to 2.3 at level 0"),
        (
            8,
            (4,),
            "MatMulNBits, one row: 3.0 to 3.7 times as fast as FP32, .1 times at level 0",
        ),
    )
    for op, along, attributes in MATMUL_N_BITS
) + tuple(
    _blocks("Gather", "GatherBlockQuantized", bits=bits, operand=0, along=1, axis=_FLAT)
    for bits in (4, 8)
)

_EXTENDED = "optimized graphs at level EXTENDED ({})"
_AFTER_GEMM = Stage(
    activations=frozenset({
        "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign",
        "Tanh",
    })
)  # fmt: skip
_AFTER_CONV = frozenset({"Clip", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
_FOLDED = Stage(step=Step.SCALE_CHANNELS, most=4)
_NORM = Constraint(inside=Inside.FLOAT32)
_fusion = partial(Fusion, since=_SINCE)
_FUSIONS = (
    _fusion(
        pattern="matmul",
        source=_EXTENDED.format("Gemm, FusedGemm"),
        form="gemm",
        epilogues=((_AFTER_GEMM,),),
    ),
    _fusion(
        pattern="gemm-activation",
        source=_EXTENDED.format("FusedGemm"),
        operators=frozenset({"Gemm"}),
        epilogues=((_AFTER_GEMM,),),
    ),
    _fusion(
        pattern="convolution",
        source="optimized graphs at levels EXTENDED (FusedConv) and ALL (nchwc.Conv with a sum)",
        operators=frozenset({"Conv"}),
        epilogues=(
            (_FOLDED, Stage(activations=_AFTER_CONV)),
            (
                _FOLDED,
                # The smallest channel block of the NCHWc kernels.
                Stage(step=Step.RESIDUAL, channel_block=8),
                Stage(activations=frozenset({"Relu", "Sigmoid", "Tanh"})),
            ),
        ),
    ),
    _fusion(pattern="bias-gelu", source=_EXTENDED.format("BiasGelu, FastGelu")),
    _fusion(pattern="gelu", source=_EXTENDED.format("Gelu, FastGelu"), form="usual"),
    _fusion(pattern="silu", source=_EXTENDED.format("QuickGelu")),
    _fusion(
        pattern="skip-layer-norm",
        source=_EXTENDED.format("SkipLayerNormalization"),
        constraint=_NORM,
    ),
    _fusion(pattern="layer-norm", source=_EXTENDED.format("LayerNormalization"), constraint=_NORM),
    _fusion(
        pattern="rms-norm",
        source=_EXTENDED.format("SimplifiedLayerNormalization"),
        constraint=_NORM,
    ),
    _fusion(pattern="matmul-scale", source=_EXTENDED.format("FusedMatMul")),
)

TARGET = Target(
    name="onnxruntime-cpu",
    also=(
        "cpu",
        "ort",
        "onnxruntime",
        "ort-cpu",
        "CPUExecutionProvider",
    ),
    runtime=Runtime(
        package="onnxruntime",
        module="onnxruntime",
        provider="CPUExecutionProvider",
        driver="onnxruntime",
        profiles_nodes=True,
    ),
    summary="what the installed ONNX Runtime loads and runs on a CPU",
    refusals=(
        _row("EyeLike", "no FP16 kernel", _F16),
        _row(
            "GridSample",
            "its output has its input's type, FP16, and no FP16 kernel",
            _F16,
            "com.microsoft",
        ),
        _row("MelWeightMatrix", "no FP16 kernel", _F16),
        _row("RandomNormal", "no FP16 kernel", _F16),
        _row("RandomNormalLike", "no FP16 kernel", _F16),
        _row("RandomUniform", "no FP16 kernel", _F16),
        _row("RandomUniformLike", "no FP16 kernel", _F16),
        _row(
            "ScatterElements",
            "scatters BF16 without reduction only",
            frozenset({DType.BFLOAT16}),
            reduction=frozenset({"add", "mul", "max", "min"}),
        ),
        _row(
            "ScatterElements",
            "adds and multiplies no FP16",
            _F16,
            reduction=frozenset({"add", "mul"}),
        ),
        _row(
            "ScatterND",
            "scatters FP16 and BF16 without reduction only",
            _BOTH,
            reduction=frozenset({"add", "mul", "max", "min"}),
        ),
    ),
    newest={"onnx": 26},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    listings=(
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=kernels(
                "onnx",
                """
                Bernoulli 15, BlackmanWindow 17, Concat 13, ConstantOfShape 20-25, Dropout 13-22,
                Flatten 13-25, Gather 13, GatherElements 13, GatherND 13, HammingWindow 17,
                HannWindow 17, Identity 13-25, IsInf 20, IsNaN 20, LayerNormalization 17,
                ReduceLogSumExp 18, Reshape 13-25, ScatterElements 13-18, ScatterND 13-18, Sign 13,
                Slice 13, Split 13-18, Squeeze 13-25, TensorScatter 24, Transpose 13-25,
                Unsqueeze 13-25
            """,
            )
            + kernels(
                "com.microsoft",
                """
                BranchwiseRMSNorm, HyperConnectionPostMix, HyperConnectionPreMix, ScaledSiLU,
                SkipLayerNormalization, SkipSimplifiedLayerNormalization, UnfoldTensor
            """,
            ),
            because="no BF16 kernel",
            source=_SOURCE,
            since=_SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=False,
            because=(
                "ONNX Runtime's CPU computes FP16 graphs in FP32: weights take half the space, the"
                " speed does not gain."
            ),
            source=(
                "eight MatMul and Relu of 1024 x 1024, one thread: 14.0 ms in FP16, 14.3 ms in FP32"
            ),
            since=_SINCE,
            short="ONNX Runtime's CPU computes FP16 in FP32",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because=(
                "ONNX Runtime's CPU has BF16 kernels for moving values only: nothing is computed in"
                " BF16, nothing gains."
            ),
            source=_SOURCE,
            since=_SINCE,
            short="ONNX Runtime's CPU computes nothing in BF16",
        ),
        Gain(
            dtype=DType.QUANTIZED8,
            is_faster=True,
            because="ONNX Runtime's CPU multiplies U8 activations and S8 weights as integers",
            source=(
                "ResNet-50, one image, two threads, AMX: 2.7 times as fast as FP32; MatMul, 1024"
                " and 2048 wide, one thread, AMX: 1.8 to 4.1 times at one row, 2.5 to 5.4 at 64;"
                " AVX2 alone: ResNet-50 1.8 times, BERT 1.6 times"
            ),
            since=_SINCE,
            speeds=(2.4, 4.3),
            needs=MULTIPLIES_INT8,
            short="ONNX Runtime's CPU computes it in INT8",
        ),
        *(
            Gain(
                dtype=dtype,
                is_faster=True,
                because="a product of few rows is as fast as its weight is read from memory",
                source=f"MatMulNBits, 2048 x 2048, one row, one thread: {speed} times FP32's speed",
                speeds=speeds,
                since="ONNX Runtime 1.32.0",
                short="fewer bytes of weights to read, for products of few rows",
            )
            for dtype, speed, speeds in (
                (DType.INT4, "3.7 to 4.1", (4.0, 0.95)),
                (DType.INT8, "2.4 to 3.7", (2.5, 1.05)),
            )
        ),
        *(
            Gain(
                dtype=dtype,
                is_faster=False,
                because=(
                    "as it optimizes by default, ONNX Runtime's CPU loads no MatMul or Gemm on FP8:"
                    " what it fuses them into does not take it"
                ),
                source=(
                    f"QuantizeLinear, DequantizeLinear and MatMul or Gemm at opset 21, {_SINCE}:"
                    " INVALID_GRAPH, MatMulIntegerToFloat or QGemm; Conv loads, and runs in FP32"
                ),
                since=_SINCE,
                short="ONNX Runtime's CPU loads no product in FP8",
            )
            for dtype in (DType.QUANTIZED_E4M3, DType.QUANTIZED_E5M2)
        ),
    ),
    quantized=_QUANTIZED,
    pair_sum=PairSum(
        unless=VNNI,
        source="MatMul and Conv of uniform integers, AVX2: .19 off; exact with pairs up to 128",
        since="ONNX Runtime 1.32.0",
    ),
    in_blocks=_IN_BLOCKS,
    # benchmarks/low_float_weights.py
    weight_casts=(
        "ONNX Runtime folds the Casts of weights when it loads a file: a run takes the time and"
        " the memory of FP32"
    ),
    fusions=_FUSIONS,
    default_for=(
        "fp16",
        "int8",
        "int4",
        "int8w",
        "int4,int8w",
        "fp16w",
        "bf16w",
    ),
    # Attention is no faster than the same in small operators, and rounds more in FP16;
    # GroupNormalization is expanded, and takes twice the time of InstanceNormalization.
    raised=(
        RaisedOperator(
            op="RotaryEmbedding",
            source=(
                "x of 8 heads, 512 positions and 64 channels, one thread: 0.09 ms in FP32 and in"
                " FP16, written out 0.53 and 0.57 ms"
            ),
            since="ONNX Runtime 1.32.0",
        ),
    ),
    respellings=(
        Respelling(
            op="Add",
            instead="Sum",
            source=(
                "SkipLayerNormalization takes 4.9 ns a number, Add and LayerNormalization 0.67 (128"
                " x 768, one thread); by rows in parallel it would pass them at 24 threads"
            ),
            since="ONNX Runtime 1.32.0",
        ),
    ),
)
