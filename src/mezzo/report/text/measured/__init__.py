"""Texts of what was measured: comparisons, ranges, sensitivity, the frontier, timings.

Imports: what `report/text` may.
Add one file per record.
"""
