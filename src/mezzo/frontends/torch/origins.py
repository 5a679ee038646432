"""Where a node of an FX graph comes from: the path of its module, and the line of the program."""

import re
from collections.abc import Iterator, Mapping, Sequence

from torch import fx

from mezzo.core.nodes import SourceLine

# Dynamo spells a path by what the traced function calls its module: L['self'].layers.0, L['fn']._modules['0'].
_ROOT = re.compile(r"^(?:L|G)\['[^']*'\](?:\.__closure__\[\d+\]\.cell_contents)?\.?")
_BY_KEY = re.compile(r"\._modules\['([^']*)'\]|^_modules\['([^']*)'\]")
# What torch.export notes for what it has put in itself.
_NONE = "_empty_nn_module_stack_from_metadata_hook"
_TRACED = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in [^\n]*(?:\n[ \t]+([^\n]*))?')
_LONGEST_TRACE = 50_000
_PACKAGES = re.compile(r"^.*[\\/](?:site|dist)-packages[\\/]")
_OWN = re.compile(r"[\\/](?:site|dist)-packages[\\/]torch[\\/]|[\\/]mezzo[\\/]torch[\\/]regions\.py$")


def module_of(node: fx.Node) -> str:
    """The path of the innermost module that a node was traced in, "" for the model itself."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    path = next(reversed(stack.values()))[0] if stack else ""
    return "" if path == _NONE else plain_path(str(path))


def plain_path(path: str) -> str:
    """A module's or parameter's path as `named_modules` spells it."""
    bare = _ROOT.sub("", path)
    return _BY_KEY.sub(lambda found: f".{found[1] or found[2]}", bare).lstrip(".")


class SourceLines(Mapping[int, SourceLine]):
    """Lines by the planner's node id: the innermost outside PyTorch and regions, which its author knows."""

    def __init__(self, nodes: Sequence[fx.Node | None]) -> None:
        self._nodes = nodes

    def __getitem__(self, node: int) -> SourceLine:
        origin = self._nodes[node]
        found = None if origin is None else _line_of(origin)
        if found is None:
            raise KeyError(node)
        return found

    def __iter__(self) -> Iterator[int]:
        return (node for node in range(len(self._nodes)) if self.get(node) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _line_of(node: fx.Node) -> SourceLine | None:
    trace = node.meta.get("stack_trace")
    if not isinstance(trace, str) or len(trace) > _LONGEST_TRACE:
        return None
    frames = [SourceLine(file, int(line), code.strip()) for file, line, code in _TRACED.findall(trace)]
    inner = [frame for frame in reversed(frames) if not _OWN.search(frame.file)] or frames[-1:]
    return inner[0]._replace(file=_PACKAGES.sub("", inner[0].file)) if inner else None
