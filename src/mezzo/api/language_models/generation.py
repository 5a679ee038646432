"""Tokens per second of language models side by side, in the runtimes that their folders are for:
mezzo.bench_folders.
"""

import os
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mezzo.api.folders.genai import CONFIG, OPENVINO_MODEL, read_config
from mezzo.api.folders.json_process import JsonProcess
from mezzo.api.language_models.hugging_face import CONFIG as HUGGING_FACE_CONFIG
from mezzo.api.language_models.hugging_face import read_object
from mezzo.common.errors import InputError
from mezzo.common.machine import count_cores, find_load, find_machine
from mezzo.common.message_style import option
from mezzo.common.packages import find_version, missing
from mezzo.common.unsupported_files import describe_folder
from mezzo.contracts.frontend import Progress
from mezzo.numerics.measures import Load
from mezzo.numerics.statistics.speeds import judge_speed, speed, spread_of
from mezzo.numerics.token_times import TokenTimes, TokenTimings

_SERVE = "from mezzo.api.language_models.generation_worker import serve; "


class _Runtime(NamedTuple):
    """A runtime of folders: its package and module, the file that tells its folders, the config
    with the number of tokens, and the program of the processes that run folders.
    """

    package: str
    module: str
    mark: str
    config: str
    program: str


_RUNTIMES = (
    _Runtime("onnxruntime-genai", "onnxruntime_genai", CONFIG, CONFIG, f"{_SERVE}serve()"),
    _Runtime(
        "openvino-genai", "openvino_genai", OPENVINO_MODEL, HUGGING_FACE_CONFIG,
        f"{_SERVE}from mezzo.onnx.language_models.generation import load_openvino_folder as load;"
        " serve(load)",
    ),
)  # fmt: skip
PROMPT_TOKENS, NEW_TOKENS, ROUNDS = 128, 64, 8
_MOST_THREADS, _SEED = 1024, 0
_MODELS = ("*.onnx*", "openvino_model.*")  # with their data


def bench_folders(
    folders: Sequence[str | os.PathLike[str]],
    *,
    threads: int | None = None,
    runs: int | None = None,
    progress: Progress | None = None,
) -> TokenTimings:
    """Time language models side by side in onnxruntime-genai or OpenVINO GenAI: tokens of a prompt,
    and new ones.

    Each folder is loaded in its own process, and the processes run in turns. A turn reads a prompt
    of 128 random tokens and writes 64 after it. A folder that does not run has a `fault`; the
    others go on.

    Args:
        folders: folders of onnxruntime-genai or OpenVINO GenAI, as `mezzo.llm` writes them; the
            first is the reference for the others.
        threads: threads of the runtime; by default the runtime decides.
        runs: timed turns of each folder; 8 by default.

    Raises:
        InputError: an option or a folder is at fault, or its runtime is not installed.
    """
    paths = [Path(folder) for folder in folders]
    if not paths:
        raise InputError("there is no folder to time; give one or more")
    for name, value, most in (("runs", runs, None), ("threads", threads, _MOST_THREADS)):
        if value is not None and not 1 <= value <= (most or value):
            raise InputError(f"{option(name)} is {value}; give 1{f' to {most}' if most else ''}")
    runtimes = [_find_runtime(path) for path in paths]
    sizes = [_read_vocabulary(path, each) for path, each in zip(paths, runtimes, strict=True)]
    prompt = _draw_prompt(min(sizes))
    for runtime in runtimes:
        if find_spec(runtime.module) is None:
            raise missing(runtime.package, "tokens per second")
    before = find_load()
    with ExitStack() as open_:
        workers = [
            open_.enter_context(closing(_Worker(path, runtime, prompt, threads)))
            for path, runtime in zip(paths, runtimes, strict=True)
        ]  # each loads while none runs
        rounds = runs or ROUNDS
        for number in range(rounds):
            if progress is not None:
                progress("timing", number, rounds)
            for worker in workers if number % 2 == 0 else workers[::-1]:
                worker.take_turn()
        rows = tuple(
            _row(path, worker, workers) for path, worker in zip(paths, workers, strict=True)
        )
    after = find_load()
    return TokenTimings(
        runtime=", ".join(dict.fromkeys(worker.runtime for worker in workers)),
        machine=find_machine(),
        cores=count_cores(), threads=threads, prompt_tokens=PROMPT_TOKENS, new_tokens=NEW_TOKENS,
        load=None if before is None or after is None else Load(before, after), folders=rows,
    )  # fmt: skip


def _find_runtime(folder: Path) -> _Runtime:
    """The runtime that a folder is for. Raises InputError: it is for none."""
    packages = " or ".join(runtime.package for runtime in _RUNTIMES)
    if not folder.is_dir():
        raise InputError(f"{os.fspath(folder)!r} is no folder; time folders of {packages} together")
    for runtime in _RUNTIMES:
        if (folder / runtime.mark).is_file():
            return runtime
    raise InputError(describe_folder(folder))


def _read_vocabulary(folder: Path, runtime: _Runtime) -> int:
    """The number of tokens of a model. Raises InputError: its config lacks it."""
    if not (folder / runtime.config).is_file():
        raise InputError(f"{os.fspath(folder)!r} has no {runtime.config}; get it again")
    if runtime.config == CONFIG:
        config = read_config(folder, CONFIG)["model"]
    else:
        config = read_object(folder, runtime.config)
    size = config.get("vocab_size")
    if not isinstance(size, int) or not 0 < size < 1 << 31:
        raise InputError(
            f"{os.fspath(folder / runtime.config)!r} has no vocab_size, the number of tokens; get"
            " it again"
        )
    return size


def _draw_prompt(vocabulary: int) -> list[int]:
    """Random tokens, of the middle half of a vocabulary: special ones are at its ends."""
    low, high = vocabulary // 4, max(vocabulary - vocabulary // 4, vocabulary // 4 + 1)
    return [int(token) for token in np.random.default_rng(_SEED).integers(low, high, PROMPT_TOKENS)]


class _Worker:
    """A process that runs one folder, and its times."""

    def __init__(
        self, folder: Path, runtime: _Runtime, prompt: Sequence[int], threads: int | None
    ) -> None:
        self.runtime = f"{runtime.package} {find_version(runtime.package) or ''}".rstrip()
        self.prefill_ns: list[float] = []
        self.decode_ns: list[float] = []
        self._process = JsonProcess(runtime.program, is_silent=True)
        request = {
            "folder": os.path.abspath(folder), "prompt": prompt, "new_tokens": NEW_TOKENS,
            "threads": threads,
        }  # fmt: skip
        self.fault: str | None = None
        self._ask(request)

    def take_turn(self) -> None:
        """Time a turn, unless an earlier one failed."""
        if self.fault is not None:
            return
        turn = self._ask({})
        if self.fault is None:
            self.prefill_ns.append(turn["prefill_ns"])
            self.decode_ns.append(turn["decode_ns"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; notes the fault if there is one."""
        self._process.send(request)
        answer = self._process.receive()
        if answer is None:
            answer = {"fault": f"its process ended with code {self._process.wait()}"}
        self.fault = answer.get("fault", self.fault)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.end()


def _row(path: Path, worker: _Worker, workers: Sequence[_Worker]) -> TokenTimes:
    name, size_bytes, reference = os.fspath(path), _size_of(path), workers[0]
    if worker.fault is not None:
        return TokenTimes(
            name=name, runtime=worker.runtime, size_bytes=size_bytes,
            is_reference=worker is reference, fault=worker.fault,
        )  # fmt: skip
    others = sum(each.fault is None for each in workers) - 1
    is_compared = worker is not reference and reference.fault is None
    speedup = speed([reference.decode_ns], [worker.decode_ns], others) if is_compared else None
    return TokenTimes(
        name=name, runtime=worker.runtime, size_bytes=size_bytes,
        is_reference=worker is reference, fault=None,
        prefill_ns=tuple(worker.prefill_ns), decode_ns=tuple(worker.decode_ns),
        prefill=spread_of([worker.prefill_ns]), decode=spread_of([worker.decode_ns]),
        speed=speedup, difference=None if speedup is None else judge_speed(speedup),
    )  # fmt: skip


def _size_of(folder: Path) -> int:
    """Bytes of a folder's models and their data."""
    paths = (path for pattern in _MODELS for path in folder.rglob(pattern))
    return sum(path.stat().st_size for path in paths if path.is_file())
