"""Policies and targets as TOML files: hostile input, parsed through `common/documents.py`.

Imports: `tables`, `ir`, `formats`, `common`.
A new field of policies or targets becomes a line of `policyfile.py` or `targetfile.py`.
"""
