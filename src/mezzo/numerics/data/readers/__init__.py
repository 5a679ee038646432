"""Readers of data files: one file per format, listed in `table.py`.

Imports: what `numerics` may.
A new format is one file with a row of `table.py`.
"""
