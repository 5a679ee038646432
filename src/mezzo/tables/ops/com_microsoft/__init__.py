"""Facts of ONNX Runtime's contrib operators. EPContext and Snpe hold compiled code: no row."""

DIALECT = "com.microsoft"
