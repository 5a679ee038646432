"""Facts of PyTorch's operators that take functions.

Those that only run a body (`cond`, `while_loop`, `scan`) have no row: types of what goes in and out are the body's.
"""

DIALECT = "higher_order"
