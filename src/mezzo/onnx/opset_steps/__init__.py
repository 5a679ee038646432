"""Conversion of nodes from one opset to the next: the adapters of `onnx.version_converter`, and those it lacks."""
