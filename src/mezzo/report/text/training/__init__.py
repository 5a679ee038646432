"""Texts about training: gradients, their ranges, layers of compiled programs.

Imports: what `report/text` may.
Add one file per record.
"""
