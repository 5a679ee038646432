"""Kernels of a device against the types of a model: how far they may differ, and which do.

Imports: those of `evaluate`.
"""
