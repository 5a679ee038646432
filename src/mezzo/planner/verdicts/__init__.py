"""Verdicts: may a node run low? From operator facts, structure rules, data and the policy's rules.

Imports: what `planner` may.
A new source of findings is one file; its name goes into the order of rules in `rules.py`.
"""
