"""Matching of two programs' inputs and outputs: by name, then by position."""

from torch import fx

from mezzo.aten.lab.inputs import TorchInputs, spell
from mezzo.aten.lab.runner import tensors_of
from mezzo.aten.program import Program, tensor_of
from mezzo.numerics.data.port_matching import PortMatch, PortMatcher


def match_ports(reference: Program, candidate: Program) -> PortMatch:
    """Match the ports of two programs. Reference inputs without a counterpart are left out.

    Raises InputError: an output of the reference, or a required input of the candidate, has no
    counterpart.
    """
    ports: PortMatcher[fx.Node] = PortMatcher(
        is_alike=lambda ours, theirs: _rank(ours) == _rank(theirs),
        spell=lambda node: spell(node.meta["val"]),
        agreement="rank",
    )
    ours, theirs = TorchInputs(reference), TorchInputs(candidate)
    inputs = ports.pair("input", ours.nodes, theirs.nodes)
    unfed = [
        name for name in theirs.names if name not in inputs.values() and name not in theirs.optional
    ]
    if unfed:
        raise ports.no_match("input", ours.nodes, theirs.nodes, f"the model needs {unfed[0]!r}")
    ports.notes.extend(
        f"the model has no input {name!r}" for name in ours.names if name not in inputs
    )
    outputs = ports.pair_outputs(dict(tensors_of(reference)), dict(tensors_of(candidate)))
    return PortMatch(inputs, outputs, tuple(ports.notes))


def _rank(node: fx.Node) -> int:
    tensor = tensor_of(node)
    return -1 if tensor is None else tensor.dim()
