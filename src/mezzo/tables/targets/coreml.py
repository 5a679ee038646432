"""ONNX Runtime's Core ML provider on Apple's devices, as ML programs: from documents, never run by
mezzo.

The rows are those of the documented list of operators; one that the list does not name runs on the
CPU. An ML program keeps the types that the file says, as the least precision of each tensor.
"""

from mezzo.formats.dtypes import DType
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Gain, KernelListing, Target, kernels

_SINCE = "ONNX Runtime, main at 04f568d8"
_LISTED = (
    "from documents, not run here: tools/ci_build/github/apple/coreml_supported_mlprogram_ops.md,"
    " microsoft/onnxruntime at 04f568d8"
)
_TYPED = (
    "from documents, not run here: Typed Execution,"
    " apple.github.io/coremltools/docs-guides/source/typed-execution.html"
)

# The list restricts Pow to FP32; that FP16 is taken by the rest, in ML programs alone, is
# BaseOpBuilder::IsInputDtypeSupport.
_F16 = """
    Add, ArgMax, AveragePool, Cast, Ceil, Clip, Concat, Conv, ConvTranspose, Cos, DepthToSpace, Div,
    Elu, Erf, Exp, GatherND, Gelu, Gemm, GlobalAveragePool, GlobalMaxPool, GridSample,
    GroupNormalization, HardSigmoid, Identity, InstanceNormalization, LayerNormalization, LeakyRelu,
    MatMul, Max, MaxPool, Mul, PRelu, Range, Reciprocal, ReduceMax, ReduceMean, ReduceSum, Relu,
    Reshape, Resize, Round, Shape, Sigmoid, Sin, Slice, Softmax, Softplus, Split, Sqrt, Squeeze,
    Sub, Tanh, Tile, Transpose, Unsqueeze
"""
_CONTRIB_F16 = "FusedConv, QuickGelu"

TARGET = Target(
    name="coreml",
    also=(
        "apple",
        "mac",
        "macos",
        "ios",
        "iphone",
        "ane",
        "neural-engine",
        "mlprogram",
        "coremltools",
        "ort-coreml",
        "CoreMLExecutionProvider",
    ),
    runtime=Runtime(
        package="onnxruntime",
        hardware="a Mac or an iPhone",
        elsewhere="load the result with CoreMLExecutionProvider, ModelFormat MLProgram, on a Mac",
    ),
    summary=(
        "what ONNX Runtime's Core ML provider takes in an ML program; from documents, not run here"
    ),
    # GetMaxSupportedOpSet in base_op_builder.h
    newest={"onnx": 20},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
    notes=(
        # onnxruntime.ai/docs/execution-providers/CoreML-ExecutionProvider.html
        "Give the provider ModelFormat MLProgram: NeuralNetwork, its default, takes no FP16.",
        "What stays in FP32 runs on Apple's CPU or GPU: the Neural Engine takes FP16 alone.",
        "These rows are from documents: mezzo never ran Core ML.",
    ),
    listings=(
        KernelListing(
            dtype=DType.FLOAT16,
            kernels=kernels("onnx", _F16) + kernels("com.microsoft", _CONTRIB_F16),
            because="Core ML's list of ML program operators does not name it in f16",
            source=_LISTED,
            since=_SINCE,
        ),
        KernelListing(
            dtype=DType.BFLOAT16,
            kernels=(),
            because="ML programs are typed in FP32 and FP16, so no kernel",
            source=_TYPED,
            since=_SINCE,
        ),
    ),
    gains=(
        Gain(
            dtype=DType.FLOAT16,
            is_faster=True,
            because="Apple's Neural Engine computes FP16 and no FP32",
            source=_TYPED,
            since=_SINCE,
            short="the Neural Engine takes no FP32",
        ),
        Gain(
            dtype=DType.BFLOAT16,
            is_faster=False,
            because="Core ML has no BF16: nothing runs in it; take fp16",
            source=_TYPED,
            since=_SINCE,
        ),
    ),
)
