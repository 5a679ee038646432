"""Facts of ONNX's preview training operators."""

DIALECT = "ai.onnx.preview.training"
