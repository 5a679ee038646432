"""Exports modules as mixed programs."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import torch
from torch.export import ExportedProgram

from mezzo.api.convert import convert
from mezzo.common.errors import ModelError, spell_raised
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.torch.compiler.arguments import call_arguments, check_module
from mezzo.torch.compiler.regions import marking

_LONGEST_FAULT = 300


def export(
    model: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    **options: Unpack[ConvertOptions],
) -> ExportedProgram:
    """Export a module for inference, with its linear operators in low precision and their weights stored so.

    Regions of `mezzo.torch.keep` and `precision` hold. For the plan beside it, hand what `torch.export.export` gives to
    `mezzo.convert`.

    Args:
        args, kwargs, dynamic_shapes, strict: as torch.export.export has them.
        options: those of `mezzo.convert`; `to` is "bf16" unless given.

    Raises:
        InputError: the model is no module, or `args` are not those of a call; there is no such option, or it has no
            such value.
        ModelError: PyTorch cannot export the module, or not bring the program into functional form.
    """
    options.setdefault("to", "bf16")
    positional, named = call_arguments(args, kwargs)
    module = check_module(model)
    try:
        with torch.no_grad(), marking():
            exported = torch.export.export(module, positional, named, dynamic_shapes=dynamic_shapes, strict=strict)
    except Exception as error:
        said = spell_raised(error, _LONGEST_FAULT)
        raise ModelError(f"torch.export cannot export {type(module).__name__}: {said}") from error
    return cast("ExportedProgram", convert(cast("Any", exported), **options).model)
