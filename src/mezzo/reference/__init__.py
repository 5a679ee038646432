"""Six published mixed-precision systems, one file each: operator lists as policies, colouring as a
strategy. PyTorch's autocast is lists alone: it decides as TVM's strategy does.

Imports: `contracts`, `tables`, `ir`, `formats`, which plug-ins of other packages may import too.
Nothing imports these files: pyproject.toml declares the policies and strategies as entry points, as
another package would.
"""
