"""Searches within an error budget: sensitivity, cost-error frontier, timing, repair.

Imports: `quantize`, `evaluate`, `conversion` and below.
A new goal of a search is a class of `goals.py`.
"""
