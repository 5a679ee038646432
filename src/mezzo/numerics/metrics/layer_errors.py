"""Errors of a compiled program beside its answers in FP64 and FP32, output by output and layer by layer, as data."""

from dataclasses import dataclass

from mezzo.ir.display import Tabled
from mezzo.ir.nodes import SourceLine

# A layer has left what FP32 itself errs by once its error is so many times that.
_BEYOND_FP32 = 8.0
_FP32_EPS = 2.0**-23


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputError:
    """One output over all batches: ||y - ref|| / ||ref||, the reference in FP64. `eager` is what FP32 itself errs,
    `beside_fp32` is the error where FP32's answer is the reference.
    """

    name: str
    error: float
    eager: float
    beside_fp32: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """What a module hands on, or one operator in it, over all batches; errors are as of an output.

    `module`: its path, "" for the model itself. `node`: the operator that made the value, as the plan names it, with
    the line of the program. `precisions`: how many operators of the layer run in what.
    """

    module: str
    node: str
    op: str
    precisions: tuple[tuple[str, int], ...]
    line: SourceLine | None
    error: float
    eager: float
    beside_fp32: float

    @property
    def is_beyond_fp32(self) -> bool:
        """Whether more than FP32's own rounding shows."""
        return not self.error <= _BEYOND_FP32 * max(self.eager, _FP32_EPS)


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerErrors(Tabled):
    """Errors of every output of floats, the worst first, and of layers in the order in which they ran.

    Outputs are as the compiled model gave them on this machine. Layers are emulated, call by call, with every value
    rounded as the plan types it: generated code may round less, and nothing here says what it gives. `is_by_operator`:
    whether each operator is a layer; else the last of each module is, what it hands on.
    """

    outputs: tuple[OutputError, ...]
    layers: tuple[LayerError, ...]
    batches: int
    is_by_operator: bool = False
    notes: tuple[str, ...] = ()

    @property
    def begins(self) -> LayerError | None:
        """The first layer that errs by more than FP32 does; None where none does."""
        return next((layer for layer in self.layers if layer.is_beyond_fp32), None)

    @property
    def grows(self) -> LayerError | None:
        """The layer at which the error grows most: whose error is furthest above that of all before it."""
        largest, most, found = 0.0, 0.0, None
        for layer in self.layers:
            if not layer.error - largest <= most:  # a NaN grows most
                most, found = layer.error - largest, layer
            if not layer.error <= largest:
                largest = layer.error
        return found
