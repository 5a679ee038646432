"""The runtimes that whole models are timed on, by target."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mezzo.common.errors import InputError
from mezzo.common.packages import find_version, missing

_ONNXRUNTIME = "onnxruntime"


@dataclass(frozen=True, slots=True)
class Runtime:
    """A runtime. `module` is what Python imports, `package` what a user installs for this target.

    `provider`: the part of ONNX Runtime that does it, None elsewhere.
    """

    module: str
    package: str
    provider: str | None

    def find_version(self) -> str | None:
        """The installed version; None where it is not installed, or cannot do this."""
        version = find_version(self.module)
        if version is None or self.provider is None:
            return version
        runtime: Any = importlib.import_module(self.module)
        return version if self.provider in runtime.get_available_providers() else None


RUNTIMES: Mapping[str, Runtime] = {
    "onnxruntime-cpu": Runtime(_ONNXRUNTIME, _ONNXRUNTIME, "CPUExecutionProvider"),
    "onnxruntime-cuda": Runtime(_ONNXRUNTIME, "onnxruntime-gpu", "CUDAExecutionProvider"),
    "openvino-cpu": Runtime("openvino", "openvino", None),
}


def timed_on(target: str) -> str:
    """The runtime of a target and its version, in words: "onnxruntime 1.31.1".

    Raises InputError: whole models are not timed on this target, or its runtime is not installed.
    """
    if target not in RUNTIMES:
        raise InputError(f"target {target!r} is not timed here; time on {' or '.join(sorted(RUNTIMES))}")
    runtime = RUNTIMES[target]
    version = runtime.find_version()
    if version is None:
        raise missing(runtime.package, f"target {target!r}")
    return f"{runtime.module} {version}"
