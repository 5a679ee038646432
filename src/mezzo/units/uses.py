"""What units mean to types: which uses lie inside a kernel, and what each kernel asks of its ports.

Pure functions over a graph and its partition, for whoever prices conversions.
"""

import numpy as np

from mezzo.core.columns import Bools, Ints
from mezzo.core.graph import Graph
from mezzo.units.unit import Constraint, Inside, Partition

NO_UNIT = 0


def number_nodes(graph: Graph, of: Partition) -> Ints:
    """The number of each node's unit, by node id; NO_UNIT where it is in none."""
    numbers = np.full(len(graph.nodes), NO_UNIT)
    for unit in of.units:
        numbers[list(unit.nodes)] = unit.number
    return numbers


def uses_inside(graph: Graph, of: Partition) -> Bools:
    """Which uses, in the order of the graph's columns, read a value that their own unit makes: a conversion there
    takes the kernel apart, unless its constraint says otherwise.
    """
    columns, numbers = graph.columns, number_nodes(graph, of)
    made_in = numbers[columns.value_producer[columns.use_value]]
    inside: Bools = (made_in == numbers[columns.use_node]) & (made_in != NO_UNIT)
    return inside


def values_inside(graph: Graph, of: Partition) -> Bools:
    """Which values, by id, no one outside the unit that makes them reads: they never reach memory."""
    columns = graph.columns
    numbers = number_nodes(graph, of)
    read_outside = np.zeros(len(graph.values), bool)
    read_outside[columns.use_value[~uses_inside(graph, of)]] = True
    is_read = np.zeros(len(graph.values), bool)
    is_read[columns.use_value] = True
    hidden: Bools = (numbers[columns.value_producer] != NO_UNIT) & is_read & ~read_outside
    return hidden


def constraints(of: Partition) -> dict[int, Constraint]:
    """What each unit asks of types, by its number."""
    return {unit.number: unit.constraint for unit in of.units}


def splits(graph: Graph, of: Partition) -> Bools:
    """Which uses, in the order of the graph's columns, cannot be converted without taking a kernel apart."""
    columns, numbers = graph.columns, number_nodes(graph, of)
    is_tight = np.zeros(len(of.units) + 1, bool)
    for unit in of.units:
        is_tight[unit.number] = unit.constraint.inside is Inside.ONE_TYPE
    split: Bools = uses_inside(graph, of) & is_tight[numbers[columns.use_node]]
    return split
