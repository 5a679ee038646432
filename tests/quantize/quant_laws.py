"""How laws about numbers are tried: the same cases each time, and no time limit, as other work may run beside."""

from hypothesis import settings
from sweeps import swept

LAW = settings(max_examples=swept(60), deadline=None, derandomize=True)
