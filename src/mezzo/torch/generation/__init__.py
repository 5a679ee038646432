"""Text generation: methods that call the compiled forward, and attention of few rows over a cache.

Imports: everything but `cli`, and PyTorch.
A new pass over a graph of few rows is one file next to `few_rows_attention.py`.
"""
