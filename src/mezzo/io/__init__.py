"""Text file formats: plans, policies, targets, profiles, model metadata; all hostile input.

Imports: `common`, `formats`, `ir`, `tables`, `contracts`.
Add one file per format; parse through `documents.py`, which bounds depth, numbers and parts.
"""
