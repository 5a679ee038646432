"""`mezzo.torch.export`: export of modules as mixed-precision programs."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import torch
from torch.export import ExportedProgram

from mezzo.api.convert import convert
from mezzo.common.errors import ModelError, spell_raised
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.contracts.options.keywords import documents_options_with
from mezzo.torch.compiler.arguments import call_arguments, check_module
from mezzo.torch.compiler.regions import marking

_LONGEST_FAULT = 300


@documents_options_with(to="bf16")
def export(
    model: torch.nn.Module,
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    **options: Unpack[ConvertOptions],
) -> ExportedProgram:
    """Export a module for inference in mixed precision, with weights stored in low precision.

    Regions of `mezzo.torch.keep` and `precision` are respected. To get the plan too, pass the
    result of `torch.export.export` to `mezzo.convert`.

    Args:
        args, kwargs, dynamic_shapes, strict: as in torch.export.export.

    Raises:
        InputError: the model is not a module, `args` are not the arguments of a call, an option is
            unknown or has an invalid value.
        ModelError: PyTorch cannot export the module or bring the program into functional form.
    """
    options.setdefault("to", "bf16")
    positional, named = call_arguments(args, kwargs)
    module = check_module(model)
    try:
        with torch.no_grad(), marking():
            exported = torch.export.export(
                module, positional, named, dynamic_shapes=dynamic_shapes, strict=strict
            )
    except Exception as error:
        message = spell_raised(error, _LONGEST_FAULT)
        raise ModelError(
            f"torch.export cannot export {type(module).__name__}: {message}"
        ) from error
    return cast("ExportedProgram", convert(cast("Any", exported), **options).model)
