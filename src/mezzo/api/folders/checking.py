"""Checks of a folder before and after conversion: paths, low models, types of tied ports."""

import os
from pathlib import Path

from mezzo.api.folders.ties import Ports, TypedTie, dtypes_of, find_ties
from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option, verb
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.frontend import Model
from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import op_facts
from mezzo.tables.facts import Risk


def check_places(source: Path, destination: Path) -> None:
    """Raises InputError: the source is no folder, or the destination can be none."""
    if not source.is_dir():
        raise InputError(
            f"{os.fspath(source)!r} is no folder; name a folder of models, or use {verb('convert')}"
            " for one"
        )
    if destination.exists() and not destination.is_dir():
        raise InputError(
            f"{os.fspath(destination)!r} is a file, and a folder comes out; name a folder"
        )
    if not destination.exists():
        if not destination.absolute().parent.is_dir():
            raise InputError(
                f"{os.fspath(destination)!r} cannot be made: there is no folder above it; make"
                " that first"
            )
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
    typed = []
    for tie in find_ties(before):
        dtypes = dtypes_of(tie.members, after)
        if len(dtypes) > 1 and len(dtypes_of(tie.members, before)) == 1:
            members = ", ".join(f"{name!r} of {file!r}" for file, name in tie.members[:4])
            types = " and ".join(sorted(map(str, dtypes)))
            raise ContractError(
                f"{members} would have {types}, and one feeds the other; leave out {option('io')}"
            )
        is_float = dtypes <= {DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16}
        if len(dtypes) == 1 and is_float and tie.outputs and tie.inputs:
            typed.append(TypedTie(tie, *dtypes))
    return tuple(typed)
