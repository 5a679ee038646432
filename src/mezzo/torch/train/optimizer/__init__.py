"""Optimizer steps traced, compiled and watched, so that low copies of weights follow them.

Imports: everything but `cli`, and PyTorch.
Add one file per part of a step.
"""
