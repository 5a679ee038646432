"""Repair: nodes go back to FP32 where data or the target's runtime shows wrong answers or no gain.

Imports: what `tuning` may.
A new reason to give a node back is a finding made here.
"""
