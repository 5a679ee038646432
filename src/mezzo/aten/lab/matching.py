"""Matching of two programs' inputs and outputs: by name, then by position."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from torch import fx

from mezzo.aten.lab.inputs import TorchInputs, spell
from mezzo.aten.lab.runner import tensors_of
from mezzo.aten.program import Program, tensor_of
from mezzo.common.errors import InputError

_Ports = Mapping[str, fx.Node]


class Matched(NamedTuple):
    """The candidate's port names, keyed by the reference's, and notes on unmatched ports."""

    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]


def match_ports(reference: Program, candidate: Program) -> Matched:
    """Match the ports of two programs. Reference inputs without a counterpart are left out.

    Raises InputError: an output of the reference, or a required input of the candidate, has no
    counterpart.
    """
    notes: list[str] = []
    ours, theirs = TorchInputs(reference), TorchInputs(candidate)
    inputs = _match("input", ours.nodes, theirs.nodes, notes)
    unfed = [
        name for name in theirs.names if name not in inputs.values() and name not in theirs.optional
    ]
    if unfed:
        raise _no_match("input", ours.nodes, theirs.nodes, unfed[0], "the model needs")
    notes += [f"the model has no input {name!r}" for name in ours.names if name not in inputs]
    ours_out, theirs_out = dict(tensors_of(reference)), dict(tensors_of(candidate))
    outputs = _match("output", ours_out, theirs_out, notes)
    unmatched = [name for name in ours_out if name not in outputs]
    if unmatched:
        raise _no_match("output", ours_out, theirs_out, unmatched[0], "the reference gives")
    notes += [
        f"output {n!r} is only in the model, not compared"
        for n in theirs_out
        if n not in outputs.values()
    ]
    return Matched(inputs, outputs, tuple(notes))


def _match(kind: str, ours: _Ports, theirs: _Ports, notes: list[str]) -> dict[str, str]:
    """Pair ports by name, then the rest in order if they agree in number and rank."""
    pairs = {name: name for name in ours if name in theirs}
    ours_rest = [name for name in ours if name not in pairs]
    theirs_rest = [name for name in theirs if name not in pairs]
    if ours_rest and len(ours_rest) == len(theirs_rest):
        by_position = list(zip(ours_rest, theirs_rest, strict=True))
        if all(_rank(ours[name]) == _rank(theirs[other]) for name, other in by_position):
            pairs |= dict(by_position)
            notes += [
                f"{kind} {name!r} is {other!r} in the model, matched by position"
                for name, other in by_position
            ]
    return pairs


def _rank(node: fx.Node) -> int:
    tensor = tensor_of(node)
    return -1 if tensor is None else tensor.dim()


def _no_match(kind: str, ours: _Ports, theirs: _Ports, name: str, verb: str) -> InputError:
    return InputError(
        f"{kind}s differ: {verb} {name!r}, which has no counterpart; the reference has"
        f" {_list(ours.items())} and the model {_list(theirs.items())}; compare models whose"
        f" {kind}s match in name, or in number and rank"
    )


def _list(ports: Iterable[tuple[str, fx.Node]]) -> str:
    return ", ".join(f"{name!r} ({spell(node.meta['val'])})" for name, node in ports) or "none"
