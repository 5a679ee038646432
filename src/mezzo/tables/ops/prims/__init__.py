"""Facts of the primitives that decompositions of ATen operators are written in. Named as those of ATen are."""

DIALECT = "prims"
