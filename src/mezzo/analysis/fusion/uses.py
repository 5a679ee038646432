"""How fusion constrains precision: operands inside a kernel, where casts are free or split a
kernel, and nodes that need one dtype.

Pure functions over a graph and its partition. Levels are the precisions of a plan in order, one of
them the base, FP32; a threshold is the border between two neighbouring levels.
"""

from collections.abc import Callable

import numpy as np

from mezzo.analysis.fusion.unit import Partition
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import PrecisionLine
from mezzo.ir.columns import Bools, Ints
from mezzo.ir.graph import Graph
from mezzo.tables.fusions import Constraint, Inside
from mezzo.tables.kernels import Kernels

NO_UNIT = 0


def number_nodes(graph: Graph, of: Partition) -> Ints:
    """The unit number of each node, by node id; NO_UNIT for nodes outside units."""
    numbers = np.full(len(graph.nodes), NO_UNIT)
    for unit in of.units:
        numbers[list(unit.nodes)] = unit.number
    return numbers


def uses_inside(graph: Graph, of: Partition) -> Bools:
    """Mask over the uses of `graph.columns`: is the operand produced in its reader's unit? A cast
    there prevents the fusion unless the unit's constraint allows it.
    """
    columns, numbers = graph.columns, number_nodes(graph, of)
    made_in = numbers[columns.value_producer[columns.use_value]]
    inside: Bools = (made_in == numbers[columns.use_node]) & (made_in != NO_UNIT)
    return inside


def values_inside(graph: Graph, of: Partition) -> Bools:
    """Mask of the values, by id, that are read only inside their unit, so that they are never
    written to memory.
    """
    columns = graph.columns
    numbers = number_nodes(graph, of)
    read_outside = np.zeros(len(graph.values), bool)
    read_outside[columns.use_value[~uses_inside(graph, of)]] = True
    is_read = np.zeros(len(graph.values), bool)
    is_read[columns.use_value] = True
    hidden: Bools = (numbers[columns.value_producer] != NO_UNIT) & is_read & ~read_outside
    return hidden


def kernels_of_units(graph: Graph, of: Partition, line: PrecisionLine) -> Kernels:
    """The kernels of the units as masks, per level or threshold. Units matter only for formats
    that their constraints name, and only at thresholds next to the base.
    """
    columns, inside, hidden = graph.columns, uses_inside(graph, of), values_inside(graph, of)
    numbers = number_nodes(graph, of)
    reader, maker = numbers[columns.use_node], numbers[columns.value_producer]
    reads, writes, apart = [], [], []
    is_near = _in_one_scope(graph)
    for threshold in line.thresholds:
        dtype = _format_at(line, threshold)
        mixes, fuses = _asking(of, dtype, _mixes)[reader], _asking(of, dtype, _fuses)[reader]
        reads.append((is_near & _asking(of, dtype, _reads_free)[reader]) | (inside & mixes))
        writes.append(_asking(of, dtype, _writes_free)[maker])
        apart.append(inside & fuses & ~mixes)
    dtypes = [None if level == line.base else dtype for level, dtype in enumerate(line.dtypes)]
    return Kernels(
        reads_free=np.array(reads),
        writes_free=np.array(writes),
        takes_apart=np.array(apart),
        computes_base=np.array(
            [_asking(of, dtype, _computes_float32)[numbers] for dtype in dtypes]
        ),
        hidden=np.array([hidden & _asking(of, dtype, _fuses)[maker] for dtype in dtypes]),
        ignores_traffic=np.array(
            [_asking(of, dtype, _ignores_traffic)[numbers] for dtype in dtypes]
        ),
        is_wrapped=np.array([_asking(of, dtype, _is_wrapped)[numbers] for dtype in dtypes]),
    )


def links_of_units(
    of: Partition, line: PrecisionLine, may_stay: Bools
) -> tuple[tuple[int, int, int], ...]:
    """Pairs (threshold, node, node) that must be on the same side of the threshold, because their
    fused kernel exists in one dtype only.

    `may_stay`: by node, whether it may run at the base, or computes no floats. A unit with a node
    that may not gets no links: it is not fused, or low already.
    """
    links = []
    for threshold in line.thresholds:
        dtype = _format_at(line, threshold)
        for unit in of.units:
            asks = unit.constraint
            if asks.is_linked and dtype in asks.formats and may_stay[list(unit.nodes)].all():
                links += [(threshold, unit.nodes[0], node) for node in unit.nodes[1:]]
    return tuple(links)


def _format_at(line: PrecisionLine, threshold: int) -> DType | None:
    """The format opposite the base at a threshold; None if the base is on neither side."""
    if line.base not in (threshold, threshold + 1):
        return None
    return line.dtypes[threshold if line.base == threshold + 1 else threshold + 1]


def _in_one_scope(graph: Graph) -> Bools:
    """Mask of the uses in their value's scope. The value's Cast is placed there, so only kernels
    there can absorb it.
    """
    columns = graph.columns
    of_value = np.array([value.scope for value in graph.values], np.int64)
    of_node = np.array([node.scope for node in graph.nodes], np.int64)
    is_near: Bools = of_value[columns.use_value] == of_node[columns.use_node]
    return is_near


def _asking(of: Partition, dtype: DType | None, asks: Callable[[Constraint, DType], bool]) -> Bools:
    """Mask by unit number: does the unit's constraint satisfy `asks` for `dtype`? False for
    NO_UNIT, and everywhere without a dtype.
    """
    mask = np.zeros(len(of.units) + 1, bool)
    if dtype is not None:
        for unit in of.units:
            mask[unit.number] = asks(unit.constraint, dtype)
    return mask


def _fuses(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.formats


def _mixes(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.formats and asks.inside is Inside.FLOAT32 and not asks.is_linked


def _computes_float32(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.formats and asks.inside is not Inside.ONE_TYPE


def _ignores_traffic(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.formats and asks.inside in (Inside.REGISTERS, Inside.WRAPPED)


def _is_wrapped(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.formats and asks.inside is Inside.WRAPPED


def _reads_free(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.reads_free


def _writes_free(asks: Constraint, dtype: DType) -> bool:
    return dtype in asks.writes_free
