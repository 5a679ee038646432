"""Operators written out in smaller ones: layer and RMS norms, GELU, hard swish.

`search.py` finds them, in every spelling that is the same polynomial: `polynomials.py` is the
algebra, `formulas.py` has what the nodes of a graph compute from one value, and `operators.py` a
row for each standard operator.
"""
