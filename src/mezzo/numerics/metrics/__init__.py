"""Error metrics of an output: whole, by slice, by decision; user-defined metrics.

Imports: what `numerics` may.
A metric that reports print is a row of `figures.py`.
"""
