"""Families of ONNX operators, for policies that list operators by name: each of the default domain
is in exactly one.

A family contains operators that most policies treat alike; a policy that does not names them
singly. Operators of other domains are written with their domain; those that ONNX Runtime adds to
the default domain are included.
"""


def names(*texts: str) -> frozenset[str]:
    """Parse operator names separated by spaces."""
    return frozenset(name for text in texts for name in text.split())


# Contractions: products summed over an axis.
LINEAR = names("CausalConvWithState Conv ConvTranspose DeformConv Einsum Gemm MatMul")
ATTENTION = names("Attention")
RECURRENT = names("GRU LSTM LinearAttention RNN")
FUSED_LINEAR = names(
    "com.microsoft:FusedConv com.microsoft:FusedGemm com.microsoft:FusedMatMul"
    " com.microsoft:FusedMatMulActivation",
    "com.microsoft:NhwcConv com.microsoft:NhwcFusedConv com.microsoft:TransposeMatMul",
)

# One result per element.
ARITHMETIC = names("Abs Add Div Mean Mul Neg RotaryEmbedding Sub Sum")
BOUNDS = names("Clip Max Min")
RECTIFIERS = names("LeakyRelu PRelu Relu Shrink ThresholdedRelu")
SATURATING = names("Erf HardSigmoid Sigmoid Softsign Tanh")
GATED = names("Gelu HardSwish Mish SwiGLU Swish")
EXPONENTIAL_UNITS = names("Celu Elu Selu Softplus")
EXPONENTIALS = names("Cosh Exp Sinh")
POWERS = names("Log Pow Reciprocal Sqrt")
TRIGONOMETRY = names("Acos Acosh Asin Asinh Atan Atanh Cos Sin Tan")
ROUNDING = names("Ceil Floor Mod Round Sign")
COMPARISONS = names("Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual")
LOGICAL = names("And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Not Or Xor")

# One result per axis or window.
SOFTMAX = names("LogSoftmax Softmax")
NORMALIZATIONS = names(
    "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization"
    " LpNormalization",
    "MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization",
)
AVERAGES = names("AveragePool GlobalAveragePool ReduceMean")
MAXIMA = names("GlobalMaxPool MaxPool ReduceMax ReduceMin")
SUMS = names(
    "CumSum GlobalLpPool LpPool ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSum"
    " ReduceSumSquare"
)
PRODUCTS = names("CumProd Det ReduceProd")
INDICES = names("ArgMax ArgMin Hardmax NonMaxSuppression NonZero TopK Unique")
SPECTRA = names("DFT STFT")
LOSSES = names("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss")

# Data movement, or interpolation between neighbours only.
MOVEMENT = names(
    "CenterCropPad Compress Concat DepthToSpace Dropout Expand Flatten Gather GatherElements"
    " GatherND Identity",
    "MaxUnpool Pad Reshape ReverseSequence Scatter ScatterElements ScatterND Slice SpaceToDepth"
    " Split Squeeze",
    "TensorScatter Tile Transpose Trilu Unsqueeze Where",
)
RESAMPLING = names("AffineGrid Col2Im GridSample MaxRoiPool Resize RoiAlign Upsample")
CASTS = names("Cast CastLike")
SEQUENCES = names(
    "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct"
    " SequenceEmpty",
    "SequenceErase SequenceInsert SequenceLength SplitToSequence",
)
CONTROL = names("If Loop Scan SequenceMap")

# Outputs without float inputs: constants, positions, random numbers.
CONSTANTS = names("Constant ConstantOfShape EyeLike OneHot Shape Size")
POSITIONS = names("BlackmanWindow HammingWindow HannWindow MelWeightMatrix Range")
RANDOM = names(
    "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
)

# Outside mixed precision: bits, text, and quantized operators, whose floats are scales.
QUANTIZED = names(
    "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul"
    " QuantizeLinear"
)
FOREIGN = names(
    "BitCast ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer"
)

DOMAIN = frozenset().union(
    LINEAR, ATTENTION, RECURRENT, ARITHMETIC, BOUNDS, RECTIFIERS, SATURATING, GATED,
    EXPONENTIAL_UNITS, EXPONENTIALS, POWERS, TRIGONOMETRY, ROUNDING, COMPARISONS, LOGICAL, SOFTMAX,
    NORMALIZATIONS, AVERAGES, MAXIMA, SUMS, PRODUCTS, INDICES, SPECTRA, LOSSES, MOVEMENT,
    RESAMPLING, CASTS, SEQUENCES, CONTROL, CONSTANTS, POSITIONS, RANDOM, QUANTIZED, FOREIGN,
)  # fmt: skip
