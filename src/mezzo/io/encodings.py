"""Encodings of tensors, as Qualcomm's converters and AIMET exchange them.

Source: AIMET 2.42.0, formats 0.6.1 and 1.0.0 (aimet_onnx/_encoding.py); Qualcomm AI Engine Direct
SDK, "Quantization overrides". Offsets are of unsigned integers in both: x = scale * (q + offset),
q from 0 to 2**bits - 1.
"""

from dataclasses import dataclass

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import QUANTIZED, DType
from mezzo.formats.quantization import Quantization
from mezzo.io.plan_export import low_floats, operators, values_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Encodings:
    """Encodings of a plan by value name: the parameters of integers, and the values that are floats
    of 16 bits; all others are FP32. `constants` tells constants from results of operators.

    `without`: quantized nodes, if the plan has no scales.
    """

    integers: dict[str, Quantization]
    halves: tuple[str, ...]
    constants: frozenset[str]
    without: tuple[str, ...]


def read_encodings(plan: Plan, tool: str) -> Encodings:
    """The encodings that a plan implies. Raises InputError: the plan has no names of values."""
    values = values_of(plan, tool)
    precisions = {node.name: node.precision for node in plan.nodes}
    constants = frozenset(plan.names.readers.keys() - plan.names.makers.keys())
    # Other names are of integer biases, one for each reader, which the tools compute themselves.
    known = plan.names.makers.keys() | constants
    integers = {
        name: how
        for name, how in plan.quantized
        if how.format is DType.QUANTIZED8 and name in known
    }
    low = low_floats(plan)
    halves = [
        value
        for node in operators(plan)
        if node.precision.output in low
        for value in values.get(node.name, ())
    ]
    halves += [
        value
        for value in sorted(constants)
        if (readers := plan.names.readers[value])
        and all(precisions[name].compute in low for name in readers)
    ]
    quantized = [n.name for n in operators(plan) if n.precision.compute in QUANTIZED]
    without = tuple(quantized) if quantized and not integers else ()
    return Encodings(
        integers=integers,
        halves=tuple(value for value in halves if value not in integers),
        constants=constants,
        without=without,
    )


def offsets_of(how: Quantization) -> list[int]:
    """The offset of each scale: minus the zero point, counted from the smallest integer."""
    return [how.span[0] - zero_point for zero_point in how.zero_points]
