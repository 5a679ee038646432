"""Delta debugging (Zeller and Hildebrandt, IEEE TSE 28(2), 2002): the smallest part of a sequence
that still shows a fault.
"""

from collections.abc import Callable, Collection, Iterator

Part = tuple[int, ...]


def minimize(
    part: Part, closed: Callable[[Collection[int]], Part], fails: Callable[[Part], bool]
) -> Part:
    """A part of a failing part that fails, while none of its elements alone does, nor the part
    without one. `closed`: the smallest part allowed that has these elements.

    A single faulty element takes about twice the logarithm of the length in tries. Of several, the
    first is found.
    """
    tried = {part}
    size = (len(part) + 1) // 2
    while len(part) > 1:
        for candidate in _smaller(part, size):
            candidate = closed(candidate)
            if not candidate or candidate in tried or len(candidate) >= len(part):
                continue
            tried.add(candidate)
            if fails(candidate):
                part = candidate
                size = min(size, (len(part) + 1) // 2)
                break
        else:
            if size == 1:
                break
            size = (size + 1) // 2
    return part


def _smaller(part: Part, size: int) -> Iterator[Part]:
    """Blocks of a size, the first first, then the part without each, the last first."""
    starts = range(0, len(part), size)
    yield from (part[start : start + size] for start in starts)
    yield from ((*part[:start], *part[start + size :]) for start in reversed(starts))
