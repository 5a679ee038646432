"""Looks at what is installed and at the machine. Everything that could break breaks in a child
process.
"""
