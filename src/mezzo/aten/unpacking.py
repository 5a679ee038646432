"""What an exported program is to the planner: its graph, with what stands behind its placeholders."""

import itertools
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from mezzo.aten.parts import without_assertions
from mezzo.aten.program import Held, Program


def program_of(exported: ExportedProgram) -> Program:
    """The graph of a functional exported program, with its weights.

    Buffers that it writes are inputs and outputs: they keep their types.
    """
    signature = exported.graph_signature
    written = set(signature.buffers_to_mutate.values()) | set(signature.parameters_to_mutate.values())
    weights: dict[str, Held] = {}
    states: dict[str, Held] = {}
    names: dict[str, str] = {}
    for spec in signature.input_specs:
        name, target = spec.arg.name, spec.target
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and target is not None:
            names[name] = target
            held = Held(target, lambda target=target: held_by(exported, target))  # type: ignore[misc]  # bound now
            (states if target in written else weights)[name] = held
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
    """A parameter, buffer or constant of a program by its name."""
    held: Any = exported.state_dict.get(target)
    if held is None:
        held = exported.constants[target]
    assert isinstance(held, torch.Tensor), "weights are tensors"
    return held
