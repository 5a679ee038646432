"""Reads a ModelProto as the planner's graph: operators, bodies, loops, functions, ties.

Imports: `schema`, `files`, `protos` and below.
A new kind of node with bodies is one file next to `control.py` and `loops.py`.
"""
