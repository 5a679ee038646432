"""Facts of ONNX's classical machine learning operators."""

DIALECT = "ai.onnx.ml"
