"""Reads a functional graph of ATen operators as the planner's graph: ports, types, attributes, constants.

Imports: `contracts` and below, and PyTorch when a program is there.
What neither schemas nor fake tensors say of an operator is a row of `special.py`.
"""
