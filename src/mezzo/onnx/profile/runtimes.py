"""Runtimes of targets on this machine: installed versions, and models loaded by a driver."""

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.packages import find_version, missing
from mezzo.onnx.profile import onnxruntime, openvino, webgpu
from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling
from mezzo.onnx.run.runtime_libraries import load_onnxruntime
from mezzo.plugins.discovery import built_in_targets
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Target

_WEBGPU = "webgpu"
# Drivers of mezzo's own. Other names of drivers are functions of plug-ins.
_DRIVERS: Mapping[str, Callable[[Path, Mapping[str, Any], Path, LoadOptions], LoadedModel]] = {
    "onnxruntime": onnxruntime.load,
    "openvino": openvino.load,
    _WEBGPU: webgpu.load,
}


def installed_version(runtime: Runtime) -> str | None:
    """The installed version of a runtime; None where it is not installed, or lacks the target's
    execution provider.
    """
    if runtime.driver == _WEBGPU:
        return webgpu.find_version(runtime.package)
    version = find_version(runtime.module or runtime.package)
    if version is None or runtime.provider is None:
        return version
    return version if runtime.provider in load_onnxruntime().get_available_providers() else None


def timed_on(target: Target) -> str:
    """The runtime that loads and times models for a target, with its version, such as "onnxruntime
    1.31.1".

    Raises InputError: mezzo cannot time the target's models, or the runtime is not installed.
    """
    if target.runtime is None or not target.runtime.can_time:
        names = _built_in(lambda runtime: runtime.can_time)
        raise InputError(f"target {target.name!r} is not timed here; time on {names}")
    return run_on(target)


def run_on(target: Target) -> str:
    """The runtime that loads models for a target, with its version.

    Raises InputError: mezzo cannot run the target's models, or the runtime is not installed.
    """
    runtime = target.runtime
    if runtime is None or runtime.driver is None:
        names = _built_in(lambda runtime: runtime.driver is not None)
        raise InputError(f"target {target.name!r} does not run here; run it on {names}")
    version = installed_version(runtime)
    if version is None and runtime.driver == _WEBGPU:
        raise InputError(
            f"target {target.name!r}: no device is set up; let {webgpu.VARIABLE} name a"
            " folder with node_modules, as `make device` of mezzo's repository makes one"
        )
    if version is None:
        raise missing(runtime.package, f"target {target.name!r}")
    return f"{runtime.module or runtime.package} {version}"


def profiling_version(target: Target) -> str:
    """The installed version of a runtime that times single nodes.

    Raises InputError: its profile has no times of nodes, or the runtime is not installed.
    """
    without = f", or leave out {option('measure')}"
    runtime = target.runtime
    if runtime is None or not runtime.profiles_nodes:
        names = _built_in(lambda runtime: runtime.profiles_nodes)
        raise InputError(
            f"target {target.name!r} cannot be measured here; measure {names}{without}"
        )
    version = find_version(runtime.package)
    if version is None:
        raise missing(runtime.package, f"target {target.name!r}", without)
    return version


def _built_in(is_fit: Callable[[Runtime], bool]) -> str:
    """The names of mezzo's own targets whose runtimes fit, as a choice in words."""
    targets = built_in_targets().values()
    return " or ".join(
        sorted(each.name for each in targets if each.runtime is not None and is_fit(each.runtime))
    )


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
