"""Facts of PyTorch's ATen operators, forward and backward.

A row is an operator's name without its overload and holds for all overloads without a row of their
own, such as "max" next to "max.dim" and "max.other". Operators that write into their operands have
no row: on a copy in another type they would write into the copy.
"""

DIALECT = "aten"
