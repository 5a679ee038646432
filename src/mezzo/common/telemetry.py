"""Opt-out from the telemetry of libraries that mezzo loads."""

import os

# ONNX Runtime's official builds, since 1.29 on Linux and macOS: read once, when the library loads.
# https://github.com/microsoft/onnxruntime/pull/27379
OPT_OUTS = {"ORT_DISABLE_TELEMETRY": "1"}


def opt_out_of_telemetry() -> None:
    """Set the opt-out variables for this process and its children. Has no effect on a library that
    is already loaded.
    """
    os.environ.update(OPT_OUTS)
