"""Helpers that know nothing of models: errors, safe paths, staged writing, sizes, name matching, memory, this machine.

Imports: nothing of mezzo outside this package.
Add here what any package may need and what names no graph, format or runtime.
"""
