"""Helpers independent of models: errors, safe paths, staged writes, sizes, name matching, memory
limits, machine facts.

Imports: nothing of mezzo outside this package.
Add here what any package may need and what depends on no graph, format or runtime.
"""
