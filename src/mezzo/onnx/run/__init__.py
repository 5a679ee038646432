"""Runs models on ONNX Runtime: sessions, weights as inputs, segments of models that do not fit in memory.

Imports: `schema`, `files`, `protos` and below.
A new runtime library is loaded in `runtime_libraries.py` alone.
"""
