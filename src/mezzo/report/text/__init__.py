"""Texts of records for terminals and pipes, one file per record.

Imports: `report/records`, `report/layout` and below.
"""
