"""Facts of PyTorch's higher-order operators.

Control flow (`cond`, `while_loop`, `scan`) has no row: its types are those of the subgraph.
"""

DIALECT = "higher_order"
