"""Numbers without models: data sets, error metrics, ranges, statistics, verdicts. Knows no IR and no runtime.

Imports: `contracts` and below.
A figure of an error is one file of `metrics/figures/`.
"""
