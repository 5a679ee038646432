"""Statistics: confidence intervals, Student quantiles, speedups from timings, FP32 noise.

Imports: what `numerics` may.
Add one file per estimator.
"""
