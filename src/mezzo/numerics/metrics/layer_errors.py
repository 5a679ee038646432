"""Records of errors of a compiled program against FP64 and FP32, per output and per layer."""

from dataclasses import dataclass

from mezzo.ir.display import Tabled
from mezzo.ir.nodes import SourceLine

# A layer is beyond FP32 once its error exceeds FP32's own by this factor.
_BEYOND_FP32 = 8.0
_FP32_EPS = 2.0**-23


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputError:
    """Error of one output over all batches: ||y - ref|| / ||ref|| with an FP64 reference. `eager`:
    FP32's own error; `beside_fp32`: the error with FP32's output as the reference.
    """

    name: str
    error: float
    eager: float
    beside_fp32: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """Errors of a module's output, or of one operator in it, over all batches, as in `OutputError`.

    `module`: its path, "" for the model itself. `node`: the operator that produced the value, as
    plans name it, with its source line. `precisions`: number of the layer's operators per
    precision.
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
        """Whether the error exceeds FP32's own rounding."""
        return not self.error <= _BEYOND_FP32 * max(self.eager, _FP32_EPS)


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerErrors(Tabled):
    """Errors of every float output, the worst first, and of layers in execution order.

    Outputs are those of the compiled model on this machine. Layers are emulated call by call, with
    every value rounded as the plan types it; generated code may round less. `is_by_operator`: each
    operator is a layer; otherwise each module's output is one.
    """

    outputs: tuple[OutputError, ...]
    layers: tuple[LayerError, ...]
    batches: int
    is_by_operator: bool = False
    notes: tuple[str, ...] = ()

    @property
    def begins(self) -> LayerError | None:
        """The first layer whose error exceeds FP32's; None if there is none."""
        return next((layer for layer in self.layers if layer.is_beyond_fp32), None)

    @property
    def grows(self) -> LayerError | None:
        """The layer whose error exceeds that of all layers before it by most."""
        largest, most, layer_of_growth = 0.0, 0.0, None
        for layer in self.layers:
            if not layer.error - largest <= most:  # a NaN counts as the largest growth
                most, layer_of_growth = layer.error - largest, layer
            if not layer.error <= largest:
                largest = layer.error
        return layer_of_growth
