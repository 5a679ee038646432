"""Data sets: .npz files, folders, iterables and random inputs, streamed batch by batch, and what such data cannot show.

Imports: what `numerics` may.
A new source of data is one file, read by `datasets.py`.
"""
