"""Kernel fusion: which nodes a target runs as one kernel (a unit). Patterns, one file per family
under `patterns`, are found by discovery.

A pattern is a selector (select, select_input, select_output, filter). A target's table lists the
patterns that its kernels cover (`mezzo.tables.fusions`); `partition` splits a graph by them.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from mezzo.analysis.fusion.unit import FusedKernel, Pattern
from mezzo.common.errors import InputError
from mezzo.tables.target import Target


@cache
def every_pattern() -> Mapping[str, Pattern]:
    """All patterns of the modules in `mezzo.analysis.fusion.patterns`, by name."""
    folder = importlib.import_module(f"{__name__}.patterns")
    rows: dict[str, Pattern] = {}
    for entry in pkgutil.iter_modules(folder.__path__, prefix=f"{folder.__name__}."):
        for pattern in importlib.import_module(entry.name).PATTERNS:
            assert pattern.name not in rows, f"pattern {pattern.name!r} has two rows"
            rows[pattern.name] = pattern
    return MappingProxyType(dict(sorted(rows.items())))


def kernels_of(target: Target) -> tuple[FusedKernel, ...]:
    """The fused kernels of a target, in matching order. Raises InputError: a fusion of the target
    names no pattern of the catalogue.
    """
    kernels = []
    for fusion in target.fusions:
        pattern = every_pattern().get(fusion.pattern)
        if pattern is None or fusion.form not in pattern.forms:
            raise InputError(_no_such_pattern(target.name, fusion.pattern, fusion.form))
        kernels.append(
            FusedKernel(
                fusion=fusion,
                make=pattern.forms[fusion.form](fusion),
                starts_at_end=pattern.starts_at_end,
                joins=pattern.joins if fusion.absorbs_casts else None,
            )
        )
    return tuple(kernels)


def _no_such_pattern(target: str, pattern: str, form: str) -> str:
    if pattern not in every_pattern():
        names = ", ".join(every_pattern())
        return f"target {target!r} fuses {pattern!r}, which is no pattern; choose one of {names}"
    forms = ", ".join(map(repr, every_pattern()[pattern].forms))
    return f"target {target!r} fuses {pattern!r} in form {form!r}; choose one of {forms}"
