"""Error metrics: one output against a reference, whole, by slice, by decision; user metrics by name.

Imports: what `numerics` may.
A figure that reports print is one file of `figures/`.
"""
