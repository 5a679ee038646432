"""How much memory running models may take: what was asked for, or most of what is free.

The bound is on private memory, which no file backs and nobody can take back. On Linux the system holds a bound that
was asked for: what would pass it is refused (RLIMIT_DATA), so that a model is cut further, or the work ends in one
line. Models are also cut so that the weights of a segment, which lie in maps of files, fit beside its values: the
system could take them back, but only to read them again for each batch.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from mezzo.common.errors import InputError
from mezzo.common.machine import data_bounded, find_memory, find_private_bytes, give_back_memory
from mezzo.common.message_style import option
from mezzo.common.sizes import format_size, read_size

_log = logging.getLogger(__name__)

# What is left to others where nobody says how much to take.
_SHARE = 0.9
# What kernels take for themselves is not known before.
_LEFT_TO_KERNELS = 0.2
# Answers, and what is told of them, are held beside a model.
_HELD_AT_ONCE = 4


@dataclass(slots=True, kw_only=True)
class Memory:
    """A bound on memory, and what came of it. `bound_bytes` None: nothing is known of this machine, nothing is bounded.

    `is_asked`: somebody gave it, so that nothing may pass it. `segments` and `most_bytes` are of the model that was cut
    into most: how many, and what one of them holds at most; 0 where none was cut.
    """

    bound_bytes: int | None
    is_asked: bool
    tell: Callable[[str], None] = field(default=_log.info, repr=False)
    segments: int = 0
    most_bytes: int = 0
    _told: int = field(default=0, repr=False)

    def room_bytes(self) -> int | None:
        """What a model may take beside all that this process holds by now; None where nothing is bounded."""
        if self.bound_bytes is None:
            return None
        held = 0  # what is free is told without what this process holds
        if self.is_asked:
            give_back_memory()
            held = find_private_bytes() or 0
        return int(max(0, self.bound_bytes - held) * (1 - _LEFT_TO_KERNELS))

    def share_bytes(self, usual_bytes: int) -> int:
        """What may be held at once of something that takes up to `usual_bytes` where nobody bounds it."""
        room = self.room_bytes() if self.is_asked else None
        return usual_bytes if room is None else min(usual_bytes, room // _HELD_AT_ONCE)

    def note_cut(self, segments: int, most_bytes: int) -> None:
        """A model runs in segments; told where it is the first, or cut into many more than the others."""
        self.segments = max(self.segments, segments)
        if segments >= 2 * self._told:
            self._told = segments
            self.tell(f"runs in segments to fit in memory: {segments} segments, {format_size(most_bytes)} at most")
        self.most_bytes = max(self.most_bytes, most_bytes)

    def refusal(self, what: str, remedy: str = "") -> "NoRoom":
        """What is said where something does not fit, and what to do beside giving more."""
        bound = "all" if self.bound_bytes is None else format_size(self.bound_bytes)
        remedy = remedy or f", or run fewer samples at a time with {option('batch_size')}"
        return NoRoom(f"{option('memory')} is {bound}, and {what} does not fit; give more{remedy}")


class NoRoom(InputError):
    """Something does not fit in the memory that may be taken."""


_bound: ContextVar[Memory | None] = ContextVar("memory", default=None)


def memory_at_hand() -> Memory:
    """The bound that holds for whoever asks: what was asked for, else most of what is free now."""
    return _bound.get() or _most_of_what_is_free()


@contextmanager
def memory(size: str | int | None = None, *, tell: Callable[[str], None] | None = None) -> Iterator[Memory]:
    """Bound the memory that running models takes while this is open; answers are the same.

    What does not fit runs in segments: all batches through one segment before the next is loaded, values between them
    on the disk. The bound is on memory that no file backs, of this process alone; workers of a cluster have their own
    machines'. On Linux it is never passed. Systems that do not tell what a process holds only plan by it.

    Args:
        size: bytes, or text such as "6GB" or "512MiB"; by default most of what is free, which is only planned by.
        tell: is told in one line into how many segments a model is cut; logged unless given.

    Returns the bound, with what came of it once that is known.

    Raises:
        InputError: the size is none, or not even this process fits; inside: something does not fit.
    """
    held = _most_of_what_is_free() if size is None else Memory(bound_bytes=_read(size), is_asked=True)
    held.tell = tell or held.tell
    token = _bound.set(held)
    try:
        if not held.is_asked or held.bound_bytes is None:
            yield held
            return
        private = find_private_bytes() or 0
        if private > held.bound_bytes:
            raise held.refusal(f"this process alone, which holds {format_size(private)} by now,", " than that")
        with data_bounded(held.bound_bytes):
            try:
                yield held
            except NoRoom:
                raise
            except Exception as error:
                if any(map(is_out_of_memory, _causes_of(error))):
                    raise held.refusal("what is computed beside the model") from error
                raise
    finally:
        _bound.reset(token)


def _read(size: str | int) -> int:
    found = read_size(str(size))
    if found is None:
        raise InputError(f"{option('memory')} is {size!r}, which is no size; give one such as 6GB or 512MiB")
    return found


def _most_of_what_is_free() -> Memory:
    known = find_memory()
    return Memory(bound_bytes=None if known is None else int(known[1] * _SHARE), is_asked=False)


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library has failed because it got no memory."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in _REFUSALS)


# What ONNX Runtime and PyTorch say then.
_REFUSALS = ("Failed to allocate memory", "bad_alloc", "bad allocation", "can't allocate memory")
