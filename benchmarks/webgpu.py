"""A device that computes in FP16: ONNX Runtime Web on WebGPU, under Node.js, without a GPU if need be.

    npm i --ignore-scripts --prefix out/webgpu onnxruntime-web webgpu  # Dawn is WebGPU outside a browser
    export VK_DRIVER_FILES=.../lvp_icd.json                            # Mesa's llvmpipe, 25.0 or later: has shader-f16

Node.js compiles WebAssembly once (`--liftoff-only`), as its optimizing compiler takes a minute for each start.
`answers` runs a model on batches of inputs and gives what the device answers.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

Arrays = dict[str, npt.NDArray[np.generic]]
SECONDS = 600
_SCRIPT = Path(__file__).with_suffix(".mjs")


def answers(
    model: onnx.ModelProto, batches: Iterable[Mapping[str, npt.NDArray[np.generic]]], modules: Path
) -> list[Arrays]:
    """What a model with its weights inside answers to each batch, by output name.

    `modules` holds node_modules. Raises RuntimeError with what failed, TimeoutExpired after SECONDS.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        onnx.save(model, folder / "model.onnx")
        index = [
            {
                name: _store(array, folder / f"feed.{number}.{position}")
                for position, (name, array) in enumerate(batch.items())
            }
            for number, batch in enumerate(batches)
        ]
        (folder / "batches.json").write_text(json.dumps(index))
        command = ["node", "--liftoff-only", str(_SCRIPT), str(folder), str(modules)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if run.returncode or not (folder / "answers.json").exists():
            errors = [line for line in run.stderr.splitlines() if line.startswith("error: ")]
            raise RuntimeError(errors[-1] if errors else f"Node.js ended with {run.returncode}")
        written = json.loads((folder / "answers.json").read_text())
        return [{name: _load(folder, *entry) for name, entry in answer.items()} for answer in written]


def _store(array: npt.NDArray[np.generic], path: Path) -> tuple[str, tuple[int, ...], str]:
    path.write_bytes(np.ascontiguousarray(array).tobytes())
    return str(array.dtype), array.shape, path.name


def _load(folder: Path, dtype: str, shape: list[int], name: str) -> npt.NDArray[np.generic]:
    return np.frombuffer((folder / name).read_bytes(), np.dtype(dtype)).reshape(shape)
