"""Observers: histograms, extremes and samples of tensors from any number of batches, in bounded memory.

Imports: `contracts` and below.
A new statistic is a field of `tally.py`, kept by `state.py`.
"""
