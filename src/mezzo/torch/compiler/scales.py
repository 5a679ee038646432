"""Quantization parameters of a compiled module's graphs, which calibration on data finds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mezzo.aten.handed import HandedModel
from mezzo.aten.program import Program
from mezzo.contracts.reading import Reading
from mezzo.formats.quantization import Quantization
from mezzo.ir.nodes import Kind
from mezzo.planner.options import Options
from mezzo.quantize.calibration import needs_of
from mezzo.tables.policy import NamedFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Quantization parameters of a graph, by value name, and the nodes that need finer ones."""

    parameters: Mapping[str, Quantization]
    coarse: tuple[NamedFinding, ...]


# By the names of a graph's operators, which do not depend on the sizes of its inputs.
GraphScales = Mapping[tuple[str, ...], Scales]


def names_of(reading: Reading) -> tuple[str, ...]:
    """The names of a graph's operators: the key of its scales."""
    return tuple(node.name for node in reading.graph.nodes if node.kind is Kind.OP)


def with_scales(program: Program, options: Options, scales: GraphScales) -> Options:
    """The options for a graph, with its scales; without any where the data never came to it. Those
    of weights are found anew: frozen weights have other names.
    """
    model, planning = HandedModel(program), options.planning
    needs = needs_of(model, options)
    found = scales.get(names_of(needs.reading))
    if found is None:
        return replace(options, planning=replace(planning, quantized={}))
    parameters = {**found.parameters, **needs.of_weights(model)}
    planning = replace(planning, quantized=parameters, coarse=found.coarse)
    return replace(options, planning=planning)
