"""Imports ONNX Runtime and OpenVINO with their telemetry off. No other module imports them."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from mezzo.common.telemetry import opt_out_of_telemetry


@cache
def load_onnxruntime() -> Any:
    """ONNX Runtime. If the process imported it before, that import was reported; sessions from now on are not.

    Windows' builds ignore the environment and report each load of the library; they heed the call alone.
    """
    opt_out_of_telemetry()
    runtime = importlib.import_module("onnxruntime")
    runtime.disable_telemetry_events()
    return runtime


@cache
def load_openvino() -> Any:
    """OpenVINO, with `properties.hint`. Its import sends an event to an analytics service unless the package that sends
    is missing, and has no option against it (`openvino.tools.ovc`, 2026.4.1).
    """
    with _hidden("openvino_telemetry"):
        openvino = importlib.import_module("openvino")
        importlib.import_module("openvino.properties.hint")
    return openvino


@contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Let the import of a module fail as if it were not installed."""
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]  # what the import system reads as: there is none
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
