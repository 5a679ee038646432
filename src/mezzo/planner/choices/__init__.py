"""Legal precisions of each node, and the cost of casts at its borders.

Imports: as for `planner`.
A new limit on a node's precision is one function here, called by `choosing.py`.
"""
