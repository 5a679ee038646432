"""The ONNX front end: opens ONNX models from files and from memory."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mezzo.contracts.frontend import Frontend, Progress, Words
from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model


class OnnxFrontend(Frontend):
    """ONNX models in files and in memory. Files whose suffix no other front end claims are opened
    as ONNX.
    """

    name = "onnx"
    dialect = "onnx"
    suffixes = (".onnx", "")
    words = Words(
        form="ONNX",
        checker="the ONNX checker",
        version="opset",
        sources=("an onnx.ModelProto", "an onnx_ir.Model"),
    )
    blocks_since = 21  # of DequantizeLinear with `block_size`
    casts_since = MappingProxyType({DType.BFLOAT16: 13})
    rewrites = True
    rescales = True

    def opens(self, source: object) -> bool:
        return type(source).__module__.partition(".")[0] in ("onnx", "onnx_ir")

    def open(
        self, source: Any, *, trust_external_paths: bool, progress: Progress | None
    ) -> "Model":
        from mezzo.onnx.opening import open_model

        return open_model(source, trust_external_paths=trust_external_paths, progress=progress)


FRONTEND = OnnxFrontend()
