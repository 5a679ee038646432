"""Asks an installed runtime which operators it runs in which type, and compares that with a target's table."""
