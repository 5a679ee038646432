"""Searches inside an error budget: sensitivity, the frontier between cost and error, final benchmarks, repair.

Imports: `quantize`, `evaluate`, `conversion` and below.
A new goal of a search is a class of `goals.py`.
"""
