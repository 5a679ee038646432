"""Facts of ONNX's preview operators."""

DIALECT = "ai.onnx.preview"
