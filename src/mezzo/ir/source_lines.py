"""The line of a program that a node was made from, where a tracer has noted how it came there."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeGuard

from mezzo.ir.nodes import SourceLine

_LONGEST_TRACE = 50_000
# As Python prints a traceback: the innermost frame is the last.
_TRACED = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in [^\n]*(?:\n[ \t]+([^\n]*))?')
_PACKAGES = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")
# PyTorch itself, and what marks its operators on their way.
_OWN = re.compile(r"[\\/](?:site|dist)-packages[\\/]torch[\\/]|[\\/]mezzo[\\/]torch[\\/]regions\.py$")


class SourceLines(Mapping[int, SourceLine]):
    """Lines by node id, looked for when one is asked for. `find` gives that of each of `count` nodes, if it has one."""

    def __init__(self, count: int, find: Callable[[int], SourceLine | None]) -> None:
        self._count, self._find = count, find

    def __getitem__(self, node: int) -> SourceLine:
        found = self._find(node)
        if found is None:
            raise KeyError(node)
        return found

    def __iter__(self) -> Iterator[int]:
        return (node for node in range(self._count) if self.get(node) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def is_readable(trace: object) -> TypeGuard[str]:
    """Whether what was noted is text, and not too long to look through."""
    return isinstance(trace, str) and len(trace) <= _LONGEST_TRACE


def line_of_traceback(trace: str) -> SourceLine | None:
    """The line of a traceback that the author of the program knows."""
    frames = [SourceLine(file, int(line), code.strip()) for file, line, code in _TRACED.findall(trace)]
    return choose_line(reversed(frames))


def choose_line(innermost_first: Iterable[SourceLine]) -> SourceLine | None:
    """The first frame outside PyTorch, or the first of all; its file by the path within the packages."""
    frames = list(innermost_first)
    found = next((frame for frame in frames if not _OWN.search(frame.file)), frames[0] if frames else None)
    return None if found is None else found._replace(file=_PACKAGES.sub("", found.file))
