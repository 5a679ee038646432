"""Views of a plan for drawings: numbers, islands, an outline by modules, the difference to another
plan.

Imports: `contracts` and below. A new view is one file.
"""
