"""Programs with other elements of a constant, for corrections of INT8 error: the graph and the
caller's weights stay as they are. Decides nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import fx

from mezzo.aten.program import Program, ProgramTensor, dtype_of
from mezzo.aten.read.read import TorchReading
from mezzo.common.errors import InputError
from mezzo.contracts.corrections import Correction
from mezzo.formats.dtypes import HIGH

Change = Callable[[torch.Tensor], torch.Tensor]
_EXACT = torch.float64
_MEND = "take that out of the plan"


def exchange(program: Program, holder: fx.Node | None, change: Change, fault: str) -> Program:
    """The program with changed elements of a constant, which `change` gets as its readers do.

    Raises InputError, which begins with `fault`: the node is no FP32 weight, or shares its
    elements with another one.
    """
    constant = None if holder is None else program.constants.get(holder.name)
    if holder is None or constant is None or constant.tensor is None:
        raise InputError(f"{fault}, which is no constant of the program; {_MEND}")
    names = [node.name for node in program.way_from_weight(holder)]
    if dtype_of(holder) is not HIGH or names[-1] not in program.weights:
        raise InputError(f"{fault}, which is no FP32 weight of the program; {_MEND}")
    if program.shares_elements(holder):
        raise InputError(f"{fault}, whose elements another constant shares; {_MEND}")
    numbers = change(constant.tensor().detach() * 2.0**constant.exponent)
    elements = numbers * 2.0**-constant.exponent

    def with_elements(constants: Mapping[str, ProgramTensor]) -> Mapping[str, ProgramTensor]:
        return {
            name: replace(each, tensor=lambda: elements) if name in names else each
            for name, each in constants.items()
        }

    return replace(
        program, weights=with_elements(program.weights), scaled=with_elements(program.scaled)
    )


def correct(reading: TorchReading, corrections: Sequence[Correction]) -> Program:
    """The program that was read, with corrected constants.

    Raises InputError: a constant is no FP32 constant, a correction does not fit its shape, or the
    corrected numbers overflow FP32.
    """
    holders = {
        value.name: holder
        for value, holder in zip(reading.graph.values, reading.holders, strict=True)
    }
    program = reading.program
    for correction in corrections:
        fault = f"the plan corrects {correction.value!r}"
        change = _change_of(correction, fault)
        program = exchange(program, holders.get(correction.value), change, fault)
    return program


def _change_of(correction: Correction, fault: str) -> Change:
    def change(numbers: torch.Tensor) -> torch.Tensor:
        shape, axis = numbers.shape, correction.axis
        sizes = {len(each) for each in (correction.factors, correction.added) if each}
        if not 0 <= axis < len(shape) or sizes != {shape[axis]}:
            counts = " and ".join(map(str, sorted(sizes)))
            raise InputError(
                f"{fault} with {counts} numbers along axis {axis}, and its shape is"
                f" {'x'.join(map(str, shape))}; give one for each slice, or {_MEND}"
            )
        along = [-1 if place == axis else 1 for place in range(len(shape))]
        if correction.factors:
            numbers = (
                numbers * numbers.new_tensor(correction.factors, dtype=_EXACT).view(along)
            ).float()
        if correction.added:
            numbers = (
                numbers + numbers.new_tensor(correction.added, dtype=_EXACT).view(along)
            ).float()
        if not bool(numbers.isfinite().all()):
            raise InputError(f"{fault}, and FP32 does not hold what comes of it; {_MEND}")
        return numbers

    return change
