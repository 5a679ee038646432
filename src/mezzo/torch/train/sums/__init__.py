"""Accumulation of low products: FP32 outputs, split BF16 sums, tiled low sums, exact products.

Imports: everything but `cli`, and PyTorch.
Add one file per way to accumulate.
"""
