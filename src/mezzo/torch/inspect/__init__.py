"""Inspection of compiled models: accounts, explanations, errors of layers and gradients, reports.

Imports: everything but `cli`, and PyTorch.
Add one file per public function.
"""
