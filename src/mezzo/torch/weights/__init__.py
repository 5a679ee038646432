"""Low-precision copies of weights: made once, kept while the weight stays, packed for kernels.

Imports: everything but `cli`, and PyTorch.
A new layout of weights is a class of `weight_layouts.py`.
"""
