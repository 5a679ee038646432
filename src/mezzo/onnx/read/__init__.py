"""Conversion of a ModelProto to the planner's graph: operators, subgraphs, loops, functions, ties.

Imports: `schema`, `files`, `protos` and below.
A new kind of node with subgraphs is one file next to `control.py` and `loops.py`.
"""
