"""Conversion of functional ATen graphs to the planner's graph: ports, types, attributes, constants.

Imports: `contracts` and below, and PyTorch once a program is opened.
Exceptions that neither schemas nor fake tensors show are rows of `special.py`.
"""
