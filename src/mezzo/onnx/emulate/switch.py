"""Runs any assignment of precisions to a model's nodes, in true rounding, without building the model anew.

Every operator, tie, graph input and graph output has a switch; see `switching`. Sums inside one operator stay in FP32
unless an `Accumulation` says otherwise.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.borders import mark_borders
from mezzo.onnx.emulate.fp32_simulation import free_prefix, twin
from mezzo.onnx.emulate.precision_switches import SwitchOptions, make_port, put_switches
from mezzo.onnx.emulate.tags import tagged
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.protos.lowcast import raise_opset
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.run.run import Session, check_rounding
from mezzo.onnx.run.runtime import EMULATING, SessionSettings
from mezzo.onnx.schema.value_types import value_types


class OnnxEmulator:
    """One session that runs any assignment of a model. `engine` is what computes, `fallback` why not ONNX Runtime."""

    def __init__(
        self,
        model: OnnxModel,
        reading: OnnxReading,
        formats: Sequence[DType],
        accumulation: Accumulation | None = None,
        extra_outputs: Sequence[str] = (),
        *,
        sums_high: Collection[int] = frozenset(),
        limits: Mapping[int, float] = MappingProxyType({}),
        quantized: QuantizedPorts = NO_PORTS,
        settings: SessionSettings = EMULATING,
    ) -> None:
        """Load the model for runs in any mix of FP32 and `formats`. The reading is spent.

        `extra_outputs` are values of the main graph to return as well. `accumulation` holds for every MatMul, Gemm and
        Conv that runs low, but for the node ids `sums_high`. `limits` bounds the finite numbers of constants where they
        are rounded, by value id; `quantized` says what nodes read and make that run quantized.

        Raises:
            InputError: an extra output is no value of the main graph.
            ContractError: no engine loads the model, or its opset has no casts to a format.
        """
        check_rounding(formats)
        self._graph = reading.graph
        self._formats = tuple(formats)
        mark_borders(reading, free_prefix(reading.handles.model.graph, "border_"))
        whole = tagged(model, reading)
        source = whole.model
        raise_opset(source, formats, accumulation)
        declared = list(source.graph.input)
        self.output_names = (*(port.name for port in source.graph.output), *extra_outputs)
        result = twin(source, accumulation)
        _add_outputs(result, extra_outputs)
        planning = SwitchOptions(
            formats=self._formats,
            accumulation=accumulation,
            sums_high=frozenset(sums_high),
            limits=limits,
            quantized=quantized,
        )
        switches = put_switches(result, reading.graph, planning)
        self._positions = switches.positions
        self._flags = switches.flags
        declared += [port for port in result.graph.input if port.name in self._flags.values()]
        self._session = Session(result, declared, None, settings, whole.weights)

    @property
    def engine(self) -> str:
        return self._session.engine.value

    @property
    def fallback(self) -> str | None:
        return self._session.fallback

    def run(self, feeds: Mapping[str, Any], precision_of: Mapping[int, DType]) -> dict[str, Any]:
        """Compute the outputs by name, each node of `precision_of` in its format and the rest as in the model.

        Ids may be those of operators, ties, graph inputs and outputs; weights follow whoever reads them, so theirs
        count for nothing. A node that is low in the model already stays so.

        Raises: InputError if feeds do not fit, or a node cannot run in its format here.
        """
        results = self._session.run(self._fed(feeds, precision_of))
        return dict(zip(self.output_names, results.values(), strict=True))

    @property
    def width(self) -> int:
        """How many runs are worth preparing together."""
        return self._session.width

    def prepare(self, many: Sequence[tuple[Mapping[str, Any], Mapping[int, DType]]]) -> None:
        """Run feeds under assignments that are asked for next, where that saves something."""
        if self.width > 1:
            self._session.prepare([self._fed(feeds, precision_of) for feeds, precision_of in many])

    def _fed(self, feeds: Mapping[str, Any], precision_of: Mapping[int, DType]) -> dict[str, Any]:
        """Feeds with the flags of an assignment. Raises InputError: a node cannot run in its format here."""
        flags = {dtype: np.zeros(len(self._positions), np.bool_) for dtype in self._formats}
        for number, dtype in precision_of.items():
            if self._has_switch(number, dtype):
                flags[dtype][self._positions[number]] = True
        switches = {self._flags[dtype]: vector for dtype, vector in flags.items()} if self._positions else {}
        return {**feeds, **switches}

    def _has_switch(self, number: int, dtype: DType) -> bool:
        if not 0 <= number < len(self._graph.nodes):
            raise InputError(f"the model has no node {number}; ids go from 0 to {len(self._graph.nodes) - 1}")
        node = self._graph.nodes[number]
        held = node.signature.dtype
        if node.kind in (Kind.SOURCE, Kind.CAST) or dtype is (held or HIGH):
            return False
        if held is not HIGH:
            state = "computes no floats" if held is None else f"is {held} in the model already"
            raise InputError(f"node {node.name!r} {state}, so it cannot run in {dtype}; leave it out")
        if dtype is HIGH:
            return False
        if dtype not in self._formats:
            known = ", ".join(map(str, self._formats)) or "none"
            raise InputError(f"node {node.name!r}: this emulator was not made for {dtype}; its formats are {known}")
        return number in self._positions  # without one there is nothing to round: it handles sequences alone


def _add_outputs(model: onnx.ModelProto, names: Sequence[str]) -> None:
    types = value_types(model).types if names else {}
    for name in names:
        text = types.get(name, "")
        if not text:
            raise InputError(f"extra output {name!r} is no value of the main graph; name one that its nodes make")
        model.graph.output.append(make_port(name, text))
