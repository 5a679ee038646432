"""What the command line offers: next commands, examples of the help, completion.

Imports: everything but `torch`.
A new suggestion is a row of `next_commands.py`.
"""
