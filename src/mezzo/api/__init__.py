"""Public functions, one file each, named as the function is.

Imports: everything but `torch` and `cli`. A new function is one file and a row of `mezzo._HOMES`.
"""
