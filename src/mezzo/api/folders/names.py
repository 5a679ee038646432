"""File names in model folders: suffixes of low-precision files, and names of converted files.

Sources: transformers.js 4.3.1, src/utils/dtypes.js (suffixes) and src/utils/model-loader.js
(external data); Optimum ONNX 0.1.0, optimum/onnxruntime/constants.py (standard names) and
optimum/onnx/graph_transformations.py (external data); sentence-transformers 6.2.0 (O1 to O4, qint8
and quint8 variants).
"""

import enum
import re
from pathlib import PurePosixPath

# Suffix of external data: transformers.js fetches only "model.onnx_data", as Optimum writes it.
DATA_SUFFIX = "_data"
_LOW = re.compile(
    r"[_.-](fp16|float16|half|bf16|bfloat16|fp8|fp4|u?int(4|8)|q[1248](f16)?|bnb4|quantized|qu?int8(_.*)?|O4)$",
    re.IGNORECASE,
)


class Placing(enum.Enum):
    """Destination of converted files: next to the originals, or in their place."""

    BESIDE = "beside"
    INSTEAD = "instead"


def find_low_suffix(name: str) -> str | None:
    """The part of a file's name that marks it as low or quantized; None if there is none."""
    suffix = _LOW.search(PurePosixPath(name).stem)
    return None if suffix is None else suffix.group()


def name_result(name: str, to: str, layout: Placing) -> str:
    """The name of a converted model: "model_fp16.onnx" for "model.onnx"."""
    path, word = PurePosixPath(name), to.replace(",", "_")
    return (
        name
        if layout is Placing.INSTEAD
        else str(path.with_name(f"{path.stem}_{word}{path.suffix}"))
    )
