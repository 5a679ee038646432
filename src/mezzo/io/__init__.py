"""File formats: plans, profiles, model metadata; all hostile input.

Imports: `common`, `formats`, `ir`, `tables`, `contracts`.
Add one file per format; parse through `common/documents.py`, which bounds depth, numbers and parts.
"""
