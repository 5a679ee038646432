"""Timing of whole models, interleaved: whether a result is faster than its source.

Imports: what `tuning` may.
A new runner is a row of `onnx/profile/drivers.py`.
"""
