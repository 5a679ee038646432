"""Low-precision emulation in FP32 graphs: rounding after every operator, tiled accumulation,
and a precision switch per node.

Imports: `run`, `schema`, `files`, `protos` and below.
A new emulated behaviour of a device is one pass over the FP32 graph.
"""
