"""Fixpoint: everything that may run low does, but for those who write one variable and cannot all be low.

The branches of an If, and what a loop hands back, write the variable that their tie stands for. Whoever writes it is
demoted when another writer or the tie itself is not low. Demotion only ever spreads, so what is left is the greatest
fixpoint, in whatever order it is reached.
Source: Paddle Inference, `auto_mixed_precision_pass`. Mended: what enters a body from outside binds nobody, for it can
be cast on its way in; weights follow their users, and one used low and in FP32 is stored in both.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mezzo.contracts.coloring import ColouringStrategy
from mezzo.contracts.problem import Choice, Split
from mezzo.ir.columns import GROUP
from mezzo.ir.components import reached
from mezzo.ir.nodes import Kind
from mezzo.tables.policy import Category

if TYPE_CHECKING:
    from mezzo.ir.columns import Bools, Ints

    # Pairs of nodes: where the first is not low, the second is not.
    Bonds = list[tuple[Ints, Ints]]


class Fixpoint(ColouringStrategy):
    name: ClassVar[str] = "fixpoint"
    summary: ClassVar[str] = "everything low that may be; who writes one variable agrees on it (Paddle)"
    because: ClassVar[str] = "who shares a variable agrees"

    def colour(self, split: Split) -> Sequence[bool]:
        is_denied = np.array([category is Category.DENY for category in split.categories], bool)
        free = split.has_choice(Choice.FREE)
        is_kept = split.has_choice(Choice.HIGH) | (free & is_denied)
        members, linked = np.arange(len(free)), np.array(split.linked, np.int64)
        bonds = [(members, linked), (linked, members)]
        bonds += _bonds_of_ties(split, is_kept)
        is_low: list[bool] = (split.has_choice(Choice.LOW) | (free & ~_bound_to(is_kept, bonds))).tolist()
        return is_low


def _bonds_of_ties(split: Split, is_kept: "Bools") -> "Bonds":
    """Who demotes whom around ties. Marks ties as kept that are written in FP32 whatever their writers run in."""
    columns, scopes = split.graph.columns, split.graph.scopes
    depths = np.zeros(len(scopes), np.int64)
    for number, scope in enumerate(scopes):  # a scope stands behind its parent
        depths[number] = 0 if scope.parent is None else depths[scope.parent] + 1
    depth_of_node = depths[[node.scope for node in split.graph.nodes]]
    depth_of_value = depths[[value.scope for value in split.graph.values]]
    values, ties = columns.use_value, columns.use_node
    writers = columns.value_producer[values]
    leads_in = columns.is_kind(Kind.TIE)
    leads_in[columns.value_producer[depth_of_value <= depth_of_node[columns.value_producer]]] = False
    # Inside a body, or on the way into one that nothing inside writes to.
    counts = columns.is_kind(Kind.TIE)[ties] & ((depth_of_value[values] > depth_of_node[ties]) | leads_in[ties])
    from_source = counts & columns.is_kind(Kind.SOURCE)[writers]
    counts &= ~from_source
    hands_on_high = np.isin(writers, list(split.hands_on_high))
    decides = (columns.value_role[values] == GROUP) & ~hands_on_high
    is_kept[ties[counts & ~decides & (hands_on_high | ~split.holds_low[values])]] = True
    bound = counts & decides
    joined = bound & ~leads_in[ties]
    return [(writers[bound], ties[bound]), (ties[joined], writers[joined]), _readers(split, ties[from_source])]


def _readers(split: Split, ties: "Ints") -> "tuple[Ints, Ints]":
    """The bonds of ties that lead a weight into a body: it is not rounded for those who read it in FP32."""
    columns = split.graph.columns
    makers = columns.value_producer[columns.use_value]
    counts = np.isin(makers, ties) & (columns.use_role == GROUP)
    return columns.use_node[counts], makers[counts]


def _bound_to(is_kept: "Bools", bonds: "Bonds") -> "Bools":
    """The nodes that bonds lead to from those that are kept, which are among them."""
    tails, heads = (np.concatenate(ends) for ends in zip(*bonds, strict=True))
    return reached(is_kept, tails, heads)
