"""Operators written out in smaller ones: norms, GELU, hard swish, rotary embeddings, attention.

`search.py` finds all. Norms and activations it finds in every spelling that is the same polynomial:
`polynomials.py` is the algebra, `formulas.py` has what the nodes of a graph compute from one value,
and `operators.py` a row for each standard operator. `rotary.py` finds rotations by where each
element of the last axis comes from (`lane_symbols.py`, `lane_moves.py`), `attention.py` attention
around a softmax. `sizes.py` follows sizes that exporters compute.
"""
