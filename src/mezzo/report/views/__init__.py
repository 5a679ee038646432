"""Views of a plan for drawings: numbers, islands, module outline, difference of two plans.

Imports: `contracts` and below. A new view is one file.
"""
