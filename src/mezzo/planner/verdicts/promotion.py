"""Promotion of regions in which no node needs FP32: they run low as a whole."""

from collections.abc import Sequence

import numpy as np

from mezzo.contracts.problem import Choice
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.columns import FIXED, GROUP, Bools, Ints
from mezzo.ir.components import parts
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.tables.facts import Cost, OpFacts
from mezzo.tables.policy import GRANTED, Category, NodeVerdict

UNTROUBLED = NodeVerdict(
    category=Category.ALLOW,
    rule="untroubled",
    because="nothing in this region needs f32, and low was asked for",
    cause=None,
    worth=GRANTED,
)


def untroubled(
    graph: Graph,
    rows: Sequence[OpFacts | None],
    verdicts: Sequence[NodeVerdict],
    choices: Sequence[Choice],
    low: DType,
) -> list[int]:
    """Operators to run low because no FP32 operator borders their region.

    In a region with arithmetic, pure data movement is left to the strategy, which casts where
    values are smallest.
    """
    columns = graph.columns
    is_op = columns.is_kind(Kind.OP)
    codes = {choice: code for code, choice in enumerate(Choice)}
    chosen = np.array([codes[choice] for choice in choices], np.int64)
    is_free, is_low, is_high = (
        chosen == codes[choice] for choice in (Choice.FREE, Choice.LOW, Choice.HIGH)
    )
    # Operators that are low already count in their region, so that converting twice equals
    # converting once.
    is_movable = is_free | (is_low & ~columns.is_kind(Kind.INPUT, Kind.OUTPUT))
    region, is_troubled = _regions(graph, is_movable, is_high, low)
    is_moving = np.array([row is not None and row.cost is Cost.MOVEMENT for row in rows], bool)
    is_clear = np.array([verdict.category is Category.CLEAR for verdict in verdicts], bool)
    is_denied = np.array([verdict.category is Category.DENY for verdict in verdicts], bool)
    is_granted = np.array([verdict.worth >= GRANTED for verdict in verdicts], bool)
    # Regions with arithmetic: pure data movement in them only follows.
    has_arithmetic = np.zeros(len(region), bool)
    has_arithmetic[region[is_op & is_movable & ~(is_clear | is_denied | is_moving)]] = True
    follows = (is_clear | is_moving) & has_arithmetic[region]
    promoted: list[int] = np.flatnonzero(
        is_free & is_op & ~is_troubled[region] & ~is_granted & ~follows
    ).tolist()
    return promoted


def _regions(graph: Graph, is_movable: Bools, is_high: Bools, low: DType) -> tuple[Ints, Bools]:
    """Region of each node, connected by values; by region, whether FP32 borders it."""
    columns = graph.columns
    sources = columns.is_kind(Kind.SOURCE)[columns.value_producer]
    planned = (columns.holds(HIGH) | columns.holds(low)) & ~sources
    stays = is_high & columns.is_kind(Kind.OP, Kind.TIE)
    # Both ends of every value: its producer, and each use in its group.
    makes = np.flatnonzero(planned & (columns.value_role == GROUP))
    reads = planned[columns.use_value] & (columns.use_role == GROUP)
    values = np.concatenate([makes, columns.use_value[reads]])
    ends = np.concatenate([columns.value_producer[makes], columns.use_node[reads]])
    touched = planned & (columns.value_role != GROUP)
    touched[columns.use_value[planned[columns.use_value] & (columns.use_role == FIXED)]] = True
    touched[values[stays[ends]]] = True
    values, ends = values[is_movable[ends]], ends[is_movable[ends]]
    size = len(graph.nodes)
    # Regions are the connected components of the bipartite graph of nodes and values.
    region = parts(size + len(graph.values), ends, values + size)
    is_troubled = np.zeros(size + len(graph.values), bool)
    is_troubled[region[ends[touched[values]]]] = True
    return region[:size], is_troubled
