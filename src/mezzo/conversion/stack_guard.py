"""A call with a reserved interpreter stack chunk, from any depth.

CPython keeps frames in chunks of 16 KiB. If a chunk ends between a loop and its callee, each call
maps and unmaps memory: under torch.compile planning took three times as long. Source: `push_chunk`
and `_PyThreadState_PopFrame` in Python/pystate.c, CPython 3.11 to 3.13.
"""

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

_PIECE_BYTES = 16 << 10
_SLOT_BYTES = 8
# A frame larger than two chunks gets a chunk of 64 KiB, with room for its callees.
_SLOTS = 2 * _PIECE_BYTES // _SLOT_BYTES + 100


def call_with_room(call: Callable[[], Result]) -> Result:
    """Call in a frame so large that the next hundred frames fit into its stack chunk."""
    return call()


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=_SLOTS)
