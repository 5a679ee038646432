"""Emulator that runs any per-node precision assignment in one session, without rebuilding the
model.

Every operator, tie, graph input and graph output has a switch (precision_switches.py). Sums inside
an operator accumulate in FP32 unless an `Accumulation` is given.
"""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.common.errors import InputError
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.borders import mark_borders
from mezzo.onnx.emulate.fp32_simulation import twin
from mezzo.onnx.emulate.int8_activations import int8_products
from mezzo.onnx.emulate.precision_switches import SwitchOptions, put_switches
from mezzo.onnx.emulate.tags import tagged
from mezzo.onnx.files.block_payloads import BlockPart
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.protos.lowcast import reach_sums
from mezzo.onnx.protos.names import free_prefix
from mezzo.onnx.protos.rounding import round_to
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.run.emulation import check_rounding
from mezzo.onnx.run.runtime import EMULATING, SessionSettings
from mezzo.onnx.run.session import Session


class OnnxEmulator:
    """A session that runs any precision assignment of one model.

    `engine` names the runtime in use; `fallback` is the reason if it is not ONNX Runtime.
    """

    def __init__(
        self,
        model: OnnxModel,
        reading: OnnxReading,
        formats: Sequence[DType],
        accumulation: Accumulation | None = None,
        *,
        sums_high: Collection[int] = frozenset(),
        limits: Mapping[int, float] = MappingProxyType({}),
        quantized: QuantizedPorts = NO_PORTS,
        in_blocks: Mapping[int, BlockStorage] = MappingProxyType({}),
        stored_floats: Mapping[int, DType] = MappingProxyType({}),
        settings: SessionSettings = EMULATING,
    ) -> None:
        """Load the model for runs in any mix of FP32 and `formats`. Consumes `reading`.

        `accumulation` applies to every MatMul, Gemm and Conv in low precision, except the node ids
        in `sums_high`. `limits` clamps finite values of rounded constants, by value id; `quantized`
        describes the inputs and outputs of quantized nodes; `in_blocks` replaces weights, by value
        id, in every run, and `stored_floats` rounds them.

        Raises ContractError: no runtime loads the model, or its opset has no casts to a format.
        """
        check_rounding(formats)
        for value, storage in in_blocks.items():
            _dequantize(model, reading, value, storage)
        for value, low in stored_floats.items():
            _round(model, reading, value, low)
        self._graph = reading.graph
        self._formats = tuple(formats)
        mark_borders(reading, free_prefix(reading.handles.model.graph, "border_"))
        whole = tagged(model, reading)
        source = whole.model
        accumulation = reach_sums(source, formats, accumulation)
        declared = list(source.graph.input)
        self.output_names = tuple(port.name for port in source.graph.output)
        result = twin(source, accumulation)
        planning = SwitchOptions(
            formats=self._formats,
            accumulation=accumulation,
            sums_high=frozenset(sums_high),
            limits=limits,
            quantized=quantized,
            int8_products=int8_products(reading, in_blocks),
            unrounded={v for v, how in in_blocks.items() if how.form.is_fused},
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
        """Compute the outputs by name: nodes in `precision_of` in that format, others unchanged.

        Ids may name operators, ties, graph inputs and outputs. Ids of weights are ignored, as a
        weight takes the precision of its consumers. Nodes already in low precision remain so.

        Raises: InputError if feeds do not match the inputs, or a node cannot run in its format.
        """
        results = self._session.run(self._fed(feeds, precision_of))
        return dict(zip(self.output_names, results.values(), strict=True))

    @property
    def width(self) -> int:
        """Number of runs that are worth batching in `prepare`."""
        return self._session.width

    def prepare(self, many: Sequence[tuple[Mapping[str, Any], Mapping[int, DType]]]) -> None:
        """Run upcoming pairs of feeds and assignments together, if the model runs in segments."""
        if self.width > 1:
            self._session.prepare([self._fed(feeds, precision_of) for feeds, precision_of in many])

    def _fed(self, feeds: Mapping[str, Any], precision_of: Mapping[int, DType]) -> dict[str, Any]:
        """Feeds plus switch flags. Raises InputError if a node cannot run in its format."""
        flags = {dtype: np.zeros(len(self._positions), np.bool_) for dtype in self._formats}
        for number, dtype in precision_of.items():
            if self._has_switch(number, dtype):
                flags[dtype][self._positions[number]] = True
        switches = (
            {self._flags[dtype]: vector for dtype, vector in flags.items()}
            if self._positions
            else {}
        )
        return {**feeds, **switches}

    def _has_switch(self, number: int, dtype: DType) -> bool:
        if not 0 <= number < len(self._graph.nodes):
            raise InputError(
                f"the model has no node {number}; ids go from 0 to {len(self._graph.nodes) - 1}"
            )
        node = self._graph.nodes[number]
        dtype_in_model = node.signature.dtype
        if node.kind in (Kind.SOURCE, Kind.CAST) or dtype is (dtype_in_model or HIGH):
            return False
        if dtype_in_model is not HIGH:
            state = (
                "computes no floats"
                if dtype_in_model is None
                else f"is {dtype_in_model} in the model already"
            )
            raise InputError(
                f"node {node.name!r} {state}, so it cannot run in {dtype}; leave it out"
            )
        if dtype is HIGH:
            return False
        if dtype not in self._formats:
            choices = ", ".join(map(str, self._formats)) or "none"
            raise InputError(
                f"node {node.name!r}: this emulator was not made for {dtype}; its formats are"
                f" {choices}"
            )
        return number in self._positions  # no switch: the node has only sequences, nothing to round


def _dequantize(model: OnnxModel, reading: OnnxReading, value: int, storage: BlockStorage) -> None:
    """Replace a constant of the reading's model by its elements dequantized from blocks."""
    tensor = reading.handles.tensors[value]
    _exchange(reading, value, model.source.blobs.in_blocks(tensor, storage, BlockPart.FLOATS))


def _round(model: OnnxModel, reading: OnnxReading, value: int, low: DType) -> None:
    """Replace a constant of the reading's model by its elements rounded to a low float."""
    tensor = reading.handles.tensors[value]
    rounded = round_to(model.source.blobs.array(tensor), low).astype(np.float32)
    _exchange(reading, value, numpy_helper.from_array(rounded, tensor.name))


def _exchange(reading: OnnxReading, value: int, instead: onnx.TensorProto) -> None:
    proto = reading.handles.protos[reading.graph.values[value].producer]
    if proto is None:
        reading.handles.tensors[value].CopyFrom(instead)
        return
    del proto.attribute[:]  # a Constant's
    proto.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(instead)
