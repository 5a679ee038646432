"""Constants of a model changed as was decided on data: slices multiplied, or added to. Decides
nothing.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx

from mezzo.common.errors import InputError
from mezzo.contracts.corrections import Correction
from mezzo.onnx.files.blobs import Blobs, clear_payload
from mezzo.onnx.files.factors import Factors, spread
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.protos.attributes import constant_tensor
from mezzo.onnx.protos.rounding import Array


def correct(source: ModelSource, corrections: Sequence[Correction]) -> ModelSource:
    """The model with its constants changed; the source is not. Large ones that are multiplied alone
    are multiplied as they are streamed.

    Raises InputError: a constant is none of the main graph's in FP32, or its shape does not fit.
    """
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    held = dict(_constants(model.graph))
    for one in corrections:
        _change(source.blobs, held, one)
    return replace(source, model=model)


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1:
            found = constant_tensor(node.attribute[0])
            if found is not None:
                yield node.output[0], found


def _change(blobs: Blobs, held: dict[str, onnx.TensorProto], one: Correction) -> None:
    where, tensor = f"the plan corrects {one.value!r}", held.get(one.value)
    if tensor is None or tensor.data_type != onnx.TensorProto.FLOAT:
        raise InputError(
            f"{where}, which is no FP32 constant of the model's main graph; take the correction out"
        )
    shape = tuple(tensor.dims)
    sizes = {len(numbers) for numbers in (one.factors, one.added) if numbers}
    if not 0 <= one.axis < len(shape) or sizes != {shape[one.axis]}:
        found = " and ".join(map(str, sorted(sizes)))
        raise InputError(
            f"{where} with {found} numbers along axis {one.axis}, and its shape is"
            f" {'x'.join(map(str, shape))}; give one for each slice, or take the correction out"
        )
    run = math.prod(shape[one.axis + 1 :])
    stored = blobs.stored(tensor)
    if stored is not None and not one.added:
        blob = blobs.blob(tensor, stored)
        factors = _joined(blob.factors, Factors(np.array(one.factors), run), blob.elements)
        blobs.mark(tensor, replace(blob, factors=factors))
        return
    numbers = blobs.array(tensor).reshape(-1)
    if one.factors:
        numbers = Factors(np.array(one.factors), run).scale(numbers)
    if one.added:
        with np.errstate(over="ignore"):
            numbers = (numbers + spread(np.array(one.added), run, 0, numbers.size)).astype(
                np.float32
            )
    if not np.isfinite(numbers).all():
        raise InputError(
            f"{where}, and FP32 does not hold what comes of it; take the correction out"
        )
    clear_payload(tensor)
    tensor.raw_data = numbers.astype("<f4").tobytes()


def _joined(first: Factors | None, then: Factors, elements: int) -> Factors:
    """Both factors of each element as one."""
    if first is None:
        return then
    numbers: Array = spread(first.numbers, first.run, 0, elements) * spread(
        then.numbers, then.run, 0, elements
    )
    return Factors(numbers, 1)
