"""Source lines of nodes, from the stack traces that PyTorch's exporters record."""

import re
from collections.abc import Sequence

import onnx

from mezzo.ir.nodes import SourceLine
from mezzo.ir.source_lines import SourceLines, choose_line, is_readable, line_of_traceback

# The exporter through torch.export records a traceback.
_STACK_TRACE = "pkg.torch.onnx.stack_trace"
# The TorchScript exporter, if verbose, records frames in the doc string, the innermost first.
_SCRIPTED = re.compile(r"^([^\n]+\.py)\((\d{1,9})\): \S+$", re.MULTILINE)


def lines_of(protos: Sequence[onnx.NodeProto | None]) -> SourceLines:
    """Source lines by node id."""

    def find(node: int) -> SourceLine | None:
        proto = protos[node]
        return None if proto is None else _find_line(proto)

    return SourceLines(len(protos), find)


def _find_line(proto: onnx.NodeProto) -> SourceLine | None:
    for entry in proto.metadata_props:
        # Protobuf returns text that is not UTF-8 as bytes.
        if entry.key == _STACK_TRACE and is_readable(entry.value):
            return line_of_traceback(entry.value)
    if proto.doc_string and is_readable(proto.doc_string):
        return choose_line(
            SourceLine(file, int(line), "") for file, line in _SCRIPTED.findall(proto.doc_string)
        )
    return None
