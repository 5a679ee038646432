"""Update of an edited graph's fake tensors (dtypes, strides, aliasing) by fake execution."""

from operator import getitem
from typing import NamedTuple

import torch
from torch import fx

from mezzo.aten.edit.journal import EditJournal
from mezzo.aten.read.retype import dtypes_of, is_laid_out_alike, laid_out_as, run_fake
from mezzo.aten.torch_internals import FakeTensorMode, OpOverload, schema_of
from mezzo.common.errors import spell_raised

_LONGEST_FAULT = 200

Types = tuple[torch.dtype | None, ...]
# Results by kind of call, valid for every graph and therefore cached globally.
_ANSWERS: dict[object, Types | str] = {}


class RejectedCall(NamedTuple):
    """A call that PyTorch rejects, and the error."""

    node: fx.Node
    raised: str


class Refresher:
    """Updates `meta["val"]` of a graph's nodes."""

    def __init__(
        self, mode: FakeTensorMode, owner: torch.nn.Module, graph: fx.Graph, journal: EditJournal
    ) -> None:
        self.mode, self.owner, self.graph, self.journal = mode, owner, graph, journal

    def refresh(self, casts: set[fx.Node], changed: set[fx.Node]) -> RejectedCall | None:
        """Recompute results of calls with changed operands; returns the first rejected call.

        `casts` are the inserted conversions; `changed` are all nodes with a new type, including
        those.
        """
        changed = set(changed)
        # A conversion returns a dense tensor, so that users of a strided or expanded operand may
        # get new strides, too.
        restrided = {
            node
            for node in casts
            if not is_laid_out_alike(node.meta["val"], node.all_input_nodes[0].meta["val"])
        }
        for node in self.graph.nodes:
            if node.op != "call_function" or changed.isdisjoint(node.all_input_nodes):
                continue
            is_restrided = not restrided.isdisjoint(node.all_input_nodes)
            if node in casts and not is_restrided:
                continue
            before = node.meta.get("val")
            result = self._made(node, is_restrided)
            if isinstance(result, str):
                return RejectedCall(node, result)
            if result is not before:
                self.journal.retype(node, result)
                changed.add(node)
            if not is_laid_out_alike(result, before):
                restrided.add(node)
        return None

    def _made(self, node: fx.Node, is_restrided: bool) -> object:
        """A call's new result, or PyTorch's error text. If only types can have changed, the result
        is cached by kind of call.
        """
        previous = node.meta.get("val")
        if _shares_memory(node.target) or (is_restrided and _is_plain(node)):
            return self._run(node)
        types = self._types(node)
        if isinstance(types, str) or types == dtypes_of(previous):
            return types if isinstance(types, str) else previous
        return self._retyped(previous, types)

    def _run(self, node: fx.Node) -> object:
        try:
            return run_fake(self.mode, node, self.owner, lambda operand: operand.meta["val"])
        except Exception as error:  # noqa: BLE001  # whatever an operator raises
            return spell_raised(error, _LONGEST_FAULT)

    def _types(self, node: fx.Node) -> Types | str:
        # Subgraphs are not visible in the operand types.
        if not isinstance(node.target, OpOverload):
            return self._asked(node)
        # The number of results of a split or an unbind depends on sizes, which are not part of the
        # kinds.
        key = node.target, _kinds_in((node.args, node.kwargs)), len(dtypes_of(node.meta.get("val")))
        if key not in _ANSWERS:
            _ANSWERS[key] = self._asked(node)
        return _ANSWERS[key]

    def _asked(self, node: fx.Node) -> Types | str:
        result = self._run(node)
        return result if isinstance(result, str) else dtypes_of(result)

    def _retyped(self, value: object, types: Types) -> object:
        """A call's previous result, with new dtypes."""
        if isinstance(value, tuple | list):
            return type(value)(
                self._retyped(*pair)
                for pair in zip(value, ((dtype,) for dtype in types), strict=True)
            )
        (dtype,) = types
        is_changed = (
            isinstance(value, torch.Tensor) and dtype is not None and value.dtype is not dtype
        )
        return laid_out_as(self.mode, value, dtype) if is_changed else value


def _shares_memory(target: object) -> bool:
    """Whether a call's result may alias its operands, so that its fake must alias, too."""
    if target is getitem:
        return True
    return isinstance(target, OpOverload) and any(
        result.alias_info for result in schema_of(target).returns
    )


def _is_plain(node: fx.Node) -> bool:
    """Whether a call may be rerun: it calls no subgraph and creates no unbacked sizes."""
    return isinstance(node.target, OpOverload) and "unbacked_bindings" not in node.meta


def _kinds_in(argument: object) -> object:
    """The part of a call's arguments that result dtypes may depend on. Assumes operators that
    accepted the same sizes before.
    """
    if isinstance(argument, fx.Node):
        value = argument.meta.get("val")
        is_tensor = isinstance(value, torch.Tensor)
        return (value.dtype, value.device.type, value.dim() == 0) if is_tensor else type(value)
    if isinstance(argument, tuple | list):
        return tuple(map(_kinds_in, argument))
    if isinstance(argument, dict):
        return tuple((name, _kinds_in(item)) for name, item in argument.items())
    is_number = isinstance(argument, int | float) and not isinstance(argument, bool)
    return type(argument) if is_number else argument
