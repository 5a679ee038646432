"""Facts of PyTorch's prims, which decompositions of ATen operators consist of; named as in ATen."""

DIALECT = "prims"
