"""oneDNN kernels under Inductor: packed matmuls and convolutions with fused epilogues.

Imports: everything but `cli`, and PyTorch.
A new fusion is one file next to `epilogues.py` and `residuals.py`.
"""
