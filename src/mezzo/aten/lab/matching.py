"""Which inputs and outputs of two programs belong together: by name, and what is left by position."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import fx

from mezzo.aten.lab.inputs import TorchInputs, spell
from mezzo.aten.lab.runner import tensors_of
from mezzo.aten.program import Program, tensor_of
from mezzo.common.errors import InputError

_Ports = Mapping[str, fx.Node]


class Matched(NamedTuple):
    """The candidate's names of inputs and of outputs, by the reference's; what has no counterpart."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]


def match_ports(reference: Program, candidate: Program) -> Matched:
    """Find what belongs together. What the reference has no counterpart for is left out.

    Raises InputError: an output of the reference, or an input that the candidate needs, has no counterpart.
    """
    notes: list[str] = []
    ours, theirs = TorchInputs(reference), TorchInputs(candidate)
    inputs = _match("input", ours.nodes, theirs.nodes, notes)
    hungry = [name for name in theirs.names if name not in inputs.values() and name not in theirs.optional]
    if hungry:
        raise _no_match("input", ours.nodes, theirs.nodes, hungry[0], "the model needs")
    notes += [f"the model has no input {name!r}" for name in ours.names if name not in inputs]
    gives, got = dict(tensors_of(reference)), dict(tensors_of(candidate))
    outputs = _match("output", gives, got, notes)
    lost = [name for name in gives if name not in outputs]
    if lost:
        raise _no_match("output", gives, got, lost[0], "the reference gives")
    notes += [f"output {n!r} is only in the model, not compared" for n in got if n not in outputs.values()]
    return Matched(inputs, outputs, tuple(notes))


def _match(what: str, ours: _Ports, theirs: _Ports, notes: list[str]) -> dict[str, str]:
    """Pair ports by name, then those left over in their order, if they are as many and of one rank."""
    pairs = {name: name for name in ours if name in theirs}
    left = [name for name in ours if name not in pairs]
    right = [name for name in theirs if name not in pairs]
    if left and len(left) == len(right):
        found = list(zip(left, right, strict=True))
        if all(_rank(ours[name]) == _rank(theirs[other]) for name, other in found):
            pairs |= dict(found)
            notes += [f"{what} {name!r} is {other!r} in the model, matched by position" for name, other in found]
    return pairs


def _rank(node: fx.Node) -> int:
    held = tensor_of(node)
    return -1 if held is None else held.dim()


def _no_match(what: str, ours: _Ports, theirs: _Ports, name: str, verb: str) -> InputError:
    return InputError(
        f"{what}s differ: {verb} {name!r}, which has no counterpart; the reference has {_list(ours.items())} and the "
        f"model {_list(theirs.items())}; compare models whose {what}s match in name, or in number and rank"
    )


def _list(ports: Iterable[tuple[str, fx.Node]]) -> str:
    return ", ".join(f"{name!r} ({spell(node.meta['val'])})" for name, node in ports) or "none"
