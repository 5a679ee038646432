"""Opens exported programs, and graphs that a compiler hands over."""

import itertools
import os
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from mezzo.core.frontend import Progress
from mezzo.errors import InputError, ModelError
from mezzo.frontends.torch.exported import ExportedModel
from mezzo.frontends.torch.model import TorchModel
from mezzo.frontends.torch.program import Held, Program

_LONGEST_FAULT = 300


def open_model(source: Any, *, progress: Progress | None) -> TorchModel:
    """Open a program.

    Raises:
        InputError: it is a file, which only PyTorch itself should load.
        ModelError: PyTorch cannot bring it into functional form.
    """
    if isinstance(source, Program):
        return TorchModel(source, progress)
    if isinstance(source, ExportedProgram):
        exported = functional(source)
        return ExportedModel(program_of(exported), exported, progress)
    raise InputError(
        f"{os.fspath(source)!r} is a saved program of PyTorch's, which unpickles what it reads; if you trust the file, "
        f"load it yourself and hand it over: mezzo.convert(torch.export.load(...))"
    )


def functional(exported: ExportedProgram) -> ExportedProgram:
    """The program without operators that write into their operands; composites stay whole.

    Raises ModelError: PyTorch cannot do so.
    """
    try:
        made: ExportedProgram = exported.run_decompositions({})
        return made
    except Exception as error:
        said = " ".join(str(error).split())[:_LONGEST_FAULT]
        raise ModelError(
            f"the program cannot be brought into functional form: {type(error).__name__}: {said}; export it anew"
        ) from error


def program_of(exported: ExportedProgram) -> Program:
    """The graph of a functional exported program, with its weights.

    Buffers that it writes are inputs and outputs: they keep their types.
    """
    signature = exported.graph_signature
    written = set(signature.buffers_to_mutate.values()) | set(signature.parameters_to_mutate.values())
    weights: dict[str, Held] = {}
    names: dict[str, str] = {}
    for spec in signature.input_specs:
        name, target = spec.arg.name, spec.target
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and target is not None:
            names[name] = target
            if target not in written:
                weights[name] = Held(target, lambda target=target: held_by(exported, target))  # type: ignore[misc]  # bound now
    counted = itertools.count()
    outputs = tuple(
        str(next(counted)) if spec.kind is OutputKind.USER_OUTPUT else f"{spec.target} written"
        for spec in signature.output_specs
    )
    return Program(
        graph=_without_assertions(exported.graph_module.graph),
        owner=exported.graph_module,
        weights=weights,
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


def _without_assertions(graph: torch.fx.Graph) -> torch.fx.Graph:
    """The graph without what pins types that were true as it was traced."""
    for node in list(graph.nodes):
        if node.op == "call_function" and str(node.target) == "aten._assert_tensor_metadata.default":
            graph.erase_node(node)
    return graph
