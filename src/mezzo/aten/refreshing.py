"""What every call of an edited graph makes, asked of PyTorch: types, strides, and whose memory it is."""

from operator import getitem
from typing import NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from mezzo.aten.journal import Journal
from mezzo.aten.read.retype import dtypes_of, is_laid_out_alike, laid_out_as, run_fake
from mezzo.common.errors import spell_raised

_LONGEST_FAULT = 200

Types = tuple[torch.dtype | None, ...]
# What PyTorch has answered of calls: it says the same of every graph.
_ANSWERS: dict[object, Types | str] = {}


class Refusal(NamedTuple):
    """A call that PyTorch refuses, and what it raises."""

    node: fx.Node
    raised: str


class Refresher:
    """Brings `meta["val"]` of a graph up to date."""

    def __init__(self, mode: FakeTensorMode, owner: torch.nn.Module, graph: fx.Graph, journal: Journal) -> None:
        self.mode, self.owner, self.graph, self.journal = mode, owner, graph, journal

    def refresh(self, casts: set[fx.Node], changed: set[fx.Node]) -> Refusal | None:
        """Ask what every call makes whose operands have changed: the first that PyTorch refuses, if any.

        `casts` are conversions that were put in; `changed`, they among them, what has another type than it had.
        """
        changed = set(changed)
        # Conversions make dense what is expanded or cut out: who reads them instead may make other strides, too.
        moved = {one for one in casts if not is_laid_out_alike(one.meta["val"], one.all_input_nodes[0].meta["val"])}
        for node in self.graph.nodes:
            if node.op != "call_function" or changed.isdisjoint(node.all_input_nodes):
                continue
            is_moved = not moved.isdisjoint(node.all_input_nodes)
            if node in casts and not is_moved:
                continue
            before = node.meta.get("val")
            made = self._made(node, is_moved)
            if isinstance(made, str):
                return Refusal(node, made)
            if made is not before:
                self.journal.retype(node, made)
                changed.add(node)
            if not is_laid_out_alike(made, before):
                moved.add(node)
        return None

    def _made(self, node: fx.Node, is_moved: bool) -> object:
        """What a call makes now, or what PyTorch raises instead. Where types alone can have changed, each kind of call
        is asked about once.
        """
        held = node.meta.get("val")
        if _shares_memory(node.target) or (is_moved and _is_plain(node)):
            return self._run(node)
        found = self._types(node)
        if isinstance(found, str) or found == dtypes_of(held):
            return found if isinstance(found, str) else held
        return self._retyped(held, found)

    def _run(self, node: fx.Node) -> object:
        try:
            return run_fake(self.mode, node, self.owner, lambda one: one.meta["val"])
        except Exception as error:  # noqa: BLE001  # whatever an operator raises
            return spell_raised(error, _LONGEST_FAULT)

    def _types(self, node: fx.Node) -> Types | str:
        if not isinstance(node.target, torch._ops.OpOverload):  # what it calls is not told by its operands
            return self._asked(node)
        # How many a split or an unbind makes hangs on sizes, which the kinds do not tell.
        key = node.target, _kinds_in((node.args, node.kwargs)), len(dtypes_of(node.meta.get("val")))
        if key not in _ANSWERS:
            _ANSWERS[key] = self._asked(node)
        return _ANSWERS[key]

    def _asked(self, node: fx.Node) -> Types | str:
        made = self._run(node)
        return made if isinstance(made, str) else dtypes_of(made)

    def _retyped(self, made: object, types: Types) -> object:
        """What a call makes, in other types."""
        if isinstance(made, tuple | list):
            return type(made)(self._retyped(*pair) for pair in zip(made, ((one,) for one in types), strict=True))
        (dtype,) = types
        is_changed = isinstance(made, torch.Tensor) and dtype is not None and made.dtype is not dtype
        return laid_out_as(self.mode, made, dtype) if is_changed else made


def _shares_memory(target: object) -> bool:
    """Whether what a call makes is memory of what it reads, so that no tensor like it can stand for it."""
    if target is getitem:
        return True
    return isinstance(target, torch._ops.OpOverload) and any(one.alias_info for one in target._schema.returns)


def _is_plain(node: fx.Node) -> bool:
    """Whether a call may be run anew: its bodies are not moved, and it makes no sizes of its own."""
    return isinstance(node.target, torch._ops.OpOverload) and "unbacked_bindings" not in node.meta


def _kinds_in(given: object) -> object:
    """All that types of results may depend on in the arguments of a call, for operators of whom PyTorch took the same
    sizes before.
    """
    if isinstance(given, fx.Node):
        held = given.meta.get("val")
        is_tensor = isinstance(held, torch.Tensor)
        return (held.dtype, held.device.type, held.dim() == 0) if is_tensor else type(held)
    if isinstance(given, tuple | list):
        return tuple(map(_kinds_in, given))
    if isinstance(given, dict):
        return tuple((name, _kinds_in(one)) for name, one in given.items())
    is_counted = isinstance(given, int | float) and not isinstance(given, bool)
    return type(given) if is_counted else given
