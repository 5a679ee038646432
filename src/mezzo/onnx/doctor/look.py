"""The child process: imports one package or makes one check, and writes what it found to stdout as
JSON.

Nothing is imported before it is asked for: a library that crashes takes this process with it, and
nothing else.
"""

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mezzo.onnx.run.runtime_libraries import load_onnxruntime, load_openvino
from mezzo.plugins.discovery import target

# Adds two numbers: what a runtime has to be able to do before it is worth asking anything.
_MODEL = (
    """<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) { y = Add(x, x) }"""
)


def main(subject: str, word: str) -> None:
    """Look at a subject; what a library raises is an answer too. What it prints goes to stderr."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    found: Mapping[str, Any]
    try:
        found = _LOOKS[subject](word)
    except Exception as error:  # noqa: BLE001  whatever a library raises is its answer
        found = {"error": " ".join(str(error).split()) or type(error).__name__}
    with os.fdopen(answer, "w", encoding="utf-8") as out:
        json.dump(found, out)


def _look_at_module(name: str) -> Mapping[str, Any]:
    """Import a module and list what it finds on this machine."""
    if name == "onnxruntime":
        return {"details": list(load_onnxruntime().get_available_providers())}
    if name == "openvino":
        return {"details": list(load_openvino().Core().available_devices)}
    module = importlib.import_module(name)
    if name == "torch":
        return {"details": [f"CUDA {module.version.cuda}" if module.cuda.is_available() else "CPU"]}
    return {"details": []}


def _ask_target(name: str) -> Mapping[str, Any]:
    """Have a target's runtime run a model of one operator."""
    import numpy as np
    import onnx.parser

    from mezzo.onnx.profile.runtimes import load_whole

    runtime = target(name).runtime
    assert runtime is not None and runtime.driver is not None, "it can be run"
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(onnx.parser.parse_model(_MODEL), path)
        load_whole(
            runtime.driver, runtime.provider, path, {"x": np.ones(2, np.float32)}, Path(folder)
        ).call()
    return {}


def _check_rounding(name: str) -> Mapping[str, Any]:
    """Have ONNX Runtime round numbers whose results are known."""
    from mezzo.onnx.run import run

    {"half": run.check_rounding_survives, "fp8": run.check_fp8_survives}[name]()
    return {}


_LOOKS: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "module": _look_at_module,
    "target": _ask_target,
    "rounding": _check_rounding,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
