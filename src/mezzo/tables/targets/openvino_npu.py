"""OpenVINO's NPU plug-in, on Intel Core Ultra: from documents, never run by mezzo. What the ONNX
front end refuses was probed, since no device reads a model before it.

Models need static shapes. Weights for a channel as a whole, which the documents also recommend, are
no blocks of a fixed size, so that there is no row for them.
"""

from dataclasses import replace

from mezzo.formats.block_storage import BlockForm
from mezzo.formats.dtypes import HIGH, DType
from mezzo.tables.block_kernels import MATMUL_N_BITS, BlockKernel
from mezzo.tables.openvino_rows import FRONT_END, SINCE, nncf_kernels
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, KernelListing, Target

_TYPES = (
    "from documents, not run here: NPU Device, Supported Inference Data Types, docs.openvino.ai"
)
_QUANTIZES = "from documents, not run here: what NNCF quantizes for NPUs, NPU_SETUP of NNCF 3.4.0"

_IN_BLOCKS = tuple(
    BlockKernel(
        op=op,
        axis=along,
        bits=4,
        blocks=(128,),
        block_multiple=1,
        is_symmetric=True,
        floats=frozenset({HIGH, DType.FLOAT16}),
        form=BlockForm.DEQUANTIZE,
        attributes=attributes,
        source=(
            "from documents, not run here: OpenVINO GenAI on NPU, docs.openvino.ai: four bits,"
            " symmetric, groups of 128, of language models; speed not known"
        ),
        since=SINCE,
    )
    for op, along, attributes in MATMUL_N_BITS
)

TARGET = Target(
    name="openvino-npu",
    also=(
        "ov-npu",
        "intel-npu",
        "core-ultra",
        "ai-boost",
    ),
    runtime=Runtime(
        package="openvino",
        module="openvino",
        hardware="an Intel NPU",
        elsewhere='openvino.compile_model(RESULT, "NPU"), where the NPU is',
    ),
    summary="what OpenVINO compiles for an Intel NPU; from documents, not run here",
    refusals=tuple(replace(row, dtypes=frozenset({DType.FLOAT16})) for row in FRONT_END),
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    in_blocks=_IN_BLOCKS,
    # Sums and products need one scale for both operands, which no row can say.
    quantized=tuple(nncf_kernels(_QUANTIZES)),
    notes=(
        "Fix all shapes: OpenVINO's NPU takes static ones alone.",
        "These rows are from documents: mezzo never ran OpenVINO's NPU plug-in.",
    ),
    listings=(
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=(),
            because="OpenVINO's NPU plug-in names FP32 and FP16 alone, so no kernel",
            source=_TYPES,
            since=SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.QUANTIZED8,
            is_faster=True,
            because="the NPU multiplies INT8",
            source=f"{_TYPES}; {_QUANTIZES}",
            since=SINCE,
        ),
        Gain(
            dtype=DType.FLOAT16,
            is_faster=False,
            because=(
                "the NPU computes in FP16 whatever the file says: weights take half the space, the"
                " speed does not gain"
            ),
            source=_TYPES,
            since=SINCE,
            short="the NPU computes FP32 in FP16 anyway",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because="OpenVINO's NPU plug-in has no BF16: nothing runs in it; take fp16",
            source=_TYPES,
            since=SINCE,
        ),
    ),
)
