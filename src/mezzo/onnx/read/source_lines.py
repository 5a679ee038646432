"""The line of a program that each node was exported from, where PyTorch's exporters noted it."""

import re
from collections.abc import Sequence

import onnx

from mezzo.ir.nodes import SourceLine
from mezzo.ir.source_lines import SourceLines, choose_line, is_readable, line_of_traceback

# Of the exporter through torch.export: a traceback.
_STACK_TRACE = "pkg.torch.onnx.stack_trace"
# Of the older exporter, which notes it where it is asked to be verbose: the innermost frame is the first.
_SCRIPTED = re.compile(r"^([^\n]+\.py)\((\d{1,9})\): \S+$", re.MULTILINE)


def lines_of(protos: Sequence[onnx.NodeProto | None]) -> SourceLines:
    """Lines by node id."""

    def find(node: int) -> SourceLine | None:
        proto = protos[node]
        return None if proto is None else _find_line(proto)

    return SourceLines(len(protos), find)


def _find_line(proto: onnx.NodeProto) -> SourceLine | None:
    for entry in proto.metadata_props:
        if entry.key == _STACK_TRACE and is_readable(entry.value):  # protobuf hands out what is not UTF-8 as bytes
            return line_of_traceback(entry.value)
    if proto.doc_string and is_readable(proto.doc_string):
        return choose_line(SourceLine(file, int(line), "") for file, line in _SCRIPTED.findall(proto.doc_string))
    return None
