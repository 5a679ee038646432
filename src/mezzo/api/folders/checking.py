"""Checks of a folder before and after conversion: paths, low models, types of tied ports."""

import os
from pathlib import Path

from mezzo.api.folders.deciding import split_ties
from mezzo.api.folders.ties import Ports, TypedTie, dtypes_in, find_ties
from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option, verb
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.frontend import Model
from mezzo.plugins.discovery import op_facts
from mezzo.tables.facts import Risk


def check_places(source: Path, destination: Path) -> None:
    if not source.is_dir():
        raise InputError(
            f"{os.fspath(source)!r} is no folder; name a folder of models, or use {verb('convert')}"
            " for one"
        )
    if destination.exists() and not destination.is_dir():
        raise InputError(
            f"{os.fspath(destination)!r} is a file, and a folder comes out; name a folder"
        )
    if not destination.exists() and not destination.absolute().parent.is_dir():
        raise InputError(
            f"{os.fspath(destination)!r} cannot be made: there is no folder above it; make that"
            " first"
        )
    if not destination.exists():
        check_destination(destination)
    inner, outer = os.path.realpath(destination), os.path.realpath(source)
    if inner != outer and os.path.commonpath([inner, outer]) == outer:
        raise InputError(
            f"{os.fspath(destination)!r} lies in the folder that is converted; name one beside it,"
            " or the same one"
        )


def why_low(model: Model) -> str | None:
    """Why a model is already low or quantized; None if it is to be converted."""
    own = model.frontend.dialect
    for dialect, op in sorted(model.operators(), key=lambda entry: (entry[0] != own, entry)):
        row = op_facts(dialect).get(op)
        if row is not None and Risk.QUANTIZED in row.risks:
            return f"is quantized: it has a node of {op}"
    low = model.low_weights()
    return None if low is None else f"is low already: most of its weights are {low}"


def check_ties(before: Ports, after: Ports) -> tuple[TypedTie, ...]:
    """Ties of the results with types. Raises ContractError: one has several types and had one."""
    ties = find_ties(before)
    for tie, dtypes in split_ties(ties, before, after):
        members = ", ".join(f"{name!r} of {file!r}" for file, name in tie.members[:4])
        types = " and ".join(sorted(map(str, dtypes)))
        raise ContractError(
            f"{members} would have {types}, and one feeds the other; leave out {option('io')}"
        )
    floats = [(tie, dtypes_in(tie, after)) for tie in ties]
    return tuple(
        TypedTie(tie, dtype)
        for tie, dtypes in floats
        for dtype in dtypes
        if len(dtypes) == 1 and dtype.value in ("f32", "f16", "bf16") and tie.outputs and tie.inputs
    )
