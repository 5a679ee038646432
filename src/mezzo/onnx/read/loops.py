"""Reading of Loop, Scan and SequenceMap, whose bodies run repeatedly and carry state."""

from dataclasses import dataclass
from typing import NamedTuple

import onnx

from mezzo.common.errors import ModelError
from mezzo.ir.nodes import Use
from mezzo.onnx.protos.attributes import read_int
from mezzo.onnx.read.bodies import ControlFlow, TieUse
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import Frame
from mezzo.onnx.schema.types import Aggregate, element_dtype, from_type_proto

# Assumed number of iterations of a loop, as its trip count is data.
_NOMINAL_TRIPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where a loop's operands and results are. Others of the body's results are scan outputs.

    `plain`: operands before the states (trip count, condition). `formals` and `results`: inputs
    and outputs of the body before the states. `states`: loop-carried values. `slices`: scan inputs.
    `stacked`: the type of a scan output, around its element type; empty if as in the body.
    """

    plain: int = 0
    formals: int = 0
    results: int = 0
    states: int = 0
    slices: int = 0
    stacked: str = ""


class _Carried(NamedTuple):
    """A loop state or scan input of a body: its tie, and its use of the operand.

    `result` is the value after the loop, of a state.
    """

    tie: int
    use: TieUse
    result: int | None


class _Loop(ControlFlow):
    """Reads a loop: its states, scan inputs, body and scan outputs, in this order."""

    def __init__(self, reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
        super().__init__(reader, frame, proto, proto.op_type)
        self.content = self.body("body")

    def read(self, layout: _Layout) -> None:
        reader, body = self.reader, self.content
        for operand in range(min(layout.plain, len(self.proto.input))):
            self.inputs.append(reader.operand(self.frame, self.proto, operand, self.node)[0])
        inner = self.enter("body", body, _NOMINAL_TRIPS)
        for port in body.input[: layout.formals]:  # Loop's iteration number and condition
            self.bind(port.name, from_type_proto(port.type), inner)
        carried = [
            self._carry(layout, inner, index) for index in range(layout.states + layout.slices)
        ]
        self.read_body(inner, body)
        for port in body.output[: layout.results]:  # Loop's condition
            value, _ = reader.read_name(inner, port.name, Use(self.node, len(self.inputs)))
            self.inputs.append(value)
        for index, state in enumerate(carried[: layout.states]):
            if state is None:
                self._bind_result(layout, inner, index)
            else:
                self._close(layout, inner, index, state)
        for scanned in carried[layout.states :]:
            if scanned is not None:
                self.close_tie(scanned.tie, [scanned.use])
        for index in range(layout.states, len(body.output) - layout.results):
            self._bind_result(layout, inner, index)
        self.finish()

    def _carry(self, layout: _Layout, inner: Frame, index: int) -> _Carried | None:
        """Bind an input of the body to an operand, by a tie if it is a planned float."""
        reader, operand = self.reader, layout.plain + index
        formal, is_state = self.content.input[layout.formals + index], index < layout.states
        if operand >= len(self.proto.input) or not self.proto.input[operand]:
            self.bind(formal.name, from_type_proto(formal.type), inner)
            return None
        value, value_type = self.read_operand(operand, Use(len(reader.nodes), 0))
        elements = 1 if value is None else reader.values[value].elements
        is_slice = isinstance(value_type, Aggregate) and not is_state
        formal_type = element_dtype(value_type) if is_slice else value_type
        if not reader.is_planned(value_type):
            self.bind(formal.name, formal_type, inner, elements)
            return None
        ports = [(formal.name, formal_type, inner.scope, elements)]
        if is_state:
            ports.append((self.output_name(index), value_type, self.frame.scope, elements))
        label = f"state[{index}]" if is_state else f"input[{index}]"
        tie, values = self.open_tie(label, value_type, ports)
        inner.env.names[formal.name] = values[0]
        reader.handles.declared.setdefault(values[0], []).append(formal)
        result = values[1] if is_state else None
        return _Carried(tie, (value, self.operand_place(operand)), result)

    def _close(self, layout: _Layout, inner: Frame, index: int, state: _Carried) -> None:
        """Close the tie of a state with the body's result, and bind the value after the loop."""
        position = layout.results + index
        result = self.read_result(inner, self.content, position, Use(state.tie, 1))
        self.close_tie(state.tie, [state.use, (result.value, result.place)])
        assert state.result is not None, "a carried state has a value after the loop"
        declared = self.reader.handles.declared.setdefault(state.result, [])
        declared.append(self.content.output[position])
        if index < len(self.proto.output):
            self.frame.env.names[self.proto.output[index]] = state.result

    def _bind_result(self, layout: _Layout, inner: Frame, index: int) -> None:
        """Bind a scan output of the node, or a state without a tie, to a result of the body."""
        position, tie = layout.results + index, len(self.reader.nodes)
        result = self.read_result(inner, self.content, position, Use(tie, 0))
        value_type = result.value_type
        if layout.stacked and value_type is not None:
            value_type = Aggregate(layout.stacked, element_dtype(value_type))
        elements = max(result.elements, self.reader.counts.get(self.output_name(index), 0))
        uses, infos = [(result.value, result.place)], [self.content.output[position]]
        self.bind_output(index, value_type, elements, uses, infos)


def read_loop(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    loop = _Loop(reader, frame, proto)
    states = max(len(loop.content.input) - 2, 0)
    loop.read(_Layout(plain=2, formals=2, results=1, states=states))


def read_scan(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    loop = _Loop(reader, frame, proto)
    slices = read_int(proto, "num_scan_inputs", 0)
    states = len(loop.content.input) - slices
    if slices < 0 or states < 0:
        raise ModelError(
            f"node {loop.title!r} (Scan): num_scan_inputs is {slices}, its body has "
            f"{len(loop.content.input)} inputs; mend the model"
        )
    plain = 1 if frame.opsets.get("", 1) < 9 else 0  # Scan-8 takes the sequences' lengths first
    loop.read(_Layout(plain=plain, states=states, slices=slices))


def read_sequence_map(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    loop = _Loop(reader, frame, proto)
    loop.read(_Layout(slices=len(loop.content.input), stacked="seq(tensor({}))"))
