"""A third dialect in a few lines, with no IR behind it: it keeps the core free of what only ONNX has.

A program is lines such as `in x 8`, `const w 64`, `h = product x w`, `out h`; the number is the value's elements.
"""

from mezzo.core.facts import Cost, Function, Risk, facts
from mezzo.core.graph import ConstantFacts, Graph, Kind, Node, Role, Scope, Signature, Value
from mezzo.dtypes import HIGH, DType

DIALECT = "toy"
FACTS = {
    row.op: row
    for row in (
        facts("blur", Cost.NORMALIZATION, is_bounded=True),
        facts("explode", Cost.POINTWISE, Risk.EXPONENTIAL, function=Function.EXP),
        facts("move", Cost.MOVEMENT, keeps_values=True),
        facts("plus", Cost.POINTWISE, function=Function.ADD),
        facts("product", Cost.LINEAR, function=Function.MATMUL),
    )
}
LOWS = frozenset({DType.FLOAT16, DType.BFLOAT16})
_KINDS = {"in": Kind.INPUT, "const": Kind.SOURCE, "out": Kind.OUTPUT}


def read(text: str) -> Graph:
    """Build the graph of a program."""
    nodes: list[Node] = []
    values: dict[str, Value] = {}
    constants: dict[int, ConstantFacts] = {}
    for line in text.strip().splitlines():
        words = line.split()
        kind = _KINDS.get(words[0], Kind.OP)
        result, op, operands = (words[0], words[2], words[3:]) if kind is Kind.OP else (words[1], words[0], words[1:2])
        inputs = tuple(list(values).index(name) for name in operands) if kind in (Kind.OP, Kind.OUTPUT) else ()
        if kind is not Kind.OUTPUT:
            elements = max(values[name].elements for name in operands) if kind is Kind.OP else int(words[2])
            values[result] = Value(result, HIGH, len(nodes), 0, elements, True)
        outputs = () if kind is Kind.OUTPUT else (len(values) - 1,)
        if kind is Kind.SOURCE:
            constants[outputs[0]] = ConstantFacts(
                elements, float(words[3]) if words[3:] else 1.0, 1.0, False, False, False, None
            )
        roles = (Role.GROUP,) * len(inputs), (Role.GROUP,) * len(outputs)
        signature = Signature(DIALECT if kind is Kind.OP else "", op, 1, *roles, HIGH, LOWS | {HIGH})
        name = result if kind is Kind.OP else f"{op}put {result}" if kind is not Kind.SOURCE else f"weight {result}"
        nodes.append(Node(len(nodes), name, kind, signature, 0, inputs, outputs, {}))
    main = (Scope(None, None, "", 1),)
    return Graph(tuple(nodes), tuple(values.values()), main, constants, frozenset(), frozenset(), {})
