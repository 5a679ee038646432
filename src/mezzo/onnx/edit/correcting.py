"""Correction of a model's constants (SmoothQuant factors, bias correction): slices are scaled or
shifted as calibration data suggested. Decides nothing.
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace

import numpy as np
import onnx

from mezzo.common.errors import InputError
from mezzo.contracts.corrections import Correction
from mezzo.formats.dtypes import HIGH, size_bits
from mezzo.formats.weight_grid import GridElements
from mezzo.onnx.files.blobs import INLINE_BYTES, Blob, Blobs
from mezzo.onnx.files.factors import Factors, spread
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.protos.attributes import constant_tensor, own_tensor
from mezzo.onnx.protos.payloads import set_payload
from mezzo.onnx.protos.rounding import Array

_Constants = dict[str, tuple[onnx.TensorProto, onnx.NodeProto | None]]


def correct(source: ModelSource, corrections: Sequence[Correction]) -> ModelSource:
    """A copy of the model with corrected constants. Large constants that are only scaled are scaled
    later, while they are streamed.

    Raises InputError: a constant is not an FP32 constant of the main graph, a correction does not
    fit its shape, or the corrected numbers overflow FP32.
    """
    model = deepcopy(source.model)
    constants: _Constants = {tensor.name: (tensor, None) for tensor in model.graph.initializer}
    constants |= _constants(model.graph)
    for correction in corrections:
        _change(source.blobs, constants, correction)
    return replace(source, model=model)


def exchange(source: ModelSource, weights: Mapping[str, Array | GridElements]) -> ModelSource:
    """A copy of the model in which FP32 constants of the main graph have other elements, by value
    name; these are not copied.

    Raises InputError: one is no such constant, or has another shape.
    """
    model = deepcopy(source.model)
    constants: _Constants = {tensor.name: (tensor, None) for tensor in model.graph.initializer}
    constants |= _constants(model.graph)
    for name, numbers in weights.items():
        tensor, node = constants.get(name, (None, None))
        is_alike = tensor is not None and tuple(tensor.dims) == numbers.shape
        if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT or not is_alike:
            raise InputError(f"{name!r} is no FP32 constant of shape {list(numbers.shape)}")
        tensor = tensor if node is None else own_tensor(node, tensor)
        size_bytes = numbers.size * size_bits(HIGH) // 8
        if isinstance(numbers, GridElements) and size_bytes <= INLINE_BYTES:
            numbers = numbers.read(0, numbers.size)
        if not isinstance(numbers, GridElements):
            numbers = np.ascontiguousarray(numbers, np.float32).reshape(-1)
            if size_bytes <= INLINE_BYTES:
                set_payload(tensor, numbers.astype("<f4").tobytes())
                continue
        source.blobs.mark(
            tensor,
            Blob(dtype=HIGH, elements=numbers.size, size_bytes=size_bytes, origin=numbers),
        )
    return replace(source, model=model)


def _constants(graph: onnx.GraphProto) -> _Constants:
    """Tensors of the graph's Constants, with their nodes."""
    constants: _Constants = {}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1:
            tensor = constant_tensor(node.attribute[0])
            if tensor is not None:
                constants[node.output[0]] = tensor, node
    return constants


def _change(blobs: Blobs, constants: _Constants, correction: Correction) -> None:
    fault = f"the plan corrects {correction.value!r}"
    tensor, node = constants.get(correction.value, (None, None))
    if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
        raise InputError(
            f"{fault}, which is no FP32 constant of the model's main graph; take the correction out"
        )
    shape = tuple(tensor.dims)
    sizes = {len(numbers) for numbers in (correction.factors, correction.added) if numbers}
    if not 0 <= correction.axis < len(shape) or sizes != {shape[correction.axis]}:
        counts = " and ".join(map(str, sorted(sizes)))
        raise InputError(
            f"{fault} with {counts} numbers along axis {correction.axis}, and its shape is"
            f" {'x'.join(map(str, shape))}; give one for each slice, or take the correction out"
        )
    if node is not None:
        tensor = own_tensor(node, tensor)
        constants[correction.value] = tensor, node
    run = math.prod(shape[correction.axis + 1 :])
    factors = Factors(np.array(correction.factors), run) if correction.factors else None
    if factors is not None and not correction.added and blobs.stored(tensor) is not None:
        blobs.scale(tensor, factors)
        return
    numbers = blobs.array(tensor).reshape(-1)
    if factors is not None:
        numbers = factors.scale(numbers)
    if correction.added:
        with np.errstate(over="ignore"):
            numbers = (numbers + spread(np.array(correction.added), run, 0, numbers.size)).astype(
                np.float32
            )
    if not np.isfinite(numbers).all():
        raise InputError(
            f"{fault}, and FP32 does not hold what comes of it; take the correction out"
        )
    set_payload(tensor, numbers.astype("<f4").tobytes())
