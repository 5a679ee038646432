"""Texts about training: gradient errors, gradient ranges, layers of compiled programs.

Imports: those of `report/text`. A new record is one file.
"""
