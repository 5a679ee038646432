"""Layout of texts: tables and colours, numbers as people read them, names of a model made safe to print.

Imports: `common`, `formats`.
A new way to spell a number is a function of `numbers.py`.
"""
