"""mezzo's own operators in graphs, which Inductor does not look into."""

from collections.abc import Callable
from typing import Any

import torch

_LIBRARY = torch.library.Library("mezzo", "DEF")


def define(
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    library: torch.library.Library = _LIBRARY,
) -> Any:
    """Define an operator. `compute` runs on every device, `fake` on tensors without elements."""
    name = schema.partition("(")[0]
    library.define(schema)
    library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{library.ns}::{name}", fake, lib=library)
    return getattr(getattr(torch.ops, library.ns), name).default


# A value that is computed once, and kept in memory for all that read it.
STORED: Any = define("stored(Tensor x) -> Tensor", torch.clone, torch.empty_like)
