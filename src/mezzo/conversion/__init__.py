"""One conversion: read, judge, plan, lower, check, apply, verify; replay of plans and recall of earlier settings.

Imports: `planner`, `report` and below; front ends by discovery.
A new step of every conversion is one file, called from `conversion.py`.
"""
