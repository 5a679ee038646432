"""Elementwise recurrences of states that are fed back: in h = a * h + b * x, a rounding of one call
stays in the state of all later calls.

Roundings behind a matmul or a saturating function are not carried so: the next call damps them
(GRU, LSTM). A cache rounds each number once.
"""

from collections.abc import Iterable

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Kind, Node, Role, port_of
from mezzo.ir.walks import walk
from mezzo.tables.facts import Risk, Transfer

_CARRYING = frozenset(
    {
        Transfer.ADD, Transfer.SUBTRACT, Transfer.AVERAGE, Transfer.MULTIPLY, Transfer.DIVIDE,
        Transfer.NEGATE, Transfer.SELECT, Transfer.MINIMUM, Transfer.MAXIMUM, Transfer.CLIP,
        Transfer.RELU,
    }
)  # fmt: skip


def carried_state(view: StructureView) -> Iterable[Detection]:
    """Operators between a state's input and its output, if elementwise arithmetic is all that is
    between.
    """
    if not view.feedback:
        return

    def ports(kind: Kind, side: int) -> list[Node]:
        names = {pair[side] for pair in view.feedback}
        return [n for n in view.graph.nodes if n.kind is kind and port_of(n) in names]

    def carries(node: Node) -> bool:
        row = view.rows[node.id]
        if row is None:
            return False
        # GRU and LSTM saturate; linear attention adds to its state, whose type may be its own.
        is_sum = Risk.RECURSION in row.risks and row.transfer is not Transfer.RECURRENT
        is_low = all(role is Role.GROUP for role in node.signature.outputs)
        return row.transfer in _CARRYING or row.keeps_values or (is_sum and is_low)

    def carrying_readers(node: Node) -> list[Node]:
        return [
            r for v in node.outputs if v is not None for r in view.graph.readers(v) if carries(r)
        ]

    def carrying_producers(node: Node) -> list[Node]:
        values = [value for value in node.inputs if value is not None]
        return [producer for producer in view.graph.producers(values) if carries(producer)]

    after = {node.id: node for node, _ in walk(ports(Kind.INPUT, 1), carrying_readers, set())}
    before = {node.id for node, _ in walk(ports(Kind.OUTPUT, 0), carrying_producers, set())}
    carried = [node for number, node in after.items() if number in before]
    if all(view.keeps_values(node) for node in carried):
        return
    for node in carried:
        yield Detection(node, "its rounding stays in a state that every later call reads")


RULES = (
    StructureRule("carried-state", "elementwise recurrence of fed-back states", carried_state),
)
