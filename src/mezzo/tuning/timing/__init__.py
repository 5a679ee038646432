"""Timing of whole models: interleaved runs side by side, and whether a result is faster than what it came from.

Imports: what `tuning` may.
A new runner is a row of `onnx/profile/runtimes.py`.
"""
