"""Display of results in notebooks and Python shells.

Imports: those of `report`. A new kind of result is a function in `notebook.py`.
"""
