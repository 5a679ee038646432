"""Execution of models on ONNX Runtime: sessions, weights as inputs, segmented runs of large models.

Imports: `schema`, `files`, `protos` and below.
A new runtime library is loaded in `runtime_libraries.py` alone.
"""
