"""Commands of the command line, one file each, named as the command is.

Imports: everything but `torch`. A new command is one file and a row in `app.py`.
"""
