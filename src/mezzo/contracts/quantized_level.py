"""Data of a problem's quantized level: parameters and constraints that other levels do not have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from mezzo.formats.quantization import Quantization
from mezzo.ir.nodes import Use


class DynamicWeight(NamedTuple):
    """A weight of a matmul with dynamic quantization: the use that reads it, which may be that of a
    transpose before the matmul, and parameters.
    """

    use: Use
    how: Quantization


class DynamicProduct(NamedTuple):
    """A matmul or LSTM with dynamic quantization: the data operand and the weights."""

    data: int
    weights: tuple[DynamicWeight, ...]

    @property
    def weight_uses(self) -> frozenset[Use]:
        """The uses that read the weights."""
        return frozenset(weight.use for weight in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """Quantization by value id. `parameters`: of each value that may be quantized. `offsets`: of a
    constant for one use, a bias that is added to sums with their own scale.

    `stay_inside`: values inside a kernel, or output as floats only: nothing is quantized there.
    `either_output`: values that their kernel can output as floats or integers: quantized only if
    some use reads them so. `passed_through`: outputs of kernels that only move data: their
    quantized form is that of the operand. `dynamic`: matmuls and LSTMs, by node id, with dynamic
    quantization; their inputs are floats, except for weights.
    """

    parameters: Mapping[int, Quantization] = field(default_factory=dict)
    offsets: Mapping[Use, Quantization] = field(default_factory=dict)
    stay_inside: frozenset[int] = frozenset()
    either_output: frozenset[int] = frozenset()
    passed_through: frozenset[int] = frozenset()
    dynamic: Mapping[int, DynamicProduct] = field(default_factory=dict)


class QuantizedPorts(NamedTuple):
    """Quantized inputs, by use, and outputs, by value id, of quantized nodes. `dynamic`: by node
    id.
    """

    reads: Mapping[Use, Quantization]
    makes: Mapping[int, Quantization]
    dynamic: Mapping[int, DynamicProduct] = MappingProxyType({})


NO_PORTS = QuantizedPorts({}, {})
