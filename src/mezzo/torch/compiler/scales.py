"""Quantization parameters of a compiled module's graphs, which calibration on data finds."""

from collections.abc import Iterator
from dataclasses import replace

from mezzo.aten.handed import HandedModel
from mezzo.aten.program import Program
from mezzo.contracts.reading import Reading
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.planner.options import Options
from mezzo.quantize.calibration import Needs, needs_of
from mezzo.tables.policy import NamedFinding
from mezzo.tables.target import Target
from mezzo.torch.onednn.int8_kernels import convolves_int8, multiplies_int8
from mezzo.torch.scaled_matmuls import MULTIPLE, multiplies_integers

_CONVOLUTIONS = frozenset({"conv1d", "conv2d", "convolution"})
NEVER_SEEN = "the data never came to this graph, so nothing of it runs in INT8"
_NO_KERNEL, _IMAGE_RANK = "no-kernel", 4
# The operands that are weights, by product.
_WEIGHTS = {"mm": 1, "addmm": 2, "linear": 1} | dict.fromkeys(_CONVOLUTIONS, 1)
_TRANSPOSES = frozenset({"permute", "t"})


def names_of(reading: Reading) -> tuple[str, ...]:
    """The names of a graph's operators that compute floats, as its plan has them: the key of its
    scales.
    """
    computed = (node for node in reading.graph.nodes if node.kind is Kind.OP)
    return tuple(node.name for node in computed if node.signature.dtype is not None)


def with_ranges_at_run_time(program: Program, options: Options) -> Options:
    """The options for a graph whose matmuls find ranges at run time: only weights have scales."""
    model, planning = HandedModel(program), options.planning
    needs = needs_of(model, options)
    coarse = tuple(without_kernels(needs, planning.target))
    planning = replace(planning, quantized=needs.of_weights(model), coarse=coarse)
    return replace(options, planning=planning)


def without_scales(options: Options, note: str | None = None) -> Options:
    """The options for a graph whose values have no scales: nothing of it runs in INT8, and the
    note says why.
    """
    if options.planning.line.quantized is None:
        return options
    notes = options.notes if note is None else (*options.notes, note)
    return replace(options, planning=replace(options.planning, quantized={}), notes=notes)


def scales_sums(target: Target) -> bool:
    """Whether a target's INT8 kernels are matmuls whose sums are scaled, those of GPUs."""
    return target.runtime is not None and target.runtime.device == "cuda"


def without_kernels(needs: Needs, target: Target) -> Iterator[NamedFinding]:
    """The products that have no INT8 kernel on this machine, by self-test, or of their sizes."""
    graph, are_scaled = needs.reading.graph, scales_sums(target)
    for unit in needs.units:
        weight = next((read for read in unit.reads if read.operand.is_weight), None)
        if weight is None:
            continue  # an operator of a generated kernel
        product = graph.nodes[unit.nodes[0]]
        is_convolution = product.op in _CONVOLUTIONS
        because = _unlike(graph, product, weight.value)
        if because is None and are_scaled:
            because = _unlike_scaled(graph.shapes[weight.value])
        elif because is None:
            is_right = convolves_int8 if is_convolution else multiplies_int8
            if not is_right(weight.operand.in_pairs):
                word = "convolutions" if is_convolution else "matmuls"
                because = f"oneDNN's INT8 {word} fail their self-test on this machine"
        if because is not None:
            yield NamedFinding(node=product.name, rule=_NO_KERNEL, because=because)
    because = "its weight is computed at every call, and freeze=True computes it once"
    for node in _products_of_computed_weights(graph):
        yield NamedFinding(node=node.name, rule=_NO_KERNEL, because=because)


def _products_of_computed_weights(graph: Graph) -> Iterator[Node]:
    """The FP32 products whose weight a graph computes from constants alone, other than a
    transpose.
    """
    constants: set[int | None] = set()
    computed: set[int | None] = set()
    for node in graph.nodes:
        if node.kind is Kind.SOURCE:
            constants.update(node.outputs)
        elif node.kind is Kind.OP and node.inputs and constants.issuperset(node.inputs):
            constants.update(node.outputs)
            if node.op not in _TRANSPOSES or not computed.isdisjoint(node.inputs):
                computed.update(node.outputs)
        elif (
            node.op in _WEIGHTS
            and node.signature.dtype is not None
            and node.inputs[_WEIGHTS[node.op]] in computed
        ):
            yield node


def _unlike_scaled(shape: tuple[int | None, ...]) -> str | None:
    """What of a weight scaled matmuls do not have; None if nothing."""
    if any(size is None or size % MULTIPLE for size in shape):
        return f"INT8 matmuls on GPUs are of multiples of {MULTIPLE} features and inputs"
    if not multiplies_integers():
        return "INT8 matmuls fail their self-test on this machine"
    return None


def _unlike(graph: Graph, product: Node, weight: int) -> str | None:
    """What of a product oneDNN's INT8 kernels do not have; None if nothing."""
    addend = product.operand(2) if product.op == "addmm" else None
    if len(graph.shapes[weight]) > _IMAGE_RANK:
        return "oneDNN's INT8 convolutions are of sequences and images"
    if product.attributes.get("transposed"):
        return "oneDNN's INT8 convolutions are not transposed"
    if any(product.attributes.get(factor, 1) != 1 for factor in ("alpha", "beta")):
        return "INT8 matmuls have no factors"
    if addend is not None and len(graph.shapes[addend]) != 1:
        return "INT8 matmuls add vectors"
    return None
