"""OpenVINO's CPU plug-in: the typed models it compiles and runs in execution mode ACCURACY, the
only one that respects the types in the file. Operators that run in neither the low type nor FP32
have no row.
"""

from dataclasses import replace

from mezzo.formats.block_storage import BITS, BlockForm
from mezzo.formats.dtypes import DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.openvino_rows import FRONT_END, SINCE
from mezzo.tables.quantized_kernels import Operand, OutputMode, QuantizedKernel, Storage, weight
from mezzo.tables.runtime import Runtime
from mezzo.tables.sums import MULTIPLIES_INT8, VNNI, PairSum
from mezzo.tables.target import Gain, NormQuotient, Refusal, Target
from mezzo.tables.targets.openvino_cpu.fusions import FUSIONS

_SOURCE = f"probe of {SINCE}"
_MEASURED = "eight MatMul and Relu of 1024 x 1024, one thread, AMX"
# Without one of these features the CPU runs BF16 graphs with FP32 kernels.
_COMPUTES_BF16 = ("amx_bf16", "avx512_bf16")
_BF16 = frozenset({DType.BFLOAT16})

_ASKED = f"probe of {SINCE} with avx512_vnni"
_OFF = frozenset({None, 0})
_ONE_GROUP = frozenset({None, 1})
_ONE = frozenset({None, 1.0})
_MOVING = (
    "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "MaxPool", "ReduceMax",
    "ReduceMin", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze",
)  # fmt: skip
# Operators with float inputs that fuse the QuantizeLinear after them. Some accept INT8 inputs, but
# compute in floats: that gains nothing and rounds the inputs.
_BETWEEN_FLOATS = (
    "Abs", "Add", "BatchNormalization", "Clip", "Div", "Elu", "Erf", "Exp", "HardSwish",
    "InstanceNormalization", "LayerNormalization", "LeakyRelu", "Max", "Min", "Mul", "Neg", "PRelu",
    "Relu", "Sigmoid", "Sub", "Tanh",
)  # fmt: skip
# Operators that a matmul or convolution fuses, with a scalar or per-channel second operand.
_POINTWISE = frozenset(
    {
        "Abs",
        "Add",
        "BatchNormalization",
        "Clip",
        "Div",
        "Elu",
        "Gelu",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Mul",
        "Neg",
    }
    | {"PRelu", "Relu", "Sigmoid", "Sub", "Tanh", "gelu-erf", "gelu-tanh", "silu"}
)


def _data(position: int = 0) -> Operand:
    """Data operands are U8. With S8 data, a convolution is wrong by a quarter of its result if an
    operator (pool, Slice, Transpose, Relu) is between DequantizeLinear and it, and a Concat follows
    later.
    """
    return Operand(position=position)


def _from_zero(position: int = 0) -> Operand:
    return Operand(position=position, is_symmetric=True)


def _sum_of(position: int) -> Operand:
    """A residual sum or its operand. Zero point 0 is preferred: float uses then fuse its
    DequantizeLinear. With another zero point and a dynamic length it runs as three FP32 kernels.
    """
    return Operand(
        position=position,
        is_symmetric=True,
        also=(Storage(DType.INT8, is_symmetric=True), Storage(DType.UINT8)),
    )


def _kernel(
    op: str,
    *operands: Operand,
    hands: OutputMode = OutputMode.EITHER,
    followers: frozenset[str] = frozenset(),
    because: str = "",
    **attributes: object,
) -> QuantizedKernel:
    return QuantizedKernel(
        op=op,
        operands=operands,
        hands=hands,
        followers=followers,
        source=f"{_ASKED}; {because}" if because else _ASKED,
        since=SINCE,
        attributes=attributes,
        needs=MULTIPLIES_INT8,
    )


# The runtime propagates per-column data past these operators with wrong axes.
_SPOILING = frozenset({"AveragePool", "Concat", "MaxPool", "Resize", "Upsample"})
_SPOILT = "a pool right behind it answers wrong, a Concat or Resize does not compile"
_BARE = (
    "without a bias, or with zeros where a length is open, and with several readers, all but the"
    " first get numbers without their scale"
)


def _matmul(operand: Operand) -> QuantizedKernel:
    """A matmul with a weight. Matmuls of two activations have no row: they need S8, and per-column
    multiplications after them produce infinities.
    """
    row = _kernel("MatMul", _data(), operand, followers=_POINTWISE, because=_SPOILT)
    return replace(row, not_before=_SPOILING)


_PRODUCTS = (
    replace(
        _kernel(
            "Conv",
            _data(),
            weight(1, axis=0),
            followers=_POINTWISE - {"gelu-tanh"},
            because=(
                "in S8 wrong behind a Concat, and before one where a pool or a move stands before"
                " it; "
            )
            + _BARE,
        ),
        is_bare_alone=True,
    ),
    replace(
        _kernel(
            "ConvTranspose",
            _from_zero(),
            weight(1, axis=1),
            followers=frozenset({"Add", "BatchNormalization", "LeakyRelu", "Relu", "Sigmoid"}),
            because="any other zero point than zero makes it FP32; " + _BARE,
            group=_ONE_GROUP,
        ),
        is_bare_alone=True,
    ),
    _kernel("Gemm", _data(), weight(1, axis=0), followers=_POINTWISE, transB=1),
    _kernel("Gemm", _data(), weight(1, axis=-1), followers=_POINTWISE, transB=frozenset({None, 0})),
    _matmul(weight(1, axis=-1, rank=2)),
    _matmul(weight(1, axis=-1, rank=3)),
    _matmul(weight(1)),
)
_ELEMENTWISE = (
    _kernel(
        "Add",
        _sum_of(0),
        _sum_of(1),
        followers=frozenset({"Clip", "HardSwish", "LeakyRelu", "Relu", "Sigmoid"}),
        because="a Conv before it takes it in, reading both",
    ),
    _kernel("Sub", _data(), _data(1), followers=frozenset({"Relu"})),
    _kernel(
        "AveragePool",
        _data(),
        count_include_pad=_OFF,
        ceil_mode=_OFF,
    ),
    _kernel(
        "AveragePool",
        replace(_from_zero(), is_binding=True),
        because=(
            "its padding counts as stored zeros: wrong by 239 steps where the zero point is not 0,"
            " though it is to read floats"
        ),
        count_include_pad=1,
    ),
    _kernel("GlobalAveragePool", _data()),
    _kernel(
        "ReduceMean",
        _data(),
        hands=OutputMode.INTEGERS,
        because=(
            "with floats behind it the mean over the middle of three axes answers wrong by 131"
            " steps"
        ),
    ),
    *(_kernel(op) for op in _BETWEEN_FLOATS),
)
_MOVED = (
    _kernel(
        "Concat",
        Operand(position=0, is_symmetric=True, and_rest=True),
        hands=OutputMode.PASSED,
        because=(
            "with other zero points a MatMul behind it does not compile, with scales that differ it"
            " runs in FP32"
        ),
    ),
    *(_kernel(op, _data(), hands=OutputMode.PASSED) for op in _MOVING),
    _kernel("Pad", _data(), hands=OutputMode.PASSED, mode=frozenset({"edge", "reflect"})),
    _kernel("Resize", _data(), hands=OutputMode.PASSED, mode=frozenset({None, "nearest"})),
)

# The speeds are rounded means of these: one row, and 64 rows.
_SPEEDS_MEASURED = (
    "eight matmuls, 1024 and 2048 wide, one thread, AMX, dynamic_quantization_group_size 32"
)
_WEIGHTS_MEASURED = "DequantizeLinear and MatMul, 2048 x 2048, one row, one thread, AMX"
_TIED_MEASURED = "a table of 49152 x 576 and a matmul that reads it, one row, one thread, AMX"
# intel_cpu's config.h (fcDynamicQuantizationGroupSize) and dnnl_fullyconnected_primitive.cpp
# (useDynamicQuantizationImpl): matmuls of FP32 round activations to INT8 where the CPU has AVX-VNNI
# or AVX512-VNNI, but not in execution mode ACCURACY, where they read them as they are (config.cpp).
_ACTIVATION_BLOCK = 32


def _blocks(op: str, *, bits: int, along: int, **attributes: object) -> BlockKernel:
    return BlockKernel(
        op=op,
        axis=along,
        bits=bits,
        blocks=(32, 64, 128, 256),
        # "dimension of X at axis 0 (300) cannot be divided by block_size (128)"
        block_multiple=1,
        # A product in BF16 reads scales of BF16, and the weight is then decoded as it is loaded.
        floats=frozenset({DType.FLOAT32}),
        form=BlockForm.DEQUANTIZE,
        activation_block=_ACTIVATION_BLOCK,
        attributes=attributes,
        source=f"{_WEIGHTS_MEASURED}: {'4.3 to 4.7' if bits == 4 else '3.3 to 3.6'} times FP32",
        since=SINCE,
    )


def _table(bits: int, form: BlockForm) -> BlockKernel:
    return replace(
        _blocks("Gather", bits=bits, along=1, axis=_OFF),
        operand=0,
        # ConvertGatherToGatherCompressed fails: "constant != nullptr".
        least_blocks=2,
        form=form,
        activation_block=0,
        source=(
            "GatherBlockQuantized, 60,000 x 512 in four bits: 61 MB in memory; 160 MB in floats and"
            " behind a DequantizeLinear, which is computed when the model is loaded"
        ),
    )


_IN_BLOCKS = tuple(
    row
    for bits in BITS
    for row in (
        _blocks("MatMul", bits=bits, along=0),
        _blocks("Gemm", bits=bits, along=0, transA=_OFF, transB=_OFF, alpha=_ONE, beta=_ONE),
        _blocks("Gemm", bits=bits, along=1, transA=_OFF, transB=1, alpha=_ONE, beta=_ONE),
    )
) + tuple(
    row
    for bits in BITS
    for row in (
        _table(bits, BlockForm.FUSED),
        # Of a weight that both read, a DequantizeLinear is computed when the model is loaded, and
        # integers have to be constants.
        _table(bits, BlockForm.FUSED_COPIES),
        *(
            replace(
                _blocks(op, bits=bits, along=along, **states),
                form=BlockForm.FUSED_COPIES,
                source=f"{_TIED_MEASURED}: {'5.3' if bits == 4 else '4.5'} times FP32",
            )
            for op, along, states in MATMUL_N_BITS
        ),
    )
)

TARGET = Target(
    name="openvino-cpu",
    also=(
        "openvino",
        "ov",
        "cpu",
        "intel",
        "ov-cpu",
        "OpenVINOExecutionProvider",
    ),
    runtime=Runtime(package="openvino", module="openvino", driver="openvino", profiles_nodes=True),
    summary="what OpenVINO compiles for a CPU and runs in execution mode ACCURACY",
    refusals=(
        *FRONT_END,
        Refusal(
            dialect="onnx",
            op="MaxPool",
            because="no BF16 kernel that gives indices",
            source=_SOURCE,
            dtypes=_BF16,
            attributes={"storage_order": 1},
            since=SINCE,
            needs=_COMPUTES_BF16,
        ),
        Refusal(
            dialect="onnx",
            op="MaxRoiPool",
            because="no BF16 kernel",
            source=_SOURCE,
            dtypes=_BF16,
            since=SINCE,
        ),
    ),
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    fusions=FUSIONS,
    default_for=("int8,bf16",),
    notes=(
        (
            "Compile with execution mode ACCURACY: otherwise OpenVINO picks one type for all,"
            " whatever the file says."
        ),
        # Casts of one dimension left open and of none, bit for bit:
        # tests/onnx/test_openvino_rounding.py
        (
            "Fix the shapes where you can: with a length left open OpenVINO 2026.4.1 rounds FP32 to"
            " BF16 up only where the last digit that stays is odd, which errs 1.6 times as much."
        ),
        # Evidence: such a file, one without Quantize, and one with a Relu between:
        # tests/onnx/test_openvino_padding.py
        (
            "In a file with any Quantize OpenVINO 2026.4.1 moves numbers per channel that are"
            " multiplied and added, as by a BatchNormalization, behind an AveragePool that counts"
            " its padding, and answers wrong: put a Relu between, or convert without INT8."
        ),
    ),
    in_blocks=_IN_BLOCKS,
    # benchmarks/low_float_weights.py
    weight_casts=(
        "OpenVINO converts weights in a low float when it compiles a file: a run takes the time of"
        " FP32, and no less memory"
    ),
    gains=(
        *(
            Gain(
                dtype=dtype,
                is_faster=True,
                because="a product of few rows is as fast as its weight is read from memory",
                source=f"{_SPEEDS_MEASURED}: {speed} times FP32's speed",
                speeds=speeds,
                since=SINCE,
                short="fewer bytes of weights to read, for products of few rows",
            )
            for dtype, speed, speeds in (
                (DType.INT4, "3.4 to 5.2, at 64 rows 2.0 to 2.2", (4.2, 2.1)),
                (DType.INT8, "3.2 to 3.8, at 64 rows 1.9 to 2.3", (3.5, 2.0)),
            )
        ),
        Gain(
            dtype=DType.FLOAT16,
            is_faster=False,
            because=(
                "OpenVINO's CPU gains no speed from FP16: without avx512_fp16 it computes FP16"
                " graphs in FP32, with it it was no faster than in FP32; weights take half the"
                " space. Where the CPU has BF16, take bf16."
            ),
            source=f"{_MEASURED}: 19.9 ms in FP16 with avx512_fp16, 14.5 ms in FP32",
            since=SINCE,
            short="OpenVINO's CPU computes FP16 no faster than FP32",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=True,
            because="OpenVINO's CPU computes BF16 graphs in BF16",
            source=(
                f"{_MEASURED}: 1.9 ms in BF16, 14.5 ms in FP32; {_SPEEDS_MEASURED}: 1.4 to 2.5"
                " times, at 64 rows 3.8 to 4.4 times FP32's speed"
            ),
            since=SINCE,
            speeds=(1.9, 4.0),
            needs=_COMPUTES_BF16,
            short="OpenVINO's CPU computes it in BF16",
        ),
        Gain(
            dtype=DType.QUANTIZED8,
            is_faster=True,
            because="OpenVINO's CPU multiplies quantized operands as integers",
            source=(
                "ResNet-50, one image, two threads, AMX: 4.5 ms in INT8, 7.2 ms in BF16, 26.3 ms in"
                f" FP32; {_SPEEDS_MEASURED}: 1.7 to 1.8 times, at 64 rows 7.4 to 9.4 times FP32's"
                " speed; AVX2 alone: ResNet-50 2.1 times, BERT .94 times"
            ),
            since=SINCE,
            speeds=(1.8, 8.0),
            needs=MULTIPLIES_INT8,
            short="OpenVINO's CPU computes it in INT8",
        ),
        *(
            Gain(
                dtype=dtype,
                is_faster=False,
                because=(
                    "OpenVINO's CPU takes FP8 back to FP32 with reference kernels, and multiplies"
                    " in FP32"
                ),
                source=(
                    "runtime graph of QuantizeLinear, DequantizeLinear and MatMul at opset 21:"
                    " ref_f8e4m3 and ref_f8e5m2, gemm_mlas_f32"
                ),
                since=SINCE,
                short="OpenVINO's CPU multiplies FP8 in FP32",
            )
            for dtype in (DType.QUANTIZED_E4M3, DType.QUANTIZED_E5M2)
        ),
    ),
    quantized=(*_PRODUCTS, *_ELEMENTWISE, *_MOVED),
    pair_sum=PairSum(
        unless=VNNI,
        source="MatMul and Conv of uniform integers, AVX2: .19 off; exact with pairs up to 128",
        since=SINCE,
    ),
    norm_quotients=(
        NormQuotient(
            dtypes=_BF16,
            source=(
                "runtime graphs of RMSNorm and LayerNorm in small operators: RMS and MVN by Div or"
                " Pow, and three kernels that round between by Reciprocal or 1 / root; in FP32 one"
                " kernel by either"
            ),
            since=SINCE,
        ),
    ),
)
