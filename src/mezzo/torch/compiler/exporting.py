"""`mezzo.torch.export`: export of modules as mixed-precision programs."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from mezzo.api.convert import convert
from mezzo.common.errors import InputError, ModelError, spell_raised
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
    data: Any = None,
    **options: Unpack[ConvertOptions],
) -> ExportedProgram:
    """Export a module for inference in mixed precision, with weights stored in low precision.

    Regions of `mezzo.torch.keep` and `precision` are respected. To get the plan too, pass the
    result of `torch.export.export` to `mezzo.convert`.

    Args:
        args, kwargs, dynamic_shapes, strict: as in torch.export.export.
        data: as in mezzo.convert, or a list of batches, each the arguments of a call: a tuple, or a
            mapping by name.

    Raises:
        InputError: the model is not a module, `args` are not the arguments of a call, an option is
            unknown or has an invalid value; data has other numbers than `args` and `kwargs`.
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
    fed = _without_constants(data, exported)
    return cast("ExportedProgram", convert(cast("Any", exported), data=fed, **options).model)


def _without_constants(data: Any, exported: ExportedProgram) -> Any:
    """Batches without the arguments that are constants of the program: numbers, words, None.

    Raises InputError: a batch has others than those that the module was exported with.
    """
    specs = exported.graph_signature.input_specs
    inputs = [spec.arg for spec in specs if spec.kind is InputKind.USER_INPUT]
    fixed = {arg.name: arg.value for arg in inputs if isinstance(arg, ConstantArgument)}
    names = [arg.name for arg in inputs]

    def strip(batch: Any) -> Any:
        is_call = isinstance(batch, tuple | list) and len(batch) == len(names)
        named = dict(zip(names, batch, strict=True)) if is_call else batch
        if not isinstance(named, Mapping):
            return batch
        for name in fixed.keys() & named.keys():
            if type(named[name]) is not type(fixed[name]) or named[name] != fixed[name]:
                raise InputError(
                    f"data has {name!r} {named[name]!r}, and the program, which has it as a"
                    f" constant, {fixed[name]!r}; export a program for each"
                )
        kept = {name: value for name, value in named.items() if name not in fixed}
        return tuple(kept.values()) if is_call else kept

    return [strip(batch) for batch in data] if fixed and isinstance(data, tuple | list) else data
