"""A third dialect in a few lines, with no IR behind it: it keeps the core free of what only ONNX has.

A program is lines such as `in x 8`, `const w 64`, `h = product x w`, `out h`; the number is the value's elements.

It knows two formats more than mezzo converts to, FP8 and a four-bit one, and what makes them levels is rows alone: in
`FORMATS`, of a policy, of a target, and of what its schema allows.
"""

from mezzo.formats.dtypes import HIGH, DType, Format
from mezzo.formats.precision_line import PrecisionLine, line_of, uniform
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Kind, Node, Role, Scope, Signature, Value
from mezzo.tables.facts import Cost, Function, Risk, facts
from mezzo.tables.policy import Category, Policy, rule
from mezzo.tables.target import Refusal, Target

DIALECT = "toy"
F16, BF16, FP8, FP4 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT4E2M1
# OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0.
FORMATS = {
    FP8: Format(
        dtype=FP8, size_bytes=1, max_finite=448.0, smallest_normal=2.0**-6, smallest_subnormal=2.0**-9, eps=2.0**-3
    ),
    FP4: Format(dtype=FP4, size_bytes=1, max_finite=6.0, smallest_normal=1.0, smallest_subnormal=0.5, eps=0.5),
}
FACTS = {
    row.op: row
    for row in (
        facts("blur", Cost.NORMALIZATION, is_bounded=True),
        facts("explode", Cost.POINTWISE, Risk.EXPONENTIAL, function=Function.EXP),
        facts("join", Cost.POINTWISE, function=Function.ADD),
        facts("move", Cost.MOVEMENT, keeps_values=True),
        facts("plus", Cost.POINTWISE, function=Function.ADD),
        facts("product", Cost.LINEAR, function=Function.MATMUL),
    )
}
LOWS = frozenset({F16, BF16, FP8, FP4})
# What the schema of an operator allows beside FP32, where that is less.
LEGAL = {"join": frozenset({F16, BF16})}
# Two lines: one with the base in the middle, and one that only goes down.
LINES = {
    3: PrecisionLine((uniform(BF16), uniform(HIGH), uniform(FP8)), base=1),
    4: line_of(HIGH, F16, FP8, FP4),
}
POLICY = Policy(
    name="toy",
    summary="rows that name formats",
    rules=(
        rule("exponentials", Category.DENY, "grows past every range", risks=[Risk.EXPONENTIAL], formats=LOWS),
        rule("coarse", Category.DENY, "two mantissa bits are too few for statistics",
             costs=[Cost.NORMALIZATION], formats=[FP8]),
        rule("coarser", Category.DENY, "one mantissa bit is too few", formats=[FP4],
             costs=[Cost.NORMALIZATION, Cost.POINTWISE]),
        rule("linear", Category.ALLOW, "has kernels", costs=[Cost.LINEAR], formats=LOWS, worth=3),
        rule("statistics", Category.ALLOW, "has kernels", costs=[Cost.NORMALIZATION], formats=[F16, BF16], worth=3),
    ),
    findings=None,
    promotes_untroubled=False,
    formats=LOWS,
)  # fmt: skip
TARGET = Target(
    name="toy-machine",
    summary="runs every format, and moves nothing in four bits",
    refusals=(Refusal(dialect=DIALECT, op="move", because="no kernel", source="its table", dtypes=frozenset({FP4})),),
    formats=LOWS,
)
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
        taken, handed = (Role.GROUP,) * len(inputs), (Role.GROUP,) * len(outputs)
        dialect, legal = DIALECT if kind is Kind.OP else "", LEGAL.get(op, LOWS) | {HIGH}
        signature = Signature(dialect=dialect, op=op, version=1, inputs=taken, outputs=handed, dtype=HIGH, legal=legal)
        name = result if kind is Kind.OP else f"{op}put {result}" if kind is not Kind.SOURCE else f"weight {result}"
        nodes.append(Node(len(nodes), name, kind, signature, 0, inputs, outputs, {}))
    main = (Scope(None, None, "", 1),)
    return Graph(
        nodes=tuple(nodes),
        values=tuple(values.values()),
        scopes=main,
        constants=constants,
        widened=frozenset(),
        aliased=frozenset(),
        forms={},
    )
