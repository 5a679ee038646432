"""Exports modules as mixed programs."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

import torch
from torch.export import ExportedProgram

from mezzo.core.keyword_types import ConvertOptions
from mezzo.torch.regions import marking
from mezzo.verbs.convert import convert


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
        InputError: there is no such option, or it has no such value.
        ModelError: PyTorch cannot bring the program into functional form.
    """
    options.setdefault("to", "bf16")
    with torch.no_grad(), marking():
        exported = torch.export.export(
            model, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=strict
        )
    return cast("ExportedProgram", convert(cast("Any", exported), **options).model)
