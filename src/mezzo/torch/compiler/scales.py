"""Quantization parameters of a compiled module's graphs, which calibration on data finds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from mezzo.aten.handed import HandedModel
from mezzo.aten.program import Program
from mezzo.contracts.reading import Reading
from mezzo.formats.quantization import Quantization
from mezzo.ir.nodes import Kind
from mezzo.planner.options import Options
from mezzo.quantize.calibration import Needs, needs_of
from mezzo.tables.policy import NamedFinding
from mezzo.torch.onednn.int8_kernels import convolves_int8, multiplies_int8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Quantization parameters of a graph, by value name, and the nodes that need finer ones."""

    parameters: Mapping[str, Quantization]
    coarse: tuple[NamedFinding, ...]


_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "convolution"})
_NO_KERNEL = "no-kernel"
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
    coarse = (*found.coarse, *_without_kernels(needs))
    planning = replace(planning, quantized=parameters, coarse=coarse)
    return replace(options, planning=planning)


def _without_kernels(needs: Needs) -> Iterator[NamedFinding]:
    """The products whose INT8 kernels fail their self-test on this machine."""
    nodes = needs.reading.graph.nodes
    for unit in needs.units:
        if not unit.kernel.operands:
            continue  # an operator of a generated kernel
        product = nodes[unit.nodes[0]]
        is_convolution = product.op in _CONVOLUTIONS
        if not (convolves_int8() if is_convolution else multiplies_int8()):
            text = f"oneDNN's INT8 {'convolution' if is_convolution else 'matmul'} fails its self-test here"
            yield NamedFinding(node=product.name, rule=_NO_KERNEL, because=text)
