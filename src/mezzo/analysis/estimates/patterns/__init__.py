"""Patterns of several operators whose joint result no law of one operator gives: gates, running totals, cancellation.

Imports: what `analysis` may.
Add one file per pattern.
"""
