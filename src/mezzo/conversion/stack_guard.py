"""A call with room on the interpreter's stack, whoever calls, and from how deep.

CPython keeps frames in pieces of 16 KiB. Where a piece ends between a loop and what that calls, each call maps memory
and gives it back: under torch.compile planning took three times as long.
Source: `push_chunk` and `_PyThreadState_PopFrame` in Python/pystate.c, CPython 3.11 to 3.13.
"""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_PIECE_BYTES = 16 << 10
_SLOT_BYTES = 8
# A frame larger than two pieces stands in one of 64 KiB, the rest of which is for those that it calls.
_SLOTS = 2 * _PIECE_BYTES // _SLOT_BYTES + 100


def call_with_room(call: Callable[[], Result]) -> Result:
    """What a call gives, made where frames of the next hundred calls find room."""
    return call()


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_SLOTS)
