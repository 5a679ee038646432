"""Conversion of one model: read, judge, plan, lower, check, apply, verify; replay and recall.

Imports: `planner`, `report` and below; front ends by discovery. A new step of every conversion is
one file, called from `conversion.py`.
"""
