"""Evaluation of models on data: comparisons of outputs, measured ranges, error budgets per output.

Imports: `conversion`, `numerics` and below.
Add one file per question that is answered with a model and data.
"""
