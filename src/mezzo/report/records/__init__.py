"""Records behind texts, pages and JSON: account, headline, suggestions, with their JSON schemas.

Imports: those of `report`. A new field of an account is a section in `sections.py` and a line of
its schema.
"""
