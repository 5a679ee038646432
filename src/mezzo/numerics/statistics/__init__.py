"""Statistics: confidence intervals, Student quantiles, speedups from interleaved timings, FP32 noise, training curves.

Imports: what `numerics` may.
Add one file per estimator.
"""
