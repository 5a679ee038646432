"""Rows that the targets of Inductor share: operators of generated kernels, in INT8."""

from collections.abc import Iterator

from mezzo.tables.quantized_kernels import OutputMode, QuantizedKernel

_GENERATED = (
    "_native_batch_norm_legit_no_training", "add", "batch_norm", "clone", "gelu", "layer_norm",
    "mul", "native_layer_norm", "relu", "sigmoid", "silu", "sub", "tanh", "transpose", "view",
)  # fmt: skip


def quantized_by_inductor(since: str, needs: tuple[str, ...] = ()) -> Iterator[QuantizedKernel]:
    """Operators of generated kernels, which quantize what they store for free. `needs`: features of
    a machine, any of which makes that faster.
    """
    for op in _GENERATED:
        yield QuantizedKernel(
            dialect="aten",
            op=op,
            operands=(),
            hands=OutputMode.FLOATS,
            source="Inductor fuses quantize operators into the kernel that makes their input",
            since=since,
            needs=needs,
        )
