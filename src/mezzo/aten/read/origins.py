"""Provenance of FX nodes: module path and source line."""

import re
from collections.abc import Sequence
from typing import Any

from torch import fx

from mezzo.ir.nodes import SourceLine
from mezzo.ir.source_lines import SourceLines, is_readable, line_of_traceback

# Dynamo prefixes a path with the traced function's expression for the module: L['self'].layers.0,
# L['fn']._modules['0'].
_ROOT = re.compile(r"^(?:L|G)\['[^']*'\](?:\.__closure__\[\d+\]\.cell_contents)?\.?")
_BY_KEY = re.compile(r"\._modules\['([^']*)'\]|^_modules\['([^']*)'\]")
# Metadata that an inserted node inherits: module, source line, autograd sequence number, marks.
_INHERITED = (
    "nn_module_stack",
    "fwd_nn_module_stack",
    "stack_trace",
    "seq_nr",
    "custom",
    "partitioner_tag",
)
# Placeholder path of nodes that torch.export inserted.
_NONE = "_empty_nn_module_stack_from_metadata_hook"


def module_of(node: fx.Node) -> str:
    """The path of the innermost module that a node was traced in, "" for the model itself."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    path = next(reversed(stack.values()))[0] if stack else ""
    return "" if path == _NONE else plain_path(str(path))


def inherited(node: fx.Node) -> dict[str, Any]:
    """The metadata that a node inserted for another copies from it."""
    return {key: node.meta[key] for key in _INHERITED if key in node.meta}


def plain_path(path: str) -> str:
    """A module's or parameter's path as `named_modules` spells it."""
    bare = _ROOT.sub("", path)
    return _BY_KEY.sub(lambda match: f".{match[1] or match[2]}", bare).lstrip(".")


def lines_of(nodes: Sequence[fx.Node | None]) -> SourceLines:
    """Source lines by planner node id, parsed on demand, without references to FX nodes."""
    traces = [None if node is None else node.meta.get("stack_trace") for node in nodes]

    def find(node: int) -> SourceLine | None:
        trace = traces[node]
        return line_of_traceback(trace) if is_readable(trace) else None

    return SourceLines(len(traces), find)
