"""Compiles modules and functions: the Dynamo backend, the pass that plans, regions, settings, export.

Imports: everything but `cli`, and PyTorch.
A new option of `mezzo.torch.compile` is a field of `settings.py`.
"""
