"""Exporters of plans to the formats of other tools; one file each, discovered.

Imports: `io/plan_export.py`, `contracts`, `formats`, `tables` and below; never another exporter.
Add one file with a subclass of `PlanExporter`, whose name is the file's, with "-" for "_".
"""
