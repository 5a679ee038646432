"""Facts of the default ONNX domain, opset 1 to the newest, deprecated operators included."""

DIALECT = "onnx"
