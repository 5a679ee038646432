"""No runtime in particular: what the ONNX schema allows."""

from mezzo.formats.dtypes import DType
from mezzo.tables.target import Target

TARGET = Target(
    name="any",
    also=(
        "all",
        "none",
        "generic",
    ),
    summary="what the dialect's schema allows, no runtime in particular",
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
)
