"""Weights in blocks or in a low float: how each is stored and why, and a table of all weights by
storage.
"""

from collections.abc import Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan, PlannedWeight
from mezzo.formats.block_storage import BlockStorage
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_error
from mezzo.report.layout.parts import indented, make_table, section

_NAMES_SHOWN = 3
_FLOATS = "floats"


def report_weights(weights: Sequence[PlannedWeight]) -> list[RenderableType]:
    """How each weight is stored, its bytes before and after, and why; empty without weights."""
    if not weights:
        return []
    lines: list[RenderableType] = []
    for weight in weights:
        word = weight.stored_as
        stored = Text("stays in floats" if word == _FLOATS else word, style="bold")
        lines.append(Text.assemble(f"  {clean(weight.name)}: ", stored, f", {_sizes(weight)}"))
        if weight.storage is not None:
            lines.append(indented(spell_storage(weight.storage), depth=5))
        lines.append(indented(f"{clean(weight.because)} (rule {clean(weight.rule)})", depth=5))
    return section("how its weights are stored", *lines)


def _sizes(weight: PlannedWeight) -> str:
    before, after = format_size(weight.size_bytes), format_size(weight.stored_bytes)
    return before if weight.size_bytes == weight.stored_bytes else f"{before} before, {after} after"


def spell_storage(storage: BlockStorage) -> str:
    """A sentence on the blocks of a weight, their scales and the rounding."""
    zeros = "symmetric" if storage.is_symmetric else "with a zero point"
    activations = (
        ", and the kernel rounds what it is multiplied with to int8"
        if storage.rounded_activations
        else ""
    )
    return (
        f"{storage.block} elements along axis {storage.axis} share a scale in"
        f" {storage.scale_dtype}, {zeros}; rounded by {storage.rounding!r}{activations}"
    )


def report_storage(
    layout: Layout, plan: Plan, errors: Mapping[str, float] | None = None
) -> list[RenderableType]:
    """A table of a plan's weights by storage; empty if none was to be in blocks or in
    a low float.

    `errors`: by weight, the output error when it alone is in its coarsest storage.
    """
    groups: dict[tuple[str, str], list[PlannedWeight]] = {}
    for weight in plan.weights:
        word = weight.stored_as
        groups.setdefault((word, "" if weight.is_narrowed else weight.rule), []).append(weight)
    if not groups:
        return []
    numbers = ("weights", "before", "after", *(("largest error",) if errors else ()))
    table = make_table(
        layout,
        "stored as",
        *numbers,
        "why, and which",
        right=numbers,
        fixed=("stored as", *numbers),
    )
    for (word, _), members in sorted(groups.items(), key=lambda group: -_bytes(group[1])):
        sizes = (_bytes(members), sum(weight.stored_bytes for weight in members))
        row = [word, str(len(members)), *map(format_size, sizes)]
        if errors:
            known = [errors[weight.name] for weight in members if weight.name in errors]
            row.append(spell_error(max(known)) if known else "")
        table.add_row(*row, clean(members[0].because))
        names = join_some([weight.name for weight in members], _NAMES_SHOWN)
        table.add_row(*([""] * len(row)), Text(names, style="dim"))
    return section("weights", table)


def _bytes(weights: Sequence[PlannedWeight]) -> int:
    return sum(weight.size_bytes for weight in weights)
