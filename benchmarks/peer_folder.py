"""Converts every NAME.onnx of a folder with other converters, into folder/CONVERTER/NAME.onnx.

    python benchmarks/peer_folder.py FOLDER onnxconverter-common onnxruntime-float16

Run with a Python that has the converters, which may need other versions than mezzo's. NAME.txt says why a model failed.
"""

import importlib
import logging
import sys
from pathlib import Path

import onnx
from converters import CONVERTERS, Settings


def main() -> int:
    folder = Path(sys.argv[1])
    logging.disable(logging.WARNING)
    for converter in (CONVERTERS[name] for name in sys.argv[2:]):
        results = folder / converter.name
        results.mkdir(exist_ok=True)
        package = importlib.import_module(converter.module.partition(".")[0])
        (results / "version").write_text(package.__version__)
        for path in sorted(folder.glob("*.onnx")):
            if path.stem.endswith(".autocast"):
                continue
            try:
                onnx.save(converter.convert(onnx.load(path), Settings()), results / path.name)
            except Exception as error:  # noqa: BLE001  whatever a converter raises is its failure
                (results / f"{path.stem}.txt").write_text(f"{type(error).__name__}: {error}"[:500])
    return 0


if __name__ == "__main__":
    sys.exit(main())
