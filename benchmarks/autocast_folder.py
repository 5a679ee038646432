"""Converts every NAME.onnx of a folder with NVIDIA's AutoCast on the data of NAME.data/, into NAME.autocast.onnx.

Run with a Python that has nvidia-modelopt[onnx], which may need other versions than mezzo's. What exists is kept; why a
model failed stands in NAME.autocast.txt.
"""

import logging
import sys
from pathlib import Path

import onnx
from modelopt.onnx.autocast import convert_to_mixed_precision


def main() -> int:
    folder = Path(sys.argv[1])
    logging.disable(logging.WARNING)
    for path in sorted(folder.glob("*.onnx")):
        made, why = path.with_suffix(".autocast.onnx"), path.with_suffix(".autocast.txt")
        if path.stem.endswith(".autocast") or made.exists() or why.exists():
            continue
        try:
            result = convert_to_mixed_precision(
                onnx_path=str(path), low_precision_type="fp16", keep_io_types=True,
                calibration_data=str(path.with_suffix(".data")),
            )  # fmt: skip
            onnx.save(result, made)
        except Exception as error:  # noqa: BLE001  whatever a converter raises is its failure
            why.write_text(f"{type(error).__name__}: {error}"[:500])
    return 0


if __name__ == "__main__":
    sys.exit(main())
