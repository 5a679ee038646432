"""Ranges of values on data: statistics in bounded memory, what overflows or vanishes in a format, journals.

Imports: what `numerics` may.
A new finding from ranges goes into `protection.py`.
"""
