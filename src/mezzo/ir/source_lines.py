"""Source lines of nodes, from tracebacks that a tracer has recorded."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeGuard

from mezzo.ir.nodes import SourceLine

_LONGEST_TRACE = 50_000
# A frame of a Python traceback, in which the innermost frame is last.
_TRACED = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in [^\n]*(?:\n[ \t]+([^\n]*))?')
_PACKAGES = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")
# Frames of PyTorch, and of the module that marks precision regions, which calls the program's code.
_OWN = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]torch[\\/]"
    r"|[\\/]mezzo[\\/]torch[\\/]compiler[\\/]regions\.py$"
)


class SourceLines(Mapping[int, SourceLine]):
    """Source lines by node id, computed on access by `find`, for `count` nodes."""

    def __init__(self, count: int, find: Callable[[int], SourceLine | None]) -> None:
        self._count, self._find = count, find

    def __getitem__(self, node: int) -> SourceLine:
        line = self._find(node)
        if line is None:
            raise KeyError(node)
        return line

    def __iter__(self) -> Iterator[int]:
        return (node for node in range(self._count) if self.get(node) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def is_readable(trace: object) -> TypeGuard[str]:
    """Whether a recorded trace is text of acceptable length."""
    return isinstance(trace, str) and len(trace) <= _LONGEST_TRACE


def line_of_traceback(trace: str) -> SourceLine | None:
    """The innermost line of a traceback that is outside PyTorch."""
    frames = [
        SourceLine(file, int(line), code.strip()) for file, line, code in _TRACED.findall(trace)
    ]
    return choose_line(reversed(frames))


def choose_line(innermost_first: Iterable[SourceLine]) -> SourceLine | None:
    """The innermost frame outside PyTorch, else the innermost; its file relative to
    site-packages.
    """
    frames = list(innermost_first)
    chosen = next(
        (frame for frame in frames if not _OWN.search(frame.file)), frames[0] if frames else None
    )
    return None if chosen is None else chosen._replace(file=_PACKAGES.sub("", chosen.file))
