"""Reading and writing text files: plans, policies, targets, runtime profiles, metadata of models; all hostile input.

Imports: `common`, `formats`, `ir`, `tables`, `contracts`.
Add one file per file format; parse through `documents.py`, which bounds depth, numbers and parts.
"""
