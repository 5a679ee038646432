"""Imports of ONNX Runtime and OpenVINO with telemetry off. No other module imports them."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mezzo.common.telemetry import opt_out_of_telemetry


@cache
def load_onnxruntime() -> Any:
    """Import ONNX Runtime. An import by others before was reported; sessions from now on are not.

    Windows builds ignore the environment variable and report each load of the library; only the
    call of disable_telemetry_events has an effect.
    """
    opt_out_of_telemetry()
    runtime = importlib.import_module("onnxruntime")
    runtime.disable_telemetry_events()
    return runtime


@cache
def load_openvino() -> Any:
    """Import OpenVINO, with `properties.hint`, without its telemetry package: its import sends an
    event, and has no option against it (`openvino.tools.ovc`, 2026.4.1).
    """
    with _hidden("openvino_telemetry"):
        openvino = importlib.import_module("openvino")
        importlib.import_module("openvino.properties.hint")
    return openvino


@cache
def load_openvino_operators() -> Any:
    """Import the functions that make OpenVINO's operators."""
    load_openvino()
    return importlib.import_module("openvino.opset13")


def load_openvino_tokenizers() -> Any:
    """Import the package that makes models of OpenVINO of tokenizers."""
    load_openvino()
    return importlib.import_module("openvino_tokenizers")


def load_openvino_genai() -> Any:
    """Import the package that runs language models on OpenVINO."""
    load_openvino()
    return importlib.import_module("openvino_genai")


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Make the import of a module fail as if it were not installed."""
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]  # None makes an import fail
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
