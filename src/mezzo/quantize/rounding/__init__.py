"""Rounding of weights to low-bit integers in blocks; one file each, discovered.

Imports: `quantize/arithmetic`, `contracts`, `formats` and below; never another rounding.
Add one file with a subclass of `Rounding`, whose name is the file's, with "-" for "_".
"""
