"""The line of a program that each node was exported from, where PyTorch's exporters noted it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from mezzo.core.nodes import SourceLine

_STACK_TRACE = "pkg.torch.onnx.stack_trace"
_LONGEST_TRACE = 50_000
# Of the exporter through torch.export, as Python prints a traceback: the innermost frame is the last.
_TRACED = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in [^\n]*(?:\n[ \t]+([^\n]*))?')
# Of the older exporter, which notes it where it is asked to be verbose: the innermost frame is the first.
_SCRIPTED = re.compile(r"^([^\n]+\.py)\((\d{1,9})\): \S+$", re.MULTILINE)
_PACKAGES = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")
_OWN = re.compile(r"[\\/](?:site|dist)-packages[\\/]torch[\\/]")


class SourceLines(Mapping[int, SourceLine]):
    """Lines by node id: the innermost outside PyTorch itself, as that is the line which its author knows."""

    def __init__(self, protos: Sequence[onnx.NodeProto | None]) -> None:
        self._protos = protos

    def __getitem__(self, node: int) -> SourceLine:
        proto = self._protos[node]
        found = None if proto is None else _find_line(proto)
        if found is None:
            raise KeyError(node)
        return found

    def __iter__(self) -> Iterator[int]:
        return (node for node in range(len(self._protos)) if self.get(node) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _find_line(proto: onnx.NodeProto) -> SourceLine | None:
    for entry in proto.metadata_props:
        if entry.key == _STACK_TRACE and _is_readable(entry.value):
            frames = [SourceLine(file, int(line), code.strip()) for file, line, code in _TRACED.findall(entry.value)]
            return _choose(reversed(frames))
    if proto.doc_string and _is_readable(proto.doc_string):
        return _choose(SourceLine(file, int(line), "") for file, line in _SCRIPTED.findall(proto.doc_string))
    return None


def _is_readable(text: object) -> bool:
    """Protobuf hands out text that is not UTF-8 as bytes."""
    return isinstance(text, str) and len(text) <= _LONGEST_TRACE


def _choose(innermost_first: Iterable[SourceLine]) -> SourceLine | None:
    """The first frame outside PyTorch, or the first of all; its file by the path within the packages."""
    frames = list(innermost_first)
    found = next((frame for frame in frames if not _OWN.search(frame.file)), frames[0] if frames else None)
    return None if found is None else found._replace(file=_PACKAGES.sub("", found.file))
