"""Programs of ATen operators as planner's graphs, without torch: what a reader has to make of calls.

A call is (operator, names of results, arguments by the schema's names). A text that names a value is an operand, and so
is a number that the arithmetic takes; anything else is an attribute.
"""

from collections.abc import Mapping, Sequence

from mezzo.aten.read.attributes import attributes_of, number_filled_in, operand_order, scalar_operands
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Kind, Node, Role, Scope, Signature, Value
from mezzo.tables.facts import OpFacts
from mezzo.tables.ops import op_facts

Call = tuple[str, str, Mapping[str, object]]
_LEGAL = frozenset({HIGH, DType.FLOAT16, DType.BFLOAT16})


class Program:
    """A graph that grows call by call. Every value is FP32 but those that `integers` or `truths` names."""

    def __init__(self, inputs: Mapping[str, Sequence[int | None]], types: Mapping[str, DType] | None = None) -> None:
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.constants: dict[int, ConstantFacts] = {}
        self.shapes: dict[int, tuple[int | None, ...]] = {}
        self.types = types or {}
        for name, shape in inputs.items():
            self._add("", "input", Kind.INPUT, f"input {name}", (), (name,), {})
            self.shapes[len(self.values) - 1] = tuple(shape)

    def call(self, op: str, results: str, /, **arguments: object) -> "Program":
        names = operand_order(op) or tuple(arguments)
        operands: list[int | None] = []
        for name in names:
            value = arguments.get(name)
            if isinstance(value, str) and self._has(value):
                operands.append(self._id(value))
            elif isinstance(value, list) and all(isinstance(one, str) and self._has(one) for one in value):
                operands += map(self._id, value)
            elif name in scalar_operands(op) and isinstance(value, int | float):
                operands.append(self._constant(float(value)))
            else:
                continue
            arguments.pop(name)
        plain = attributes_of(op, {name: value for name, value in arguments.items() if value is not None})
        number = number_filled_in(op, arguments)
        self._add(
            "aten", op, Kind.OP, results.split()[0], operands, results.split(), {} if number is not None else plain
        )
        if number is not None:
            self.constants[len(self.values) - 1] = one_number(number)
        return self

    def graph(self, *outputs: str) -> Graph:
        for name in outputs:
            self._add("", "output", Kind.OUTPUT, f"output {name}", (self._id(name),), (), {})
        return Graph(
            nodes=tuple(self.nodes),
            values=tuple(self.values),
            scopes=(Scope(None, None, "", 1),),
            constants=self.constants,
            widened=frozenset(),
            aliased=frozenset(),
            forms={},
            shapes=self.shapes,
        )

    def _has(self, name: str) -> bool:
        return any(value.name == name for value in self.values)

    def _id(self, name: str) -> int:
        return next(number for number, value in enumerate(self.values) if value.name == name)

    def _constant(self, number: float) -> int:
        name = f"constant {len(self.values)}"
        self._add("", "const", Kind.SOURCE, name, (), (name,), {})
        self.constants[len(self.values) - 1] = one_number(number)
        self.shapes[len(self.values) - 1] = ()
        return len(self.values) - 1

    def _add(
        self,
        dialect: str,
        op: str,
        kind: Kind,
        name: str,
        operands: Sequence[int | None],
        results: Sequence[str],
        attributes: Mapping[str, object],
    ) -> None:
        made = tuple(range(len(self.values), len(self.values) + len(results)))
        for result in results:
            self.values.append(Value(result, self.types.get(result, HIGH), len(self.nodes), 0, 1, True))
        signature = Signature(
            dialect=dialect,
            op=op,
            version=1,
            inputs=tuple(self._role(None if value is None else self.values[value].dtype) for value in operands),
            outputs=tuple(self._role(self.values[value].dtype) for value in made),
            dtype=HIGH,
            legal=_LEGAL,
        )
        self.nodes.append(Node(len(self.nodes), name, kind, signature, 0, tuple(operands), made, attributes))

    def _role(self, dtype: DType | None) -> Role:
        return Role.GROUP if dtype is HIGH else Role.ANY


def one_number(number: float) -> ConstantFacts:
    """Facts of a scalar."""
    finite = abs(number) if abs(number) != float("inf") else 0.0
    return ConstantFacts(
        elements=1,
        largest=finite,
        smallest=finite,
        has_infinity=abs(number) == float("inf"),
        has_nan=False,
        has_negative=number < 0,
        values=(number,),
        mean=number if finite else 0.0,
        rms=finite,
        minimum=number if finite else 0.0,
        maximum=number if finite else 0.0,
        is_whole=finite.is_integer(),
    )


def rows_of(graph: Graph) -> tuple[OpFacts | None, ...]:
    """Facts by node id."""
    rows = op_facts("aten")
    return tuple(rows.get(node.op) if node.kind is Kind.OP else None for node in graph.nodes)
