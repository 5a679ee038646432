"""Accumulation of low-precision matmuls: FP32 outputs, split BF16 sums, tiled sums.

Imports: everything but `cli`, and PyTorch.
Add one file per way to accumulate.
"""
