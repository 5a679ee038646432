"""Timing of a model in its own process, so that its crashes and hangs disturb nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import onnx

from mezzo.common.errors import ContractError
from mezzo.contracts.timings import LayerTime, Loading, ProductKernels
from mezzo.io.layer_types import is_conversion, type_called
from mezzo.io.runtime_profiles import read_trace
from mezzo.onnx.profile.feedfiles import ANSWERS, read_feeds, write_feeds
from mezzo.onnx.profile.jobs import (
    child_environment,
    fit_to,
    spell_last_line,
    spell_reason,
    stage_model,
)
from mezzo.onnx.profile.runtime_graphs import GraphKernel, find_products
from mezzo.onnx.run.feeds import Datum
from mezzo.tables.target import Target

_MODULE = "mezzo.onnx.profile.runner"
_LISTS = ("reads", "operands", "results")  # fields of a kernel that JSON turns into lists


class OnnxStopwatch:
    """One model on one target with its feeds. `model` is a path, loaded as it is, or a model with
    all weights; `structure` the model without weights, if already loaded.
    """

    def __init__(
        self,
        model: onnx.ModelProto | Path,
        target: Target,
        feeds: Mapping[str, Datum],
        loading: Loading,
        structure: onnx.ModelProto | None = None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mezzo-")
        self._target, self._loading, self._structure = target.name, loading, structure
        runtime = target.runtime
        assert runtime is not None and runtime.driver is not None, "its runtime was found"
        try:
            staged = stage_model(model, Path(self._folder.name), feeds, structure=structure)
        except BaseException:
            self.close()
            raise
        self._request: dict[str, object] = {
            "driver": runtime.driver,
            "model": staged,
            "options": {
                "provider": runtime.provider,
                "threads": loading.threads,
                "keeps_types": loading.keeps_types,
                "shows_kernels": loading.shows_kernels,
            },
        }

    def start(self) -> "OnnxRunner":
        return OnnxRunner(self._begin(0), self._target, self._loading.limit_s, self._structure)

    def layers(self, runs: int) -> Sequence[LayerTime]:
        runner = OnnxRunner(self._begin(runs), self._target, self._loading.limit_s)
        with_answer = runner.said
        runner.close()
        if "trace" in with_answer:
            return read_trace(with_answer["trace"]).layers
        return tuple(
            LayerTime(
                name=row["name"],
                op=row["op"],
                dtype=type_called(row["type"]),
                is_conversion=is_conversion(row["op"]),
                time_ns=row["time_ns"],
                calls=1.0,
            )
            for row in with_answer["layers"]
        )

    def close(self) -> None:
        self._folder.cleanup()

    def _begin(self, profiled_runs: int) -> "_Child":
        place = Path(self._folder.name)
        (place / "request.json").write_text(
            json.dumps({**self._request, "profiled_runs": profiled_runs}), encoding="utf-8"
        )
        return _Child(place, Path(str(self._request["model"])))


class OnnxRunner:
    """A loaded model that has run once. `said` is its process's first reply."""

    def __init__(
        self, child: "_Child", target: str, limit_s: float, structure: onnx.ModelProto | None = None
    ) -> None:
        """Raises ContractError: the target does not load or run the model."""
        self._child, self._structure = child, structure
        self._target, self._limit_s = target, limit_s
        self._asked = 0
        try:
            self.said = self._hear()
        except BaseException:
            self.close()
            raise

    def turn(self, pause_s: float, calls: int) -> float:
        self._child.tell({"pause_s": pause_s, "calls": calls})
        return float(self._hear()["time_ns"])

    def answer(self, feeds: Mapping[str, Datum]) -> Mapping[str, Datum]:
        self._asked += 1
        place = self._child.folder / f"feeds.{os.getpid()}.{id(self)}.{self._asked}"
        try:
            write_feeds(fit_to(self._proto, feeds), place)
            self._child.tell({"feeds": place.name})
            self._hear()
            return read_feeds(place / ANSWERS)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def kernels(self) -> ProductKernels | None:
        self._child.tell({"kernels": True})
        rows = self._hear()["kernels"]
        if rows is None:
            return None
        return find_products(self._proto.graph, list(map(_read_kernel, rows)))

    @cached_property
    def _proto(self) -> onnx.ModelProto:
        return self._structure or onnx.load(self._child.model, load_external_data=False)

    def close(self) -> None:
        self._child.end()

    def _hear(self) -> Mapping[str, Any]:
        answer = self._child.hear(self._limit_s)
        if answer is None:
            raise ContractError(f"{self._target} {self._child.spell_end(self._limit_s)}")
        if "error" in answer:
            raise ContractError(f"{self._target} does not run it: {spell_reason(answer['error'])}")
        return answer


def _read_kernel(row: Mapping[str, Any]) -> GraphKernel:
    lists = {key: tuple(row[key]) for key in _LISTS}
    return GraphKernel(**{**row, **lists, "nodes": frozenset(row["nodes"])})


class _Child:
    """The child process, in its own session, so that signals to the caller do not reach it."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(folder)], env=child_environment(), cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            encoding="utf-8", start_new_session=True,
        )  # fmt: skip
        self._is_late = False

    def tell(self, order: Mapping[str, object]) -> None:
        assert self._process.stdin is not None, "it was opened"
        with suppress(OSError):  # `hear` reports a dead process
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def hear(self, limit_s: float) -> Mapping[str, Any] | None:
        """The next reply; None if the process ended, or was killed after `limit_s`."""
        assert self._process.stdout is not None, "it was opened"
        timer = threading.Timer(limit_s, self._give_up)
        timer.daemon = True
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _give_up(self) -> None:
        self._is_late = True
        self._kill()

    def spell_end(self, limit_s: float) -> str:
        """The reason for the end of the process, as text."""
        code = self._process.wait()
        if self._is_late:
            return f"did not answer within {limit_s:.0f} s"
        self._errors.seek(0)
        return f"crashed (exit code {code}){spell_last_line(self._errors.read())}"

    def _kill(self) -> None:
        """Kill the process and those that it started."""
        if hasattr(os, "killpg") and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def end(self) -> None:
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None, "it was opened"
            with suppress(OSError):  # an unread request
                pipe.close()
        self._process.wait()
