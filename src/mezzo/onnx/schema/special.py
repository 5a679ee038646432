"""Type rules that ONNX's schemas lack, such as dtype attributes. Each row states a fact of the ONNX
specification and its reason.

By default, all type variables of an operator that are FP32 form one compute group.
"""

from dataclasses import dataclass

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
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
    group: frozenset[str] | None = None
    any_inputs: frozenset[int] = frozenset()
    dtype_attribute: str | None = None
    absent: DType | None = None
    fixed_outputs: frozenset[int] = frozenset()
    is_retypable: bool = True
    unbound_like_first: bool = False


def _row(
    because: str,
    *,
    group: str | None = None,
    any_inputs: tuple[int, ...] = (),
    dtype_attribute: str | None = None,
    absent: DType | None = None,
    fixed_outputs: tuple[int, ...] = (),
    is_retypable: bool = True,
    unbound_like_first: bool = False,
) -> Special:
    variables = None if group is None else frozenset(group.split())
    return Special(
        because=because,
        group=variables,
        any_inputs=frozenset(any_inputs),
        dtype_attribute=dtype_attribute,
        absent=absent,
        fixed_outputs=frozenset(fixed_outputs),
        is_retypable=is_retypable,
        unbound_like_first=unbound_like_first,
    )


_WINDOW = _row(
    "the window's type is an attribute", dtype_attribute="output_datatype", absent=DType.FLOAT32
)
_RANDOM = _row("the draw's type is an attribute", dtype_attribute="dtype", absent=DType.FLOAT32)
_LIKE = _row(
    "only the input's shape matters; the output's type is an attribute",
    group="T2",
    any_inputs=(0,),
    dtype_attribute="dtype",
)
_STASH = _row(
    "Mean and InvStdDev have the type that stash_type names",
    group="T V",  # ONNX Runtime's early version has a separate variable for the scale
    dtype_attribute="stash_type",
    absent=DType.FLOAT32,
    fixed_outputs=(1, 2),
)

# Keyed by (domain, operator). Source: onnx 1.23 operator specification, opsets 1 to 28.
SPECIAL: dict[tuple[str, str], Special] = {
    ("", "BatchNormalization"): _row(
        "running statistics and affine parameters keep their precision", group="T"
    ),
    ("", "Bernoulli"): _row(
        "the output's type is an attribute", group="T2", dtype_attribute="dtype"
    ),
    ("", "BitCast"): _row("reads bits, not numbers", dtype_attribute="to", is_retypable=False),
    ("", "BlackmanWindow"): _WINDOW,
    ("", "CastLike"): _row(
        "the second operand's type is the result's", group="T2", any_inputs=(0,)
    ),
    ("", "ConstantOfShape"): _row(
        "the type is its value's", dtype_attribute="value", absent=DType.FLOAT32
    ),
    ("", "DequantizeLinear"): _row(
        "the result has output_dtype, else the scale's type",
        group="T2 T3",
        dtype_attribute="output_dtype",
    ),
    ("", "Dropout"): _row("the ratio is a parameter, not data", group="T"),
    ("", "EyeLike"): _LIKE,
    ("", "GridSample"): _row("the grid holds positions", group="T1"),
    ("", "HammingWindow"): _WINDOW,
    ("", "HannWindow"): _WINDOW,
    ("", "LayerNormalization"): _STASH,
    ("", "LinearAttention"): _row(
        "without a past state the new one has the query's type", unbound_like_first=True
    ),
    ("", "MeanVarianceNormalization"): _row(
        "its function body holds FP32 constants", is_retypable=False
    ),
    ("", "MelWeightMatrix"): _row(
        "the edges are frequencies; the output's type is an attribute",
        group="T3",
        dtype_attribute="output_datatype",
        absent=DType.FLOAT32,
    ),
    ("", "Multinomial"): _row(
        "the draw's type is an attribute", group="T1", dtype_attribute="dtype", absent=DType.INT32
    ),
    ("", "OneHot"): _row("indices and depth are positions, whatever their type", group="T3"),
    ("", "QuantizeLinear"): _row(
        "the result has output_dtype, else the zero point's type",
        group="T1 T2",
        dtype_attribute="output_dtype",
        absent=DType.UINT8,
    ),
    ("", "RandomNormal"): _RANDOM,
    ("", "RandomNormalLike"): _LIKE,
    ("", "RandomUniform"): _RANDOM,
    ("", "RandomUniformLike"): _LIKE,
    ("", "Resize"): _row("roi and scales hold positions", group="T T1"),
    ("", "SequenceEmpty"): _row(
        "the element type is an attribute", dtype_attribute="dtype", absent=DType.FLOAT32
    ),
    ("", "Shape"): _row("reads no element", group="", any_inputs=(0,)),
    ("", "Size"): _row("reads no element", group="", any_inputs=(0,)),
    ("", "TfIdfVectorizer"): _row("its output is FP32 by definition", is_retypable=False),
    ("ai.onnx.ml", "TreeEnsemble"): _row(
        "tensors among its attributes have its operand's type", is_retypable=False
    ),
    ("", "SimplifiedLayerNormalization"): _row(
        "the statistics' type is an attribute; the scale is data",
        group="T V",
        dtype_attribute="stash_type",
        absent=DType.FLOAT32,
        fixed_outputs=(1,),
    ),
}

# Names of operators with a dtype attribute, for a quick test: most nodes have none.
TYPED_BY_ATTRIBUTE = frozenset(
    op for (_, op), row in SPECIAL.items() if row.dtype_attribute is not None
)
_DEFAULT = Special(because="")


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
