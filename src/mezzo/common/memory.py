"""Memory limit for running models: the caller's limit, or 90 % of the available memory.

The limit applies to private (anonymous) memory, which the system cannot reclaim. On Linux,
RLIMIT_DATA enforces a limit that the caller sets: an allocation beyond it fails, and the model is
then split into more segments or the run ends with a one-line error. Models are split so that the
memory-mapped weights of a segment fit in memory together with its values; the system could evict
mapped weights, but would read them again for each batch.
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

# Share of the available memory that is used by default; the rest is for other processes.
_SHARE = 0.9
# Share reserved for kernel workspaces, whose size is unknown in advance.
_LEFT_TO_KERNELS = 0.2
# Model outputs and their statistics are in memory together with the model.
_HELD_AT_ONCE = 4


@dataclass(slots=True, kw_only=True)
class MemoryLimit:
    """A memory limit and its effects. `bound_bytes` is None if this machine's memory is unknown:
    then nothing is limited.

    `is_asked`: the caller set the limit, so it is enforced. `segments` and `most_bytes` describe
    the model that was split most: number of segments and size of the largest; 0 if no model was
    split.
    """

    bound_bytes: int | None
    is_asked: bool
    tell: Callable[[str], None] = field(default=_log.info, repr=False)
    segments: int = 0
    most_bytes: int = 0
    _reported: int = field(default=0, repr=False)

    def room_bytes(self) -> int | None:
        """Bytes available for a model beyond this process's current use; None if unlimited."""
        if self.bound_bytes is None:
            return None
        private_bytes = (
            0  # a default limit is of available memory, which excludes this process's own
        )
        if self.is_asked:
            give_back_memory()
            private_bytes = find_private_bytes() or 0
        return int(max(0, self.bound_bytes - private_bytes) * (1 - _LEFT_TO_KERNELS))

    def share_bytes(self, usual_bytes: int) -> int:
        """Size of a buffer, `usual_bytes` unless an enforced limit requires less."""
        room = self.room_bytes() if self.is_asked else None
        return usual_bytes if room is None else min(usual_bytes, room // _HELD_AT_ONCE)

    def note_cut(self, segments: int, most_bytes: int) -> None:
        """Record a model in segments; report the first, and when the count doubles."""
        self.segments = max(self.segments, segments)
        if segments >= 2 * self._reported:
            self._reported = segments
            self.tell(
                f"runs in segments to fit in memory: {segments} segments, {format_size(most_bytes)}"
                " at most"
            )
        self.most_bytes = max(self.most_bytes, most_bytes)

    def refusal(self, what: str, remedy: str = "") -> "NoRoom":
        """The error for `what` not fitting; `remedy` is another way than a higher limit."""
        bound = "all" if self.bound_bytes is None else format_size(self.bound_bytes)
        remedy = remedy or f", or run fewer samples at a time with {option('batch_size')}"
        return NoRoom(f"{option('memory')} is {bound}, and {what} does not fit; give more{remedy}")


class NoRoom(InputError):
    """Something does not fit within the memory limit."""


_bound: ContextVar[MemoryLimit | None] = ContextVar("memory", default=None)


def current_memory_limit() -> MemoryLimit:
    """The memory limit in effect: the caller's, else a share of the memory available now."""
    return caller_memory_limit() or most_of_what_is_free()


def caller_memory_limit() -> MemoryLimit | None:
    """The caller's memory limit, if any."""
    return _bound.get()


@contextmanager
def memory(
    size: str | int | None = None, *, tell: Callable[[str], None] | None = None
) -> Iterator[MemoryLimit]:
    """Limit the memory of running models inside this context; outputs are unchanged.

    A model that does not fit runs in segments: all batches pass through one segment before the next
    is loaded, and intermediate values are stored on disk. The limit covers the private memory of
    this process only; workers of a cluster use the limits of their own machines. Linux enforces it;
    systems that do not report a process's memory only plan by it.

    Args:
        size: bytes, or text such as "6GB" or "512MiB"; default: 90 % of the available memory, not
            enforced.
        tell: called with one line on the number of segments of a model; logged by default.

    Returns the limit, which later holds the number of segments.

    Raises:
        InputError: the size is invalid, this process exceeds it, or something inside does not fit.
    """
    limit = (
        most_of_what_is_free()
        if size is None
        else MemoryLimit(bound_bytes=_read(size), is_asked=True)
    )
    limit.tell = tell or limit.tell
    with limited(limit):
        yield limit


@contextmanager
def limited(limit: MemoryLimit) -> Iterator[None]:
    """Apply a limit inside this context. Errors are those of `memory`."""
    token = _bound.set(limit)
    try:
        if not limit.is_asked or limit.bound_bytes is None:
            yield
            return
        private = find_private_bytes() or 0
        if private > limit.bound_bytes:
            raise limit.refusal(
                f"this process alone, which holds {format_size(private)} by now,", " than that"
            )
        with data_bounded(limit.bound_bytes):
            try:
                yield
            except NoRoom:
                raise
            except Exception as error:
                if any(map(is_out_of_memory, _causes_of(error))):
                    raise limit.refusal("computation outside the model") from error
                raise
    finally:
        _bound.reset(token)


def _read(size: str | int) -> int:
    size_bytes = read_size(str(size))
    if size_bytes is None:
        raise InputError(
            f"{option('memory')} is {size!r}, which is no size; give one such as 6GB or 512MiB"
        )
    return size_bytes


def most_of_what_is_free() -> MemoryLimit:
    """The default limit: a share of the memory available now. Reads a dozen files of the system."""
    total_and_free = find_memory()
    return MemoryLimit(
        bound_bytes=None if total_and_free is None else int(total_and_free[1] * _SHARE),
        is_asked=False,
    )


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and the chain of its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a library failed because an allocation failed."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in _REFUSALS)


# Messages of ONNX Runtime and PyTorch for failed allocations.
_REFUSALS = ("Failed to allocate memory", "bad_alloc", "bad allocation", "can't allocate memory")
