"""What a caller may ask of a conversion: one field of `Request` per option, with its help and form.

Imports: what `contracts` may.
Add a field to `request.py`, then run tools/option_keywords.py and tools/cli_reference.py.
"""
