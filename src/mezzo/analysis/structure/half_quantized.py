"""Operators with dequantized inputs and float outputs that a runtime still fuses into integer
kernels.

A runtime recognises an integer kernel by FP32 types: DequantizeLinear, the operator that reads it,
and the epilogue. A Cast between them prevents the fusion, so all of these nodes stay in FP32, with
Casts only at the border. Data movement after the DequantizeLinear is included.
"""

from collections.abc import Iterable, Iterator

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.ir.walks import walk
from mezzo.tables.facts import HEAVY, Cost, Function, Transfer

_FACTORS = 2  # a third operand is a bias or attention's V, which may be float
_LONGEST = 16  # operators of a decomposed activation; GELU with tanh has eight


def quantized_unit(view: StructureView) -> Iterable[Detection]:
    """Matmuls and convolutions of dequantized operands, and integer matmuls, with their inputs'
    data movement and their epilogues.
    """
    reached: set[int] = set()
    dequantized = view.once(_dequantized)
    for node in view.nodes_where(lambda row: row.cost in HEAVY) if dequantized else ():
        factors = _factors(view, node)
        if len(factors) == _FACTORS and all(maker.id in dequantized for maker in factors):
            text = "multiplies dequantized values, in an integer kernel if all of it is f32"
            yield Detection(node, text)
            yield from _movers(view, node, dequantized, reached)
            yield from _epilogue(view, node, node, reached)
    for node in view.nodes_where(lambda row: row.transfer is Transfer.QUANTIZED_SUM):
        for cast in _casts_to_floats(view, node):
            yield from _epilogue(view, cast, node, reached)


def quantized_weight(view: StructureView) -> Iterable[Detection]:
    """Matmuls of float activations with a dequantized weight: a kernel reads the integers if no
    Cast is in between.
    """
    reached: set[int] = set()
    dequantized = view.once(_dequantized)
    for node in view.nodes(Function.MATMUL) if dequantized else ():
        factors = _factors(view, node)
        weights = [
            maker for maker in factors if maker.id in dequantized and _is_stored(view, maker)
        ]
        if (
            len(factors) == _FACTORS
            and len(weights) == 1
            and not all(maker.id in dequantized for maker in factors)
        ):
            text = (
                f"reads weights that its kernel dequantizes, if no cast follows {weights[0].name!r}"
            )
            yield Detection(node, text, weights[0])
            yield from _movers(view, node, dequantized, reached)


def _dequantized(view: StructureView) -> frozenset[int]:
    """DequantizeLinear nodes, and data movement of their outputs."""
    passing: set[int] = set()
    if not view.nodes_where(lambda row: row.transfer is Transfer.DEQUANTIZE):
        return frozenset()
    for node in view.nodes_where(
        lambda row: row.transfer is Transfer.DEQUANTIZE or row.keeps_values
    ):
        is_passing = view.transfer(node) is Transfer.DEQUANTIZE
        makers = [] if is_passing else view.producers(node)
        if is_passing or (makers and all(maker.id in passing for maker in makers)):
            passing.add(node.id)
    return frozenset(passing)


def _factors(view: StructureView, node: Node) -> list[Node]:
    """Producers of the operands that an operator multiplies."""
    ports = zip(node.inputs[:_FACTORS], node.signature.inputs, strict=False)
    return [
        view.graph.producer(value)
        for value, role in ports
        if value is not None and role is Role.GROUP
    ]


def _movers(
    view: StructureView, node: Node, dequantized: frozenset[int], reached: set[int]
) -> Iterator[Detection]:
    """Findings for data movement between DequantizeLinear and an operator."""

    def movers(reader: Node) -> Iterator[Node]:
        makers = _factors(view, node) if reader is node else view.producers(reader)
        for maker in makers:
            if maker.id in dequantized and view.transfer(maker) is not Transfer.DEQUANTIZE:
                yield maker

    for maker, _ in walk([node], movers, reached):
        yield Detection(maker, f"moves dequantized values into the kernel of {node.name!r}", node)


def _is_stored(view: StructureView, maker: Node) -> bool:
    """Whether a value is a weight: a constant, possibly quantized, dequantized and moved."""
    queue, visited = [maker], {maker.id}
    while queue:
        maker = queue.pop()
        if maker.kind is Kind.SOURCE and not maker.inputs:
            continue
        if not view.keeps_values(maker) and view.cost(maker) is not Cost.QUANTIZE:
            return False
        makers = view.graph.producers(maker.present_inputs)
        queue += [operand for operand in makers if operand.id not in visited]
        visited.update(operand.id for operand in makers)
    return True


def _casts_to_floats(view: StructureView, node: Node) -> Iterator[Node]:
    for value in node.present_outputs:
        for reader in view.graph.readers(value):
            if reader.kind is Kind.SOURCE:
                yield reader


def _epilogue(
    view: StructureView, start: Node, unit: Node, reached: set[int]
) -> Iterator[Detection]:
    """Findings for a kernel's epilogue: scales, a bias, an activation in any decomposition.

    The epilogue reads only the result and constants, and extends up to a point where a single value
    leaves it.
    """
    step = [start]
    while step:
        step = _step(view, step[-1])
        for node in (node for node in step if node.id not in reached):
            reached.add(node.id)
            yield Detection(node, f"is part of the integer kernel of {unit.name!r}", unit)


def _step(view: StructureView, last: Node) -> list[Node]:
    """The operators of the next epilogue step, of which only the last has readers outside; empty if
    there is no further step.
    """
    nodes = view.graph.nodes
    inside, ahead, operators = {last.id}, _readers(view, last), list[Node]()
    while ahead and len(inside) <= _LONGEST:
        node = nodes[min(ahead)]
        makers = view.graph.producers(node.present_inputs)
        others = [maker for maker in makers if maker.id not in inside]
        scales = [maker for maker in others if not _is_stored(view, maker)]
        is_epilogue = _is_numberwise(view, node) and all(_is_scale(view, maker) for maker in scales)
        if node.scope != last.scope or not is_epilogue:
            return []
        inside.add(node.id)
        operators += [*(maker for maker in scales if _is_numberwise(view, maker)), node]
        ahead.remove(node.id)
        if not ahead:
            return operators
        ahead |= _readers(view, node)
    return []


def _readers(view: StructureView, node: Node) -> set[int]:
    return {use.node for value in node.present_outputs for use in view.graph.uses[value]}


def _is_numberwise(view: StructureView, node: Node) -> bool:
    """Whether an operator is elementwise, so that it can be in an epilogue."""
    is_numberwise = (
        view.cost(node) is Cost.POINTWISE or view.transfer(node) is Transfer.GIVEN_STATISTICS
    )
    return is_numberwise and view.is_decided(node)


def _is_scale(view: StructureView, maker: Node) -> bool:
    """Whether a value is a scale computed by dynamic quantization, or its product with
    constants.
    """
    if not _is_numberwise(view, maker):
        return view.transfer(maker) is Transfer.QUANTIZE
    makers = view.graph.producers(maker.present_inputs)
    others = [operand for operand in makers if view.transfer(operand) is not Transfer.QUANTIZE]
    return len(others) < len(makers) and all(_is_stored(view, operand) for operand in others)


RULES = (
    StructureRule("quantized-unit", "an integer kernel that hands on floats", quantized_unit),
    StructureRule(
        "quantized-weight", "a product with weights that its kernel dequantizes", quantized_weight
    ),
)
