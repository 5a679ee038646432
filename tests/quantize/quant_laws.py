"""How laws about numbers are tried: the same cases each time, and no time limit, as other work may run beside."""

from hypothesis import settings

LAW = settings(max_examples=60, deadline=None, derandomize=True)
