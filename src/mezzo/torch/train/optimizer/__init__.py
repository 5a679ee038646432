"""Optimizer steps: traced, compiled and watched, so that low-precision copies follow the weights.

Imports: everything but `cli`, and PyTorch.
Add one file per part of a step.
"""
