"""Legal precisions of each node (schema, target, kernels, interface) and the cost of casts at its
borders.

Imports: as for `planner`. A new limit on a node's precision is one function here, called by
`choosing.py`."""
