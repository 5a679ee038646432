"""The runtime of a target: how it is installed, and driven to load, time and check models."""

from dataclasses import dataclass

NVIDIA_GPU = "an NVIDIA GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The runtime that loads a target's models.

    package: the distribution that pip installs for this target.
    module: what Python imports; None where the runtime is no Python package.
    provider: the execution provider of ONNX Runtime; None elsewhere.
    driver: what loads models in it: "onnxruntime", "openvino", "webgpu", or "MODULE:FUNCTION" of
        a plug-in; None where mezzo cannot run it. The function is called as `load(path, threads)`,
        in its own process, and returns a callable from inputs by name to outputs by name, as NumPy
        arrays.
    is_timed: whether its times mean anything where mezzo runs it.
    profiles_nodes: whether its profile has a time for each node, which `--measure` needs.
    hardware: what it needs in addition to a CPU, such as "an NVIDIA GPU"; None if nothing.
    device: the type of PyTorch device whose programs it runs: "cpu", "cuda"; None elsewhere.
    elsewhere: what a user does with a result where mezzo cannot run it.
    """

    package: str
    module: str | None = None
    provider: str | None = None
    driver: str | None = None
    is_timed: bool = True
    profiles_nodes: bool = False
    hardware: str | None = None
    device: str | None = None
    elsewhere: str = "load the result where that runtime is"

    @property
    def can_time(self) -> bool:
        """Whether mezzo runs and times models in it."""
        return self.driver is not None and self.is_timed
