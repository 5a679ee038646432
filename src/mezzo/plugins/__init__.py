"""Plug-in discovery by name: mezzo's own files and the entry points of other packages.

Imports: `tables`, `contracts`, `io` and below; plug-ins themselves are imported by name, on demand.
A new kind of plug-in is a `_Kind` in `discovery.py` and a group in `entries.py`.
"""
