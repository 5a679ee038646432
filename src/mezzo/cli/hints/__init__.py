"""Hints of the command line: next commands, examples in the help, shell completion.

Imports: everything but `torch`. A new suggestion is a row of `next_commands.py`.
"""
