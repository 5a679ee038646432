"""A plan as data for pictures: numbers, islands, an outline by modules, the difference to another plan.

Imports: `contracts` and below.
Add one file per view.
"""
