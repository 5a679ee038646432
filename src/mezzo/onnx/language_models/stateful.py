"""Decoders as OpenVINO GenAI runs them: in OpenVINO's own format, with caches as states.

A cache becomes a variable: ReadValue, Gather by `beam_idx`, Concat with the new part, Assign.
GroupQueryAttention, which OpenVINO reads from ONNX but cannot write, becomes rotary embedding and
ScaledDotProductAttention under a causal mask, which its CPU plug-in fuses with the cache. Constants
keep their types. Source: OpenVINO GenAI 2026.4, src/cpp/src/llm; OpenVINO 2026.4.1,
sdpa_to_paged_attention/state_management_pattern.cpp, and compiled models.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mezzo.common.errors import ModelError
from mezzo.onnx.run.runtime_libraries import load_openvino, load_openvino_operators

_ATTENTION = "GroupQueryAttention"
# Its inputs, by position; those past the last are other features.
_INPUTS = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin")
_COS, _SIN = _INPUTS.index("cos"), _INPUTS.index("sin")
# Attributes at which it is plain causal attention.
_PLAIN = {
    "causal": True, "kv_cache_bit_width": 0, "local_window_size": -1, "rotary_interleaved": False,
    "sliding_window_cache": False, "smooth_softmax": False, "k_quant_type": "NONE",
    "v_quant_type": "NONE",
}  # fmt: skip
_CACHE = re.compile(r"past_key_values\.(\d+\.(?:key|value))")
_PRESENT = "present.{}"
_IDS, _MASK, _POSITIONS, _BEAMS, _LOGITS = (
    "input_ids", "attention_mask", "position_ids", "beam_idx", "logits",
)  # fmt: skip
# Before the operators that OpenVINO cannot read, in its error.
_LOG = "Failed operations detailed log:"
_HEADS_AXIS, _TIME_AXIS, _SIZE_AXIS = 1, 2, 3  # of a cache


def write_stateful(source: Path, result: Path) -> None:
    """Write an ONNX decoder with caches as `result` (.xml) and its weights next to it (.bin).

    Raises ModelError: OpenVINO cannot read it, or it is no decoder of this form.
    """
    openvino = load_openvino()
    try:
        model = openvino.Core().read_model(os.fspath(source))
    except RuntimeError as error:
        text = str(error)
        reason = " ".join((text.partition(_LOG)[2] or text).split())[:300]
        raise ModelError(f"OpenVINO cannot read {source.name!r}: {reason}") from error
    decoder = _Decoder(openvino, model, source.name)
    decoder.replace_attention()
    decoder.make_caches_states()
    model.validate_nodes_and_infer_types()
    openvino.save_model(model, os.fspath(result), compress_to_fp16=False)


class _Decoder:
    """A decoder that is changed in place."""

    def __init__(self, openvino: Any, model: Any, name: str) -> None:
        self._openvino, self._model, self._name = openvino, model, name
        self._ops = load_openvino_operators()
        self._inputs: dict[str, Any] = {
            name: parameter for parameter in model.get_parameters()
            for name in parameter.output(0).get_names()
        }  # fmt: skip
        self._results: dict[str, Any] = {
            name: result for result in model.get_results()
            for name in result.input(0).get_source_output().get_names()
        }  # fmt: skip
        for name in (_IDS, _MASK):
            if name not in self._inputs:
                raise self._refuse(f"has no input {name!r}")
        if _LOGITS not in self._results:
            raise self._refuse(f"has no output {_LOGITS!r}")
        self._rotations: dict[str, Any] = {}  # by the name of the table
        ids = self._ops.shape_of(self._inputs[_IDS])
        self._batch = self._ops.gather(ids, self._whole([0]), self._whole(0))
        self._queries = self._ops.gather(ids, self._whole(1), self._whole(0))

    def replace_attention(self) -> None:
        """Put operators of OpenVINO's format in place of GroupQueryAttention."""
        nodes = [n for n in self._model.get_ordered_ops() if n.get_type_name() == _ATTENTION]
        mask = self._causal_mask() if nodes else None
        for node in nodes:
            self._check_plain(node)
            for old, new in zip(node.outputs(), self._attend(node, mask), strict=True):
                names = old.get_names()
                old.replace(new)
                new.set_names(names)

    def make_caches_states(self) -> None:
        """Make each pair of past and present a state of the model."""
        ops, model = self._ops, self._model
        matches = [match for name in self._inputs if (match := _CACHE.fullmatch(name))]
        if not matches:
            raise self._refuse("has no caches, inputs such as 'past_key_values.0.key'")
        beams = self._add_input(_BEAMS, [-1], self._openvino.Type.i32)
        for match in matches:
            name, output = match[0], _PRESENT.format(match[1])
            past, result = self._inputs[name], self._results.get(output)
            if result is None:
                raise self._refuse(f"has a cache {name!r} without an output {output!r}")
            present = result.input(0).get_source_output()
            shape = present.get_partial_shape()
            is_single = present.get_node().get_output_size() == 1
            if not is_single or shape.rank.is_dynamic or len(shape) != _SIZE_AXIS + 1:
                raise self._refuse(f"has no output {output!r} of four axes that a Concat makes")
            heads, size = shape[_HEADS_AXIS], shape[_SIZE_AXIS]
            if heads.is_dynamic or size.is_dynamic:
                raise self._refuse(f"has a cache {name!r} whose heads or their size are not known")
            lengths = [heads.get_length(), 0, size.get_length()]
            dtype = past.get_element_type()
            empty = ops.broadcast(
                self._real(0.0, dtype),
                ops.concat([self._batch, self._whole(lengths)], 0),
            )
            variable = self._variable(name + output, shape, dtype)
            state = ops.gather(ops.read_value(empty, variable), beams, self._whole(0))
            past.output(0).replace(state.output(0))
            model.add_sinks([ops.assign(present.get_node(), variable)])
            model.remove_result(result)
            model.remove_parameter(past)

    def _refuse(self, what: str) -> ModelError:
        return ModelError(f"{self._name!r} {what}: OpenVINO GenAI does not run it")

    def _check_plain(self, node: Any) -> None:
        """Raises ModelError: an attention node has features that are not written."""
        attributes: Mapping[str, Any] = node.get_attributes()
        where = f"has an attention {node.get_friendly_name()!r}"
        for name, plain in _PLAIN.items():
            if attributes.get(name, plain) != plain:
                raise self._refuse(f"{where} with {name} {attributes[name]!r}, wanted {plain!r}")
        for place, port in enumerate(node.inputs()[len(_INPUTS) :], len(_INPUTS)):
            shape = port.get_partial_shape()
            if shape.is_dynamic or 0 not in shape.to_shape():
                raise self._refuse(f"{where} with an input {place}, wanted {len(_INPUTS)} at most")

    def _attend(self, node: Any, mask: Any) -> list[Any]:
        """The outputs of an attention node: result, present key and present value."""
        ops, attributes = self._ops, node.get_attributes()
        query, key, value, *pasts = (port.get_source_output() for port in node.inputs()[:5])
        heads, key_heads = attributes["num_heads"], attributes["kv_num_heads"]
        size = node.output(0).get_partial_shape()[2].get_length() // heads
        if attributes["do_rotary"]:
            turns = [
                self._rotation(node.input(place).get_source_output()) for place in (_COS, _SIN)
            ]
            query, key = self._rotate(query, size, *turns), self._rotate(key, size, *turns)
        presents, operands = [], []
        for past, new in zip(pasts, (key, value), strict=True):
            present = ops.concat([past, new], _TIME_AXIS)
            presents.append(present.output(0))
            operands.append(self._repeat(present, heads // key_heads))
        scale = self._real(attributes["scale"], query.get_element_type())
        result = ops.scaled_dot_product_attention(query, *operands, mask, scale)
        rows = ops.transpose(result, self._whole([0, 2, 1, 3]))
        joined = ops.reshape(rows, self._whole([0, 0, heads * size]), True)
        return [joined.output(0), *presents]

    def _repeat(self, present: Any, times: int) -> Any:
        """A cache with each head `times` times, as CPU and paged attention recognize it."""
        if times == 1:
            return present
        ops, heads = self._ops, present.output(0).get_partial_shape()[_HEADS_AXIS].get_length()
        size = present.output(0).get_partial_shape()[_SIZE_AXIS].get_length()
        shape = self._whole([1, 1, times, 1, 1])
        wide = ops.broadcast(
            ops.unsqueeze(present, self._whole(_TIME_AXIS)), shape, broadcast_spec="BIDIRECTIONAL"
        )
        return ops.reshape(wide, self._whole([0, heads * times, -1, size]), True)

    def _causal_mask(self) -> Any:
        """Booleans [batch, 1, queries, keys]: a key is neither padding nor after its query."""
        ops, mask, step = self._ops, self._inputs[_MASK], self._whole(1)
        count = ops.gather(ops.shape_of(mask), self._whole(1), self._whole(0))
        keys = ops.range(self._whole(0), count, step, "i64")
        queries = ops.range(ops.subtract(count, self._queries), count, step, "i64")
        columns = ops.unsqueeze(keys, self._whole(0))
        is_before = ops.less_equal(columns, ops.unsqueeze(queries, self._whole(1)))
        is_text = ops.unsqueeze(ops.convert(mask, "boolean"), self._whole([1, 2]))
        return ops.logical_and(is_before, is_text)

    def _rotation(self, table: Any) -> Any:
        """Rows of a table of cosines or sines at the positions, [batch, 1, queries, rotated]."""
        name = table.get_node().get_friendly_name()
        if name not in self._rotations:
            ops = self._ops
            if _POSITIONS not in self._inputs:
                self._add_input(_POSITIONS, [-1, -1], self._openvino.Type.i64)
            half = ops.gather(table, self._inputs[_POSITIONS], self._whole(0))
            self._rotations[name] = ops.unsqueeze(ops.concat([half, half], -1), self._whole(1))
        return self._rotations[name]

    def _rotate(self, value: Any, size: int, cosines: Any, sines: Any) -> Any:
        """Rotary embedding of the first elements of each head; the rest stay."""
        ops, rotated = self._ops, cosines.output(0).get_partial_shape()[-1].get_length()
        rest = None
        if rotated < size:
            parts = ops.variadic_split(
                value, self._whole(_SIZE_AXIS), self._whole([rotated, size - rotated])
            )
            value, rest = parts.outputs()
        halves = ops.variadic_split(
            value, self._whole(_SIZE_AXIS), self._whole([rotated // 2, rotated // 2])
        )
        first, second = halves.outputs()
        minus = self._real(-1.0, value.get_element_type())
        turned = ops.concat([ops.multiply(second, minus), first], -1)
        result = ops.add(ops.multiply(value, cosines), ops.multiply(turned, sines))
        return result.output(0) if rest is None else ops.concat([result, rest], -1).output(0)

    def _add_input(self, name: str, shape: list[int], dtype: Any) -> Any:
        parameter = self._ops.parameter(shape, dtype, name=name)
        parameter.output(0).set_names({name})
        self._model.add_parameters([parameter])
        self._inputs[name] = parameter
        return parameter

    def _variable(self, name: str, shape: Any, dtype: Any) -> Any:
        util = self._openvino.op.util
        info = util.VariableInfo()
        info.variable_id, info.data_type, info.data_shape = name, dtype, shape
        return util.Variable(info)

    def _whole(self, numbers: int | list[int]) -> Any:
        return self._ops.constant(np.array(numbers, np.int64))

    def _real(self, number: float, dtype: Any) -> Any:
        return self._ops.constant(number, dtype)
