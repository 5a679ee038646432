"""Multi-operator patterns that per-operator laws cannot estimate: gates, running totals,
cancellation.

Imports: as `analysis`.
Add one file per pattern.
"""
