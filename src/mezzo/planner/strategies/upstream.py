"""Upstream colouring: low precision is pulled from the operators that want it towards the inputs.

Allow runs low. Infer and clear take the precision of what they make: low if all their readers want it low, up through
chains, branches and loops. Deny stays.
Source: SambaNova, "Using Mixed Precision on RDUs" (GraphAMP, SambaFlow 1.18). What it leaves open is settled so: one
reader in FP32 is enough to keep its maker in FP32; what nobody reads stays; a loop needs a reader outside itself that
wants it low, or it stays too.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from mezzo.contracts.coloring import ColouringStrategy, readers
from mezzo.contracts.problem import Choice, Split
from mezzo.ir.nodes import Role
from mezzo.tables.policy import Category

# Groups of linked nodes, each by its smallest node: `Split.linked`.
_Makers = dict[int, list[int]]


class Upstream(ColouringStrategy):
    name: ClassVar[str] = "upstream"
    summary: ClassVar[str] = "from outputs to inputs: allow converts, infer goes low if all readers do (GraphAMP)"
    because: ClassVar[str] = "its readers decide"

    def colour(self, split: Split) -> Sequence[bool]:
        given = _given(split)
        wanted_low, wanted_high, makers = _wishes(split, given)
        infers = {group for group, low in given.items() if low is None}
        pulled = _upstream_of(wanted_low, makers)
        kept = _upstream_of(wanted_high | (infers - pulled), makers)
        low = {group for group, given_low in given.items() if given_low or (given_low is None and group not in kept)}
        return [
            choice is Choice.LOW or (choice is Choice.FREE and split.linked[number] in low)
            for number, choice in enumerate(split.choices)
        ]


def _given(split: Split) -> dict[int, bool | None]:
    """Whether a group runs low, None where its readers decide. One node that has to stay keeps all, else one that is
    low or allowed converts all.
    """
    decided: dict[int, bool | None] = {}
    for number, choice in enumerate(split.choices):
        group, category = split.linked[number], split.categories[number]
        before = decided.get(group)
        if choice is Choice.ABSENT or before is False:
            continue
        if choice is Choice.HIGH or (choice is Choice.FREE and category is Category.DENY):
            decided[group] = False
        elif choice is Choice.LOW or category is Category.ALLOW:
            decided[group] = True
        else:
            decided[group] = before
    return decided


def _wishes(split: Split, given: Mapping[int, bool | None]) -> tuple[set[int], set[int], _Makers]:
    """For groups that infer: which of them some reader wants low, or high, and what they read from each other."""
    low: set[int] = set()
    high: set[int] = set()
    makers: _Makers = {}
    for node in split.graph.nodes:
        group = split.linked[node.id]
        if split.choices[node.id] is not Choice.FREE or given[group] is not None:
            continue
        if node.id in split.hands_on_high:
            high.add(group)
        for reader, role in readers(split, node):
            other = split.linked[reader.id]
            if role is Role.ANY or other == group:
                continue
            if role is Role.FIXED or given[other] is False:
                high.add(group)
            elif given[other]:
                low.add(group)
            else:
                makers.setdefault(other, []).append(group)
    return low, high, makers


def _upstream_of(start: Iterable[int], makers: Mapping[int, Sequence[int]]) -> set[int]:
    """The groups themselves and all that they read from, directly or not."""
    upstream = set(start)
    waiting = list(upstream)
    while waiting:
        new = set(makers.get(waiting.pop(), ())) - upstream
        upstream |= new
        waiting += new
    return upstream
