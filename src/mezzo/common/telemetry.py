"""Opts out of the telemetry of libraries that mezzo loads."""

import os

# ONNX Runtime's official builds, since 1.29 on Linux and macOS: read once, when the library loads.
# https://github.com/microsoft/onnxruntime/pull/27379
_OPT_OUTS = {"ORT_DISABLE_TELEMETRY": "1"}


def opt_out_of_telemetry() -> None:
    """Set the variables that turn telemetry off, for this process and those that it starts. A library that has loaded
    before does not read them again.
    """
    os.environ.update(_OPT_OUTS)
