"""The ONNX schema, at opsets that today's runtimes load: the default where no runtime's own table applies."""

from mezzo.dtypes import DType
from mezzo.target import Target

TARGET = Target(
    "onnx",
    "what the ONNX schema allows, at no newer opset than the installed ONNX Runtime loads (default for bf16)",
    max_opset=26,
    formats=frozenset({DType.FLOAT16, DType.BFLOAT16}),
)
