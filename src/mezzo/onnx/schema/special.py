"""Type rules that ONNX's schemas lack, such as dtype attributes. Each row states a fact of the ONNX
specification and its reason.

By default, all type variables of an operator that are FP32 form one compute group.
"""

from dataclasses import KW_ONLY, dataclass

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True)
class Special:
    """Deviations of one operator's types from the default.

    `group`: the type variables of the compute group, if not all with floats belong to it.
    `any_inputs`: operands of any floating dtype (only shape or truth value matters).
    `dtype_attribute`: the attribute with the output's element type; `absent` is the default, None
    for the type of the first input. `fixed_outputs`: the outputs that it applies to, outside the
    group. `is_retypable`: False if the operator must keep its types. `unbound_like_first`: an
    output whose type variable no operand binds has the first operand's type.
    """

    because: str
    _: KW_ONLY
    group: tuple[str, ...] | None = None
    any_inputs: tuple[int, ...] = ()
    dtype_attribute: str | None = None
    absent: DType | None = None
    fixed_outputs: tuple[int, ...] = ()
    is_retypable: bool = True
    unbound_like_first: bool = False


_WINDOW = Special(
    "the window's type is an attribute", dtype_attribute="output_datatype", absent=DType.FLOAT32
)
_RANDOM = Special("the draw's type is an attribute", dtype_attribute="dtype", absent=DType.FLOAT32)
_LIKE = Special(
    "only the input's shape matters; the output's type is an attribute",
    group=("T2",),
    any_inputs=(0,),
    dtype_attribute="dtype",
)
_STASH = Special(
    "Mean and InvStdDev have the type that stash_type names",
    group=("T", "V"),  # ONNX Runtime's early version has a separate variable for the scale
    dtype_attribute="stash_type",
    absent=DType.FLOAT32,
    fixed_outputs=(1, 2),
)

# Keyed by (domain, operator). Source: onnx 1.23 operator specification, opsets 1 to 28.
SPECIAL: dict[tuple[str, str], Special] = {
    ("", "BatchNormalization"): Special(
        "running statistics and affine parameters keep their precision", group=("T",)
    ),
    ("", "Bernoulli"): Special(
        "the output's type is an attribute", group=("T2",), dtype_attribute="dtype"
    ),
    ("", "BitCast"): Special("reads bits, not numbers", dtype_attribute="to", is_retypable=False),
    ("", "BlackmanWindow"): _WINDOW,
    ("", "CastLike"): Special(
        "the second operand's type is the result's", group=("T2",), any_inputs=(0,)
    ),
    ("", "ConstantOfShape"): Special(
        "the type is its value's", dtype_attribute="value", absent=DType.FLOAT32
    ),
    ("", "DequantizeLinear"): Special(
        "the result has output_dtype, else the scale's type",
        group=("T2", "T3"),
        dtype_attribute="output_dtype",
    ),
    ("", "Dropout"): Special("the ratio is a parameter, not data", group=("T",)),
    ("", "EyeLike"): _LIKE,
    ("", "GridSample"): Special("the grid holds positions", group=("T1",)),
    ("", "HammingWindow"): _WINDOW,
    ("", "HannWindow"): _WINDOW,
    ("", "LayerNormalization"): _STASH,
    ("", "LinearAttention"): Special(
        "without a past state the new one has the query's type", unbound_like_first=True
    ),
    ("", "MeanVarianceNormalization"): Special(
        "its function body holds FP32 constants", is_retypable=False
    ),
    ("", "MelWeightMatrix"): Special(
        "the edges are frequencies; the output's type is an attribute",
        group=("T3",),
        dtype_attribute="output_datatype",
        absent=DType.FLOAT32,
    ),
    ("", "Multinomial"): Special(
        "the draw's type is an attribute",
        group=("T1",),
        dtype_attribute="dtype",
        absent=DType.INT32,
    ),
    ("", "OneHot"): Special("indices and depth are positions, whatever their type", group=("T3",)),
    ("", "QuantizeLinear"): Special(
        "the result has output_dtype, else the zero point's type",
        group=("T1", "T2"),
        dtype_attribute="output_dtype",
        absent=DType.UINT8,
    ),
    ("", "RandomNormal"): _RANDOM,
    ("", "RandomNormalLike"): _LIKE,
    ("", "RandomUniform"): _RANDOM,
    ("", "RandomUniformLike"): _LIKE,
    ("", "Resize"): Special("roi and scales hold positions", group=("T", "T1")),
    ("", "SequenceEmpty"): Special(
        "the element type is an attribute", dtype_attribute="dtype", absent=DType.FLOAT32
    ),
    ("", "Shape"): Special("reads no element", group=(), any_inputs=(0,)),
    ("", "Size"): Special("reads no element", group=(), any_inputs=(0,)),
    ("", "TfIdfVectorizer"): Special("its output is FP32 by definition", is_retypable=False),
    ("ai.onnx.ml", "TreeEnsemble"): Special(
        "tensors among its attributes have its operand's type", is_retypable=False
    ),
    ("", "SimplifiedLayerNormalization"): Special(
        "the statistics' type is an attribute; the scale is data",
        group=("T", "V"),
        dtype_attribute="stash_type",
        absent=DType.FLOAT32,
        fixed_outputs=(1,),
    ),
}

# Names of operators with a dtype attribute, for a quick test: most nodes have none.
TYPED_BY_ATTRIBUTE = frozenset(
    op for (_, op), row in SPECIAL.items() if row.dtype_attribute is not None
)
_DEFAULT = Special("")


def special(domain: str, op: str) -> Special:
    """The row of an operator, or the default row."""
    return SPECIAL.get((domain, op), _DEFAULT)


# Operators that build or take apart sequences and optionals, which cannot be cast: input and output
# have one element type. The value describes output 0: "tensor", a wrapper ("seq", "optional"),
# "unwrap" or "same" as the input.
AGGREGATES: dict[tuple[str, str], str] = {
    ("", "ConcatFromSequence"): "tensor",
    ("", "Optional"): "optional",
    ("", "OptionalGetElement"): "unwrap",
    ("", "SequenceAt"): "tensor",
    ("", "SequenceConstruct"): "seq",
    ("", "SequenceEmpty"): "seq",
    ("", "SequenceErase"): "same",
    ("", "SequenceInsert"): "same",
    ("", "SplitToSequence"): "seq",
}
