"""Kernel fusion: which nodes a target runs as one kernel (a unit). Patterns, one file per family
under `patterns`, are found by discovery.

A pattern is a selector (select, select_input, select_output, filter) and a row for each target with
such a kernel, with the document or the runtime graph that shows it. `partition` splits a graph by
the patterns of a target.
"""

import importlib
import pkgutil
from functools import cache

from mezzo.analysis.fusion.unit import FusedKernel, Pattern


@cache
def every_pattern() -> tuple[Pattern, ...]:
    """All patterns of the modules in `mezzo.analysis.fusion.patterns`, by name."""
    folder = importlib.import_module(f"{__name__}.patterns")
    rows: dict[str, Pattern] = {}
    for entry in pkgutil.iter_modules(folder.__path__, prefix=f"{folder.__name__}."):
        for pattern in importlib.import_module(entry.name).PATTERNS:
            assert pattern.name not in rows, f"pattern {pattern.name!r} has two rows"
            rows[pattern.name] = pattern
    return tuple(rows[name] for name in sorted(rows))


def kernels_of(target: str) -> tuple[tuple[str, FusedKernel], ...]:
    """The fused kernels of a target with the names of their patterns, in matching order."""
    rows = [
        (pattern.name, kernel)
        for pattern in every_pattern()
        for kernel in pattern.kernels
        if kernel.target == target
    ]
    return tuple(sorted(rows, key=lambda row: (row[1].order, row[0])))
