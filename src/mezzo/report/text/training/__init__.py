"""Texts about training: gradients, their ranges, layers of compiled programs, loss curves.

Imports: what `report/text` may.
Add one file per record.
"""
