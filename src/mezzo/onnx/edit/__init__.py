"""Application of a plan's edits to a ModelProto, and the check of the result. Decides nothing.

Imports: `read`, `schema`, `files`, `protos` and below.
A new edit is a class of `contracts/plans.py` and a function of `apply.py`.
"""
