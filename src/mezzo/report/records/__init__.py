"""Records that texts, pages and JSON are made from: account, headline, suggestions, with their JSON schemas.

Imports: what `report` may.
A new field of an account is a section in `sections.py` and a line of its schema.
"""
