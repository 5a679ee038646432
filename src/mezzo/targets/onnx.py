"""The ONNX schema, at opsets that today's runtimes load: the default where no runtime's own table applies."""

from mezzo.core.target import Target
from mezzo.dtypes import DType

TARGET = Target(
    name="onnx",
    also=(
        "schema",
        "spec",
    ),
    summary="what the ONNX schema allows, at no newer opset than the installed ONNX Runtime loads (default for bf16)",
    newest={"onnx": 26},
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
)
