"""oneDNN kernels under Inductor: packed products, activations and sums fused into them.

Imports: everything but `cli`, and PyTorch.
A new fusion is one file next to `epilogues.py` and `residuals.py`.
"""
