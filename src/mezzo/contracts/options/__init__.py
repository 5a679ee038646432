"""Options of a conversion: one field of `Request` each, with its help and form.

Imports: as for `contracts`. Add a field to `request.py`, then run tools/option_keywords.py and
tools/cli_reference.py.
"""
