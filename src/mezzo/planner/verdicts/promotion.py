"""Regions in which nothing needs FP32: they go low as a whole, as the user asked."""

from collections.abc import Sequence

import numpy as np

from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.columns import FIXED, GROUP, Bools, Ints
from mezzo.ir.components import parts
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.tables.facts import Cost, OpFacts
from mezzo.tables.policy import GRANTED, Category, Verdict

UNTROUBLED = Verdict(
    category=Category.ALLOW,
    rule="untroubled",
    because="nothing in this region needs f32, and low was asked for",
    cause=None,
    worth=GRANTED,
)


def untroubled(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    verdicts: Sequence[Verdict],
    choices: Sequence[Choice],
    low: DType,
) -> list[int]:
    """Operators to take low because no FP32 operator touches their region.

    Beside arithmetic, what only moves values is left to the strategy, which then casts where values are smallest.
    """
    columns = graph.columns
    is_op = columns.is_kind(Kind.OP)
    codes = {choice: code for code, choice in enumerate(Choice)}
    chosen = np.array([codes[choice] for choice in choices], np.int64)
    is_free, is_low, is_high = (chosen == codes[choice] for choice in (Choice.FREE, Choice.LOW, Choice.HIGH))
    # Operators that are low already belong to their region as before their conversion: twice must be as once.
    is_movable = is_free | (is_low & ~columns.is_kind(Kind.INPUT, Kind.OUTPUT))
    region, is_troubled = _regions(graph, is_movable, is_high, low)
    is_moving = np.array([row is not None and row.cost is Cost.MOVEMENT for row in rows], bool)
    is_clear = np.array([verdict.category is Category.CLEAR for verdict in verdicts], bool)
    is_denied = np.array([verdict.category is Category.DENY for verdict in verdicts], bool)
    is_granted = np.array([verdict.worth >= GRANTED for verdict in verdicts], bool)
    # Regions that hold arithmetic: pure movement there only follows.
    pulls = np.zeros(len(region), bool)
    pulls[region[is_op & is_movable & ~(is_clear | is_denied | is_moving)]] = True
    follows = (is_clear | is_moving) & pulls[region]
    found: list[int] = np.flatnonzero(is_free & is_op & ~is_troubled[region] & ~is_granted & ~follows).tolist()
    return found


def _regions(graph: Graph, is_movable: Bools, is_high: Bools, low: DType) -> tuple[Ints, Bools]:
    """The region of each node, joined by values between movable nodes, and which regions an FP32 operator touches."""
    columns = graph.columns
    sources = columns.is_kind(Kind.SOURCE)[columns.value_producer]
    planned = (columns.holds(HIGH) | columns.holds(low)) & ~sources
    stays = is_high & columns.is_kind(Kind.OP, Kind.TIE)
    # Both ends of every value: its maker, and each reader in its group.
    makes = np.flatnonzero(planned & (columns.value_role == GROUP))
    reads = planned[columns.use_value] & (columns.use_role == GROUP)
    values = np.concatenate([makes, columns.use_value[reads]])
    ends = np.concatenate([columns.value_producer[makes], columns.use_node[reads]])
    touched = planned & (columns.value_role != GROUP)
    touched[columns.use_value[planned[columns.use_value] & (columns.use_role == FIXED)]] = True
    touched[values[stays[ends]]] = True
    values, ends = values[is_movable[ends]], ends[is_movable[ends]]
    size = len(graph.nodes)
    # Nodes and values are the two sides of one graph, whose parts are the regions.
    region = parts(size + len(graph.values), ends, values + size)
    is_troubled = np.zeros(size + len(graph.values), bool)
    is_troubled[region[ends[touched[values]]]] = True
    return region[:size], is_troubled
