"""A target as an object: what a row of TOML cannot say is said in Python."""

from mezzo.formats.dtypes import DType
from mezzo.tables.target import KernelListing, Target, kernels

_SINCE = "SDK 1.4"

LITE = Target(
    name="acme-npu-lite",
    summary="ACME's small NPU: products alone",
    newest={"onnx": 21},
    listings=tuple(
        KernelListing(
            dtype=dtype,
            kernels=kernels("onnx", "Conv, Gemm, MatMul"),
            because=f"no kernel in {dtype}",
            source="table 4",
            since=_SINCE,
        )
        for dtype in (DType.FLOAT16, DType.BFLOAT16)
    ),
)
