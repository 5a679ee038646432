"""Contracts between packages: options, problem, strategy, plan, front end, lab and executor.

Imports: `common`, `formats`, `ir`, `tables`.
An option is a field of `options/request.py`, whose help and parser are derived from it.
"""
