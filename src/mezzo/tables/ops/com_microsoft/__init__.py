"""Facts of ONNX Runtime's contributed operators. EPContext and Snpe hold compiled code and have no row."""

DIALECT = "com.microsoft"
