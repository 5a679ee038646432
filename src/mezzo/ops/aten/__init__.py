"""Facts of ATen operators."""

DIALECT = "aten"
