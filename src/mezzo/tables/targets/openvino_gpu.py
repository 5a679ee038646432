"""OpenVINO's GPU plug-in, on Intel's GPUs: from documents, never run by mezzo. What the ONNX front
end refuses was probed, since no device reads a model before it.
"""

from dataclasses import replace
from functools import partial

from mezzo.formats.block_storage import BITS, BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.fusions import Constraint, Fusion, Stage, Step
from mezzo.tables.openvino_rows import FRONT_END, SINCE, nncf_kernels
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, KernelListing, Target

_TYPES = (
    "from documents, not run here: GPU Device, Supported Inference Data Types, docs.openvino.ai"
)
_PRECISION = "from documents, not run here: Precision Control, docs.openvino.ai"
_QUANTIZES = "from documents, not run here: what NNCF quantizes for GPUs, GPU_SETUP of NNCF 3.4.0"
_NEEDS = ("Intel Iris Xe or newer",)

# Of the readers of a weight only products are compressed; 32, 64 and 128 are NNCF's group sizes.
_IN_BLOCKS = tuple(
    BlockKernel(
        op=op,
        axis=along,
        bits=bits,
        blocks=(128, 64, 32),
        block_multiple=1,
        floats=frozenset({HIGH, DType.FLOAT16}),
        form=BlockForm.DEQUANTIZE,
        attributes=attributes,
        source=(
            "from documents, not run here: convert_fc_to_compressed.cpp of intel_gpu,"
            " openvinotoolkit/openvino; 4-bit Weight Quantization, docs.openvino.ai; speed not"
            " known"
        ),
        since=SINCE,
    )
    for bits in BITS
    for op, along, attributes in MATMUL_N_BITS
)

# "Relu is fused into convolution", and a sum into what is before it: no list of all activations.
_fusion = partial(
    Fusion,
    source="intel_gpu/docs/graph_optimization_passes.md, openvinotoolkit/openvino",
    since=SINCE,
    constraint=Constraint(formats=frozenset({DType.FLOAT16})),
)
_SUM = Stage(step=Step.RESIDUAL)
_FUSIONS = (
    _fusion(
        pattern="convolution",
        operators=frozenset({"Conv"}),
        epilogues=((Stage(activations=frozenset({"Relu"})),), (_SUM,)),
    ),
    _fusion(
        pattern="matmul",
        form="weight",
        operators=frozenset({"Gemm", "MatMul"}),
        epilogues=((Stage(step=Step.BIAS),), (_SUM,)),
    ),
)

TARGET = Target(
    name="openvino-gpu",
    also=(
        "ov-gpu",
        "intel-gpu",
        "igpu",
        "dgpu",
        "gpu",
        "arc",
        "iris",
        "openvino-igpu",
    ),
    runtime=Runtime(
        package="openvino",
        module="openvino",
        hardware="an Intel GPU",
        elsewhere='openvino.compile_model(RESULT, "GPU", {"EXECUTION_MODE_HINT": "ACCURACY"})',
    ),
    summary="what OpenVINO compiles for an Intel GPU; from documents, not run here",
    refusals=tuple(replace(row, dtypes=frozenset({DType.FLOAT16})) for row in FRONT_END),
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    fusions=_FUSIONS,
    quantized=tuple(nncf_kernels(_QUANTIZES, _NEEDS, sums=("Add", "Sub", "Mul"))),
    notes=(
        (
            "Compile with execution mode ACCURACY: otherwise OpenVINO may compute in FP16 what the"
            " file keeps in FP32."
        ),
        "These rows are from documents: mezzo never ran OpenVINO's GPU plug-in.",
    ),
    listings=(
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=(),
            because="OpenVINO's GPU plug-in names FP32 and FP16 alone, so no kernel",
            source=_TYPES,
            since=SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="FP16 is computed on the GPU, and its matrix units (XMX) take no FP32",
            source=_PRECISION,
            since=SINCE,
            short="computed on the GPU, XMX included",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because="OpenVINO's GPU plug-in has no BF16: nothing runs in it; take fp16",
            source=_TYPES,
            since=SINCE,
        ),
        Gain(
            dtype=DType.QUANTIZED8,
            is_faster=True,
            because="newer Intel GPUs multiply INT8 in hardware",
            source=_TYPES,
            since=SINCE,
            needs=_NEEDS,
        ),
    ),
)
