"""Static graph analysis, without data: value estimates, structure rules, and fusions of a target.

Imports: `common`, `formats`, `ir`, `tables`, `contracts`.
A structure rule is a file of `structure/`, a fusion pattern a file of `fusion/patterns/`.
"""
