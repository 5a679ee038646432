"""Speed of PyTorch inference as mezzo.torch compiles it, beside eager, autocast, torch.compile, freezing and pure BF16.

    pip install "mezzo[torch]" transformers
    python benchmarks/torch_speed.py --json out/torch-speed.json
    python benchmarks/torch_speed.py --to fp16 --device cuda --threads 16
    python benchmarks/torch_speed.py --models bert resnet-50 --layers 2 --batch small --rounds 3      # does it work?

Each candidate lives in a process of its own with an empty cache of Inductor's, so compile times are of equal, cold
caches, and no candidate pays for another's guards. Candidates take turns: each rests 20 ms, makes a call that is not
timed and one that is. Every candidate gives its first output in FP32. Errors are relative L2 of that against eager
FP64. Speeds are multiples of those of compile + autocast, and of the same frozen. "Planning" is the time of the planner
for 20 nodes of the graph, reading and rewriting included, with the machine as busy as it is.
"""

import argparse
import json
import logging
import math
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from conformance import describe_environment
from rich.console import Console
from rich.table import Table

BATCHES = {"small": 1, "medium": 8}
_REST_S = 0.02
_BF16_FEATURES = frozenset({"amx_bf16", "avx512_bf16"})
_PER_NODES = 20
_BASE, _FROZEN_BASE = "compile + autocast", "compile + autocast, frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A way to run a network. `by` is "eager", "compile" or "mezzo"."""

    by: str
    is_autocast: bool = False
    is_pure: bool = False
    is_frozen: bool = False
    is_last: bool = False

    @property
    def name(self) -> str:
        precision = " + autocast" * self.is_autocast + ", pure" * self.is_pure
        return f"{self.by}{precision}{', frozen' * self.is_frozen}{', channels last' * self.is_last}"


CANDIDATES = (
    Candidate(by="eager"),
    Candidate(by="eager", is_autocast=True),
    Candidate(by="compile"),
    Candidate(by="compile", is_frozen=True),
    Candidate(by="compile", is_autocast=True),
    Candidate(by="compile", is_autocast=True, is_frozen=True),
    Candidate(by="compile", is_pure=True),
    Candidate(by="compile", is_pure=True, is_frozen=True),
    Candidate(by="mezzo"),
    Candidate(by="mezzo", is_frozen=True),
)
_CHANNELS_LAST = (
    Candidate(by="compile", is_autocast=True, is_last=True),
    Candidate(by="compile", is_pure=True, is_last=True),
    Candidate(by="mezzo", is_last=True),
)


R = TypeVar("R", bound="Timed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a process is to run."""

    model: str
    layers: int
    batch: int
    low: str
    device: str
    threads: int


@dataclass(slots=True, kw_only=True)
class Timed:
    """What took turns. Times are in milliseconds."""

    times_ms: list[float] = field(default_factory=list)
    failure: str | None = None

    @property
    def median_ms(self) -> float | None:
        return statistics.median(self.times_ms) if self.times_ms else None


@dataclass(slots=True, kw_only=True)
class Row(Timed):
    """One candidate on one network. Times are in milliseconds, but for that of compiling."""

    model: str
    batch: str
    candidate: str
    error: float | None = None
    compile_s: float | None = None
    planning_ms: float | None = None
    nodes: int | None = None


def serve(task: Task, candidate: Candidate, cache: str, pipe: Connection) -> None:
    """Build and compile a candidate, tell its answer, and time a call whenever that is asked for."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(task.threads)
    planned: list[tuple[float, int]] = []
    try:
        call = _prepared(task, candidate, planned)
        begin = time.perf_counter()
        answer = call()
        compile_s = time.perf_counter() - begin
    except Exception as error:  # noqa: BLE001  # whatever a compiler raises stands in the table
        pipe.send(spell_raised(error))
        return
    pipe.send((answer.double().cpu().numpy(), compile_s, planned))
    time_when_asked(pipe, call)


def spell_raised(error: Exception) -> str:
    """What stands in the table for a candidate that cannot run."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def time_when_asked(
    pipe: Connection, call: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> None:
    """Time a call whenever that is asked for: after a rest, and one that is not timed."""
    while pipe.recv():
        time.sleep(_REST_S)
        call()
        begin = clock()
        call()
        pipe.send((clock() - begin) * 1e3)


def _prepared(task: Task, candidate: Candidate, planned: list[tuple[float, int]]) -> Callable[[], Any]:
    """A call of a candidate, from its first, which compiles, to the end of what it starts."""
    import torch
    import torch._inductor.config
    from torch_networks import build, converted

    low = {"bf16": torch.bfloat16, "fp16": torch.float16}[task.low]
    network, feeds = build(task.model, task.layers, task.batch)
    to: dict[str, Any] = {"device": task.device}
    to |= {"dtype": low} if candidate.is_pure else {}
    to |= {"memory_format": torch.channels_last} if candidate.is_last else {}
    network, feeds = network.to(**to), converted(feeds, **to)
    run: Any = network
    if candidate.by == "compile":
        run = torch.compile(network)
    elif candidate.by == "mezzo":
        import mezzo.torch

        _watch(planned)
        run = mezzo.torch.compile(network, to=task.low, freeze=candidate.is_frozen)

    def call() -> Any:
        cast = torch.autocast(task.device, dtype=low) if candidate.is_autocast else nullcontext()
        with torch.no_grad(), cast:
            answer = run(feeds)
        if task.device == "cuda":
            torch.cuda.synchronize()
        return answer

    freezes = candidate.is_frozen and candidate.by == "compile"
    # Dynamo looks at this while it traces, and every call here has the shapes of the first.
    patch: AbstractContextManager[Any] = torch._inductor.config.patch(freezing=True) if freezes else nullcontext()
    state = {"is_first": True}

    def first_or_later() -> Any:
        if not state["is_first"]:
            return call()
        state["is_first"] = False
        with patch:
            return call()

    return first_or_later


def _watch(planned: list[tuple[float, int]]) -> None:
    """Note how long the planner takes for each graph, and how many nodes that has."""
    from mezzo.torch.compiler import passes

    rewrite = passes.rewrite

    def timed(program: Any, options: Any) -> Any:
        nodes, begin = len(program.graph.nodes), time.perf_counter()
        made = rewrite(program, options)
        planned.append(((time.perf_counter() - begin) * 1e3, nodes))
        return made

    passes.rewrite = timed


def exact(task: Task) -> np.ndarray:
    """The answer of eager FP64, on the CPU."""
    import torch
    from torch_networks import build, converted

    torch.set_num_threads(task.threads)
    network, feeds = build(task.model, task.layers, task.batch)
    with torch.no_grad():
        answer: np.ndarray = network.double()(converted(feeds, dtype=torch.float64)).numpy()
    return answer


def measure(task: Task, batch: str, candidates: Sequence[Candidate], rounds: int) -> list[Row]:
    """Start a process for each candidate, one after another, then let them take turns."""
    reference = exact(task)
    rows = [Row(model=task.model, batch=batch, candidate=candidate.name) for candidate in candidates]
    calls = [(task, candidate) for candidate in candidates]
    take_turns(serve, calls, rows, lambda row, said: _greet(row, said, reference), rounds)
    return rows


def take_turns(
    serve: Callable[..., None],
    calls: Sequence[tuple[Any, ...]],
    rows: Sequence[R],
    greet: Callable[[R, Any], None],
    rounds: int,
) -> None:
    """Start `serve` with each call's arguments, a cache and a pipe, in a process of its own, one after another; then
    let those that run be timed in turn. `greet` takes down what a process tells of itself first; text is why it fails.
    """
    context = multiprocessing.get_context("spawn")
    pipes: list[tuple[R, Connection]] = []
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for number, (call, row) in enumerate(zip(calls, rows, strict=True)):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(*call, str(Path(folder) / str(number)), theirs), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            try:
                said = ours.recv()
            except EOFError:
                said = "its process ended"
            if isinstance(said, str):
                row.failure = said
            else:
                greet(row, said)
                pipes.append((row, ours))
        for _ in range(rounds):
            for row, pipe in pipes:
                pipe.send(True)
                row.times_ms.append(pipe.recv())
        for _, pipe in pipes:
            pipe.send(False)
        for process in processes:
            process.join()


def _greet(row: Row, said: Any, reference: np.ndarray) -> None:
    """Take down what a candidate tells of itself."""
    answer, row.compile_s, planned = said
    row.error = float(np.linalg.norm(answer - reference) / np.linalg.norm(reference))
    if planned:
        row.nodes = sum(nodes for _, nodes in planned)
        row.planning_ms = sum(taken for taken, _ in planned)


def _over(row: Row, base: Row | None) -> str:
    own, other = row.median_ms, None if base is None else base.median_ms
    return "-" if own is None or other is None else f"{other / own:.2f}"


def show(console: Console, rows: Sequence[Row]) -> None:
    """One table: speeds, errors, and what compiling takes."""
    table = Table()
    columns = (
        "model", "batch", "candidate", "ms", "least", f"over {_BASE}", "over that frozen", "error", "compile s",
        "over", "planning, ms / 20 nodes",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    by_name = {(row.model, row.batch, row.candidate): row for row in rows}
    for row in rows:
        base, frozen = (by_name.get((row.model, row.batch, name)) for name in (_BASE, _FROZEN_BASE))
        if row.failure is not None:
            table.add_row(row.model, row.batch, row.candidate, row.failure)
            continue
        planning = "-"
        if row.planning_ms is not None and row.nodes:
            planning = f"{row.planning_ms * _PER_NODES / row.nodes:.2f}"
        compiling = "-"
        if base is not None and base.compile_s and row.compile_s and not row.candidate.startswith("eager"):
            compiling = f"{row.compile_s / base.compile_s:.2f}"
        table.add_row(
            row.model, row.batch, row.candidate, f"{row.median_ms:.2f}" if row.times_ms else "-",
            f"{min(row.times_ms):.2f}" if row.times_ms else "-", _over(row, base), _over(row, frozen),
            f"{row.error:.2e}", f"{row.compile_s:.1f}", compiling, planning,
        )  # fmt: skip
    console.print(table)
    for batch in dict.fromkeys(row.batch for row in rows):
        for name, against in (("mezzo", _BASE), ("mezzo, frozen", _FROZEN_BASE), ("mezzo", "compile, pure")):
            _sum_up(console, by_name, batch, name, against)


def _sum_up(console: Console, by_name: Mapping[tuple[str, str, str], Row], batch: str, name: str, against: str) -> None:
    ratios = []
    for (model, size, candidate), row in by_name.items():
        other = by_name.get((model, batch, against))
        if size == batch and candidate == name and other is not None and row.median_ms and other.median_ms:
            ratios.append(other.median_ms / row.median_ms)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        console.print(f"batch {batch}: {name} over {against}, geometric mean of {len(ratios)} networks {mean:.3f}")


def describe_torch_environment() -> dict[str, Any]:
    """Versions, PyTorch's among them, and CPU, for the JSON file."""
    environment = describe_environment("mezzo")
    for name in ("torch", "transformers"):
        try:
            environment["versions"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # transformers is for those benchmarks whose networks it has
            continue
    return environment


def main(arguments: Sequence[str] | None = None) -> int:
    from torch_networks import CONVOLUTIONAL, NETWORKS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--batch", nargs="+", choices=tuple(BATCHES), default=list(BATCHES))
    parser.add_argument("--layers", type=int, default=12, help="of transformers; the most of a stage of the others")
    parser.add_argument("--to", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20, help="timed calls of each candidate")
    parser.add_argument("--candidates", nargs="*", default=[], help="by their names; all by default")
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args(arguments)
    console = Console(width=170)
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", markup=False)
    if given.device == "cpu" and given.to == "bf16" and not _BF16_FEATURES.intersection(environment["cpu_features"]):
        console.print("This CPU has neither AMX nor AVX512-BF16: oneDNN emulates BF16, and no speed here is a figure.")
    rows: list[Row] = []
    for model in given.models:
        candidates = CANDIDATES + (_CHANNELS_LAST if model in CONVOLUTIONAL else ())
        chosen = [one for one in candidates if not given.candidates or one.name in given.candidates]
        for batch in given.batch:
            task = Task(
                model=model, layers=given.layers, batch=BATCHES[batch], low=given.to, device=given.device,
                threads=given.threads,
            )  # fmt: skip
            rows += measure(task, batch, chosen, given.rounds)
            print(f"{model}, batch {batch}: done", file=sys.stderr, flush=True)
            if given.json is not None:
                document = {"environment": environment, "asked": {**vars(given), "json": str(given.json)}}
                given.json.parent.mkdir(parents=True, exist_ok=True)
                document["results"] = [asdict(row) for row in rows]
                given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    show(console, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
