"""Results as notebooks and Python shells show them.

Imports: what `report` may.
Add a function per kind of result to `notebook.py`.
"""
