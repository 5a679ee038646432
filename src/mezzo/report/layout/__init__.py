"""Text layout: tables and colours, number formats, and safe printing of names from models.

Imports: `common`, `formats`. A new number format is a function of `numbers.py`.
"""
