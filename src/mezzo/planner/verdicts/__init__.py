"""Verdicts on low precision per node: operator facts, structure rules, data and policy rules.

Imports: as for `planner`.
A new source of findings is one file; its name goes into the order of rules in `rules.py`.
"""
