"""Compilation of modules and functions: Dynamo backend, planning pass, regions, settings, export.

Imports: everything but `cli`, and PyTorch.
A new option of `mezzo.torch.compile` is a field of `settings.py`.
"""
