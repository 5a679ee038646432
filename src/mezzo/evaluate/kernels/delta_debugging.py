"""Delta debugging (Zeller and Hildebrandt, IEEE TSE 28(2), 2002): the smallest part of a sequence
that still shows a fault.
"""

from collections.abc import Callable, Collection

Part = tuple[int, ...]


def minimize(
    part: Part, closed: Callable[[Collection[int]], Part], fails: Callable[[Part], bool]
) -> Part:
    """A part of a failing part that fails, while no block that `closed` allows to be left out of it
    can be. Blocks are halves first, then smaller; later ones are left out first, so of several
    faults the first remains.

    A single faulty element takes about twice the logarithm of the length in tries.
    """
    size = (len(part) + 1) // 2
    while len(part) > 1:
        smaller = _without_a_block(part, size, closed, fails)
        if smaller is not None:
            part, size = smaller, min(size, (len(smaller) + 1) // 2)
        elif size == 1:
            break
        else:
            size = (size + 1) // 2
    return part


def _without_a_block(
    part: Part,
    size: int,
    closed: Callable[[Collection[int]], Part],
    fails: Callable[[Part], bool],
) -> Part | None:
    """The part without the last block of this size that may be left out; None if none may."""
    for start in reversed(range(0, len(part), size)):
        rest = closed((*part[:start], *part[start + size :]))
        if rest and len(rest) < len(part) and fails(rest):
            return rest
    return None
