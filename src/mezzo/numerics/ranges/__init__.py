"""Ranges of values on data, in bounded memory: overflow, underflow, checkpoints.

Imports: what `numerics` may.
A new finding from ranges goes into `protection.py`.
"""
