"""Sequences of calls in which outputs of a model become its inputs at the next call: their feeds,
and a lab that runs them.

Imports: as for `contracts`.
"""
