"""What is known of a graph without data: estimates of values, structure rules, fusions of a target.

Imports: `common`, `formats`, `ir`, `tables`, `contracts`.
A structure rule is one file of `structure/`, a fusion pattern one file of `fusion/patterns/`.
"""
