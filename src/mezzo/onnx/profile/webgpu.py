"""Execution of a model in ONNX Runtime Web on WebGPU, in a process of Node.js.

The environment variable MEZZO_WEBGPU names a folder whose node_modules hold ONNX Runtime Web, and
webgpu, which is WebGPU outside a browser. `lib` and `driver.json` in it are a Vulkan driver, if the
system's is not to be used. `make device` of mezzo's repository makes such a folder.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mezzo.onnx.profile.loaded import LoadedModel, LoadOptions, Profiling

DRIVER, VARIABLE = "webgpu", "MEZZO_WEBGPU"
_SCRIPT = Path(__file__).with_suffix(".mjs")


def find_version(package: str) -> str | None:
    """The version of ONNX Runtime Web, npm's `package`; None where MEZZO_WEBGPU names no complete
    installation.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    versions = []
    for name in (package, "webgpu"):
        try:
            text = Path(folder, "node_modules", name, "package.json").read_text(encoding="utf-8")
            versions.append(str(json.loads(text)["version"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return versions[0]


def load(
    path: Path, feeds: Mapping[str, Any], folder: Path, options: LoadOptions
) -> "OnnxRuntimeWebModel":
    """Load a model. Temporary files go to `folder`.

    Raises RuntimeError: Node.js is missing, or the model does not load.
    """
    if options.profiling is not Profiling.NOTHING:
        raise RuntimeError(f"ONNX Runtime Web has no profile of {options.profiling.value}")
    # Every process that runs a model imports this module.
    from mezzo.onnx.files.files import load as open_model
    from mezzo.onnx.files.save import save

    source = open_model(path, trust_external_paths=True)  # checked when mezzo first opened it
    if source.is_external:
        path = folder / "web.onnx"
        save(source.model, source, path, overwrite=True)
    return OnnxRuntimeWebModel(path, feeds, folder)


class OnnxRuntimeWebModel(LoadedModel):
    """A session in a process of Node.js, which ends when its stdin does."""

    def __init__(self, path: Path, feeds: Mapping[str, Any], folder: Path) -> None:
        modules = Path(os.environ[VARIABLE]).resolve()
        environment = dict(os.environ)
        if (modules / "driver.json").exists():
            environment["VK_DRIVER_FILES"] = str(modules / "driver.json")
        if (modules / "lib").exists():
            environment["LD_LIBRARY_PATH"] = str(modules / "lib")
        # V8's optimizing compiler takes a minute for the WebAssembly module, at each start.
        command = ["node", "--liftoff-only", str(_SCRIPT), str(modules), str(path), str(folder)]
        try:
            self._process = subprocess.Popen(
                command, env=environment, cwd=folder, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            raise RuntimeError(
                f"Node.js could not be started ({error.strerror}); install it"
            ) from error
        self._folder, self._feeds, self._calls = folder, feeds, 0
        self._input_names = frozenset(self._hear()["inputs"])

    def call(self) -> None:
        self.answer(self._feeds)

    def answer(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        self._calls += 1
        written = {
            name: self._write(np.asarray(feed), f"web.{self._calls}.{number}")
            for number, (name, feed) in enumerate(feeds.items())
            if name in self._input_names
        }
        assert self._process.stdin is not None, "it was opened"
        try:
            order = {"feeds": written, "answers": f"web.answer.{self._calls}"}
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            answers = self._hear()["answers"]
        except BrokenPipeError:
            answers = self._hear()["answers"]  # the reason, if it gave one before it ended
        finally:
            for _, _, file in written.values():
                (self._folder / file).unlink()
        return {name: self._read(*entry) for name, entry in answers.items()}

    def _write(self, array: "np.ndarray[Any, Any]", file: str) -> tuple[str, list[int], str]:
        (self._folder / file).write_bytes(np.ascontiguousarray(array).tobytes())
        return str(array.dtype), list(array.shape), file

    def _read(self, dtype: str, shape: list[int], file: str) -> "np.ndarray[Any, Any]":
        path = self._folder / file
        array = np.frombuffer(path.read_bytes(), np.dtype(dtype)).reshape(shape)
        path.unlink()
        return array

    def _hear(self) -> dict[str, Any]:
        """The next reply. Raises RuntimeError: it is an error, or the process ended."""
        assert self._process.stdout is not None, "it was opened"
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise RuntimeError(f"Node.js ended with {self._process.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply
