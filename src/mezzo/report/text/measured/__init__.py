"""Texts of measurements: comparisons, ranges, sensitivity, the frontier, timings.

Imports: those of `report/text`. A new record is one file.
"""
