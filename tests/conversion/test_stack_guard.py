"""A call with room on the interpreter's stack is that call, and its frame leaves no piece of the stack half full."""

import pytest

from mezzo.conversion.stack_guard import call_with_room

_PIECE_BYTES = 16 << 10
_SLOT_BYTES = 8


def test_a_call_with_room_gives_and_raises_what_the_call_does() -> None:
    assert call_with_room(lambda: call_with_room(lambda: [3])) == [3]
    with pytest.raises(KeyError, match="no such"):
        call_with_room(lambda: {}["no such"])


def test_its_frame_fits_in_no_piece_that_was_begun() -> None:
    assert call_with_room.__code__.co_stacksize * _SLOT_BYTES > 2 * _PIECE_BYTES
