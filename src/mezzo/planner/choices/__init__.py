"""Choices: what schema, target, kernels and interface allow each node, and what a conversion at its border costs.

Imports: what `planner` may.
A new limit on what a node may run in is one function here, called by `choosing.py`.
"""
