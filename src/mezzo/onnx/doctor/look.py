"""Child process of the diagnosis: imports one package or runs one check, and writes the result to
stdout as JSON.

Libraries are imported only when their check runs: a crash ends this process and no other check.
"""

import importlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mezzo.onnx.run.runtime_libraries import (
    load_onnxruntime,
    load_openvino,
    load_openvino_genai,
)
from mezzo.plugins.discovery import target

# The smallest useful model: one Add of two elements, which every runtime supports.
_MODEL = (
    """<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) { y = Add(x, x) }"""
)


def main(subject: str, word: str) -> None:
    """Run a check; a library's exception becomes its result, and its output goes to stderr."""
    stdout_copy = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    result: Mapping[str, Any]
    try:
        result = _LOOKS[subject](word)
    except Exception as error:  # noqa: BLE001  any exception is a result
        result = {"error": " ".join(str(error).split()) or type(error).__name__}
    with os.fdopen(stdout_copy, "w", encoding="utf-8") as stream:
        json.dump(result, stream)


def _look_at_module(name: str) -> Mapping[str, Any]:
    """Import a module and list the execution providers or devices that it detects."""
    if name == "onnxruntime":
        return {"details": list(load_onnxruntime().get_available_providers())}
    if name == "openvino":
        return {"details": list(load_openvino().Core().available_devices)}
    if name == "openvino_genai":
        load_openvino_genai()
        return {"details": []}
    module = importlib.import_module(name)
    if name == "torch":
        return {"details": [f"CUDA {module.version.cuda}" if module.cuda.is_available() else "CPU"]}
    return {"details": []}


def _ask_target(name: str) -> Mapping[str, Any]:
    """Run a model of one operator in a target's runtime."""
    import numpy as np
    import onnx.parser

    from mezzo.onnx.profile.drivers import load_model
    from mezzo.onnx.profile.loaded import LoadOptions

    runtime = target(name).runtime
    assert runtime is not None and runtime.driver is not None, "it can be run"
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        path = Path(folder, "model.onnx")
        onnx.save(onnx.parser.parse_model(_MODEL), path)
        feeds, options = {"x": np.ones(2, np.float32)}, LoadOptions(provider=runtime.provider)
        load_model(runtime.driver, path, feeds, Path(folder), options).call()
    return {}


def _check_rounding(name: str) -> Mapping[str, Any]:
    """Check ONNX Runtime's rounding on numbers with known results."""
    from mezzo.onnx.run import emulation

    checks = {
        "half": emulation.check_rounding_survives,
        "fp8": emulation.check_fp8_survives,
    }
    checks[name]()
    return {}


_LOOKS: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "module": _look_at_module,
    "target": _ask_target,
    "rounding": _check_rounding,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
