"""Repair: nodes return to FP32 if data or the target's runtime shows wrong outputs or no speedup.

Imports: what `tuning` may.
A new reason to return a node to FP32 is a finding made in this package.
"""
