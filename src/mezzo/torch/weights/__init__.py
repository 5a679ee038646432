"""Low-precision copies of weights: cached while the weight is unchanged, packed for kernels.

Imports: everything but `cli`, and PyTorch.
A new layout of weights is a class of `weight_layouts.py`.
"""
