"""Five published systems, one file each: their lists or presets as policies, their colouring as a strategy.

Imports: the contracts that plug-ins of other packages have: `contracts`, `tables`, `ir`, `formats`. Nothing imports a
file here: pyproject.toml declares their policies and strategies as entry points, as another package would.
"""
