"""Options of commands: those of a request, derived from its fields, and those that several commands
share.

Imports: everything but `torch`. An option of every conversion is a field of
`contracts/options/request.py`; others are here.
"""
