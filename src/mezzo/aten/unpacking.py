"""Conversion of a `torch.export.ExportedProgram` to the planner's `Program`."""

import itertools
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from mezzo.aten.parts import without_assertions
from mezzo.aten.program import Program, ProgramTensor


def program_of(exported: ExportedProgram) -> Program:
    """The graph of a functional exported program, with its weights.

    Buffers that the program mutates are inputs and outputs, and keep their types.
    """
    signature = exported.graph_signature
    written = set(signature.buffers_to_mutate.values()) | set(
        signature.parameters_to_mutate.values()
    )
    weights: dict[str, ProgramTensor] = {}
    states: dict[str, ProgramTensor] = {}
    names: dict[str, str] = {}
    for spec in signature.input_specs:
        name, target = spec.arg.name, spec.target
        if (
            spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
            and target is not None
        ):
            names[name] = target
            source = ProgramTensor(target, lambda target=target: held_by(exported, target))  # type: ignore[misc]  # bound now
            (states if target in written else weights)[name] = source
    counted = itertools.count()
    outputs = tuple(
        str(next(counted)) if spec.kind is OutputKind.USER_OUTPUT else f"{spec.target} written"
        for spec in signature.output_specs
    )
    return Program(
        graph=without_assertions(exported.graph_module.graph),
        owner=exported.graph_module,
        weights=weights,
        states=states,
        names=names,
        outputs=outputs,
        name="the exported program",
    )


def held_by(exported: ExportedProgram, target: str) -> torch.Tensor:
    """A program's parameter, buffer or constant, by name."""
    tensor: Any = exported.state_dict.get(target)
    if tensor is None:
        tensor = exported.constants[target]
    assert isinstance(tensor, torch.Tensor), "weights are tensors"
    return tensor
