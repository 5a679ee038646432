"""Drivers, which load a model in a runtime. Child processes import them, so they read no tables."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mezzo.onnx.profile import onnxruntime, openvino, webgpu
from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling

# Drivers of mezzo's own. Other names of drivers are functions of plug-ins.
_DRIVERS: Mapping[str, Callable[[Path, Mapping[str, Any], Path, LoadOptions], LoadedModel]] = {
    "onnxruntime": onnxruntime.load,
    "openvino": openvino.load,
    webgpu.DRIVER: webgpu.load,
}


def load_model(
    driver: str, path: Path, feeds: Mapping[str, Any], folder: Path, options: LoadOptions
) -> LoadedModel:
    """Load a model in a target's runtime, by `Runtime.driver`. Traces of runs and the runtime's own
    graph are written to `folder`, if the options ask for them.

    Raises whatever the runtime raises.
    """
    if driver in _DRIVERS:
        return _DRIVERS[driver](path, feeds, folder, options)
    if options.profiling is not Profiling.NOTHING:
        raise RuntimeError(f"{driver} has no profile of {options.profiling.value}")
    module, _, function = driver.partition(":")
    run = getattr(importlib.import_module(module), function)(path, options.threads)
    return _PluginModel(run, feeds)


class _PluginModel(LoadedModel):
    """A model in a plug-in's runtime: outputs, but neither kernels nor layers."""

    def __init__(
        self, run: Callable[[Mapping[str, Any]], Mapping[str, Any]], feeds: Mapping[str, Any]
    ) -> None:
        self._run, self._feeds = run, feeds

    def call(self) -> None:
        self._run(self._feeds)

    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._run(feeds)
