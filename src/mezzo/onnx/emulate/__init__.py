"""Emulates low precision in FP32 graphs: round trips after every operator, tiled sums, switches per node.

Imports: `run`, `schema`, `files`, `protos` and below.
A new emulated behaviour of a device is one pass over the FP32 graph.
"""
