"""What a problem knows of its quantized level, beside what it knows of every level."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from mezzo.formats.quantization import Quantization
from mezzo.ir.nodes import Use


class DynamicWeight(NamedTuple):
    """A weight of a product that finds the range of its data as it runs: which operand, and how it is held."""

    operand: int
    how: Quantization


class DynamicProduct(NamedTuple):
    """A product that finds the range of its data as it runs: which operand is data, and which are weights."""

    data: int
    weights: tuple[DynamicWeight, ...]

    @property
    def weight_operands(self) -> frozenset[int]:
        """Which operands are weights."""
        return frozenset(weight.operand for weight in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """By value id. `parameters`: how each value is held that may be quantized. `offsets`: how a constant is held for
    one of its uses, which adds it to sums of a scale of their own.

    `stay_inside`: values that a kernel makes and reads itself, or hands on as floats alone: nothing is quantized there
    for it. `hand_on_either`: values whose kernel hands on floats as well as integers: they are quantized only where
    somebody reads them so. `handed_on`: values whose kernel only moves what it reads: who reads them quantized finds
    the quantized form before it. `dynamic`: products, by node id, that find ranges as they run; they read floats, but
    for their weights.
    """

    parameters: Mapping[int, Quantization] = field(default_factory=dict)
    offsets: Mapping[Use, Quantization] = field(default_factory=dict)
    stay_inside: frozenset[int] = frozenset()
    hand_on_either: frozenset[int] = frozenset()
    handed_on: frozenset[int] = frozenset()
    dynamic: Mapping[int, DynamicProduct] = field(default_factory=dict)


class QuantizedPorts(NamedTuple):
    """What a node that runs quantized reads and makes so: by use, and by value id. `dynamic`: by node id."""

    reads: Mapping[Use, Quantization]
    makes: Mapping[int, Quantization]
    dynamic: Mapping[int, DynamicProduct] = MappingProxyType({})


NO_PORTS = QuantizedPorts({}, {})
