"""The public verbs, one file each, named as the public name is.

Imports: everything but `torch` and `cli`.
A new verb is one file and a row of `mezzo._HOMES`.
"""
