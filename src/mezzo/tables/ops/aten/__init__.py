"""Facts of PyTorch's ATen operators, forward and backward.

A row is an operator's name without its overload, which holds of all overloads but those with a row of their own:
"max", and beside it "max.dim" and "max.other". Operators that write into their operands have no row: what runs on a
copy in another type would write there.
"""

DIALECT = "aten"
