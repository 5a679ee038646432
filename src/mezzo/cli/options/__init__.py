"""Options of commands: those derived from a request's fields, and shared ones.

Imports: everything but `torch`. An option of every conversion is a field of
`contracts/options/request.py`; others are here.
"""
