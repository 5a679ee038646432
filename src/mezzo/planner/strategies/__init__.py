"""Strategies: functions from a Problem to a level per node, one file each, found by discovery.

Imports: `contracts` and below; never another strategy.
Add one file with a subclass of `Strategy`, whose name is the file's.
"""
