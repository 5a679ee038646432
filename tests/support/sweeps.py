"""How many random cases a law is tried on: a third of them in every run, all of them where `make sweep` asks."""

import os

_IS_WIDE = os.environ.get("MEZZO_TESTS") == "wide"


def swept(cases: int) -> int:
    """The number of cases to draw, of so many that a wide run draws."""
    return cases if _IS_WIDE else -(-cases // 3)
