"""The ONNX front end."""
