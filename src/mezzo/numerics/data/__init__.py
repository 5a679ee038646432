"""Data sets, streamed batch by batch: .npz files, folders, iterables, random inputs; checks.

Imports: what `numerics` may.
A new source of data is one file, read by `datasets.py`.
"""
