"""Runtimes of targets on this machine, and their installed versions."""

from collections.abc import Callable

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.packages import find_version, missing
from mezzo.onnx.profile import webgpu
from mezzo.onnx.run.runtime_libraries import load_onnxruntime
from mezzo.plugins.discovery import built_in_targets
from mezzo.tables.runtime import Runtime
from mezzo.tables.target import Target


def installed_version(runtime: Runtime) -> str | None:
    """The installed version of a runtime; None where it is not installed, or lacks the target's
    execution provider.
    """
    if runtime.driver == webgpu.DRIVER:
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
    if version is None and runtime.driver == webgpu.DRIVER:
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
