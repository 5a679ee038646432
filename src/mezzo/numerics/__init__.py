"""Numerics without IR or runtime: data sets, error metrics, ranges, statistics, verdicts.

Imports: `contracts` and below.
A new error metric is one row of `metrics/figures.py`.
"""
