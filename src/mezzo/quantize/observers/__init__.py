"""Observers: histograms, extremes and samples of tensors over batches, in bounded memory.

Imports: `contracts` and below.
A new statistic is a field of `tally.py`, saved by `state.py`.
"""
