"""Training steps as mezzo.torch compiles them, beside torch.compile with autocast: gradients, what is kept, and time.

    pip install "mezzo[torch]" transformers
    python benchmarks/torch_training.py --json out/torch-training.json
    python benchmarks/torch_training.py --models bert gpt2 --rounds 0             # gradients and bytes, no times
    python benchmarks/torch_training.py --threads 1 --clock processor             # on a busy machine
    python benchmarks/torch_training.py --models small-residual small-decoder --batch 16 \
        --candidates "compile + autocast" mezzo "mezzo, graphamp" "mezzo, graphamp, FP32 sums"
    python benchmarks/torch_training.py --whole --candidates "compile + autocast" mezzo "mezzo, masters"

A step is forward and backward of a network in training mode without dropout, whose loss is a fixed linear function of
its first output. Gradient errors are against eager FP64: the L2 norm over all weights, relative ("all"), and the median
over weights of each weight's own ("each"). "Kept" is what autograd holds between forward and backward beside weights
and inputs, counted by storage; "peak" is the most that a step allocates at once. With --whole a step also updates the
weights, by PyTorch's fused AdamW, or by one update that mezzo compiles. Each candidate is a process of its own with an
empty cache; they take turns at 20 ms of rest, one step that is not timed and one that is.
"""

import argparse
import itertools
import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch_speed import Timed, describe_torch_environment, spell_raised, take_turns, time_when_asked

_BASE = "compile + autocast"
_MIB = 2.0**20
_RATE = 1e-5
_CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}  # the second is for busy machines
_UNTIMED = 3  # the first step makes what the optimizer holds, the second compiles
_PRESET = {"policy": "graphamp-balanced", "strategy": "upstream"}  # products hand on FP32
_MASTERS = {"weight_update": "fp32", "weight_grad_reduce": "bf16"}
CANDIDATES: Mapping[str, Mapping[str, object]] = {
    "compile": {},
    _BASE: {},
    "mezzo": {},
    **{f"mezzo, memory {memory}": {"memory": memory} for memory in (0.0, 0.5, 0.75, 0.8, 0.85, 0.9, 1.0)},
    "mezzo, graphamp": _PRESET,
    "mezzo, graphamp, FP32 sums": {**_PRESET, "accumulate": "fp32"},
    "mezzo, masters": _MASTERS,
    "mezzo, masters, memory 0.9": {**_MASTERS, "memory": 0.9},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a process is to train."""

    model: str
    layers: int
    batch: int
    low: str
    threads: int
    is_whole: bool
    clock: str


@dataclass(slots=True, kw_only=True)
class Row(Timed):
    """One candidate on one network. Errors are relative; `kept_mib` is what lives between forward and backward,
    `peak_mib` the most that a step allocates, low copies of weights that are kept from step to step included.
    """

    model: str
    batch: int
    candidate: str
    error_all: float | None = None
    error_each: float | None = None
    loss_error: float | None = None
    kept_mib: float | None = None
    peak_mib: float | None = None
    compile_s: float | None = None


def serve(task: Task, candidate: str, cache: str, pipe: Connection) -> None:
    """Build and compile a candidate, tell of its gradients, and time a step whenever that is asked for."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(task.threads)
    try:
        network, forward, update = _prepared(task, candidate)
        begin = time.perf_counter()
        loss = forward()
        loss.backward()
        compile_s = time.perf_counter() - begin
        gradients = {
            name: one.grad.double().numpy() for name, one in network.named_parameters() if one.grad is not None
        }
        kept = _kept(network, forward)

        def step() -> None:
            forward().backward()
            update()

        for _ in range(_UNTIMED):
            step()
        network.zero_grad(set_to_none=True)
        peak = _peak(step) + sum(_copies().values()) / _MIB
    except Exception as error:  # noqa: BLE001  # whatever a compiler raises stands in the table
        pipe.send(spell_raised(error))
        return
    pipe.send((gradients, float(loss.detach()), kept, peak, compile_s))
    time_when_asked(pipe, step, _CLOCKS[task.clock])


def _prepared(task: Task, candidate: str) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """A network, what computes its loss, and what updates its weights: nothing where steps are not whole."""
    import torch

    low = {"bf16": torch.bfloat16, "fp16": torch.float16}[task.low]
    network, feeds = trained(task)
    run: Any = network
    if candidate == "mezzo" or candidate.startswith("mezzo,"):
        import mezzo.torch

        run = mezzo.torch.compile(network, to=task.low, **CANDIDATES[candidate])
    elif candidate != "eager":
        run = torch.compile(network)
    toward = direction(task)
    optimizer: Any = torch.optim.AdamW(network.parameters(), lr=_RATE, fused=True)
    if "masters" in candidate:
        optimizer = mezzo.torch.compile_update(optimizer)

    def forward() -> Any:
        network.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=low) if candidate == _BASE else nullcontext():
            made = run(feeds)
        return (made * toward(made)).mean()

    return network, forward, optimizer.step if task.is_whole else lambda: None


def trained(task: Task) -> tuple[Any, Any]:
    """A network in training mode without dropout, and its inputs."""
    from torch_networks import build, without_dropout

    network, feeds = build(task.model, task.layers, task.batch)
    network.requires_grad_(True).train()
    without_dropout(network)
    return network, feeds


def direction(task: Task) -> Callable[[Any], Any]:
    """By what the results are multiplied for the loss, made when their shape is known."""
    import torch

    held: list[Any] = []

    def toward(made: Any) -> Any:
        if not held:
            held.append(torch.randn(made.shape, generator=torch.Generator().manual_seed(7)))
        return held[0].to(made.dtype)

    return toward


def _kept(network: Any, forward: Callable[[], Any]) -> float:
    """MiB that autograd keeps for the backward, weights with their low copies apart."""
    import torch

    weights = {one.untyped_storage().data_ptr() for one in (*network.parameters(), *network.buffers())}
    weights |= _copies().keys()
    found: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward().backward()
    return sum(found.values()) / _MIB


def _peak(step: Callable[[], None]) -> float:
    """The most MiB that live at once of what a step allocates by PyTorch."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        step()
    about = found.profiler.kineto_results.events()  # type: ignore[union-attr]  # it has run
    sizes = [one.nbytes() for one in sorted(about, key=lambda one: one.start_ns()) if one.name() == "[memory]"]
    return max(itertools.accumulate(sizes), default=0) / _MIB


def _copies() -> Mapping[int, int]:
    """Low copies of weights that are kept from step to step: their bytes by where they lie."""
    from mezzo.torch.weights.weights import SHADOWS

    states = [shadow.state for shadow in SHADOWS._held.values()]
    lows = [state.low.untyped_storage() for state in states if state is not None]
    return {low.data_ptr(): low.nbytes() for low in lows}


def exact(task: Task) -> tuple[dict[str, np.ndarray], float]:
    """Gradients and loss of eager FP64."""
    import torch
    from torch_networks import converted

    torch.set_num_threads(task.threads)
    network, feeds = trained(task)
    made = network.double()(converted(feeds, dtype=torch.float64))
    loss = (made * direction(task)(made)).mean()
    loss.backward()
    gradients = {name: one.grad.numpy() for name, one in network.named_parameters() if one.grad is not None}
    return gradients, float(loss.detach())


def measure(task: Task, candidates: Sequence[str], rounds: int) -> list[Row]:
    """Start a process for each candidate, one after another, then let them take turns."""
    wanted = exact(task)
    rows = [Row(model=task.model, batch=task.batch, candidate=candidate) for candidate in candidates]
    take_turns(
        serve, [(task, candidate) for candidate in candidates], rows, lambda *said: _greet(*said, *wanted), rounds
    )
    return rows


def _greet(row: Row, said: Any, wanted: Mapping[str, np.ndarray], wanted_loss: float) -> None:
    """Take down what a candidate tells of itself."""
    gradients, loss, row.kept_mib, row.peak_mib, row.compile_s = said
    assert gradients.keys() == wanted.keys(), "the same weights have gradients"
    far = {name: float(np.linalg.norm(gradients[name] - one)) for name, one in wanted.items()}
    size = {name: float(np.linalg.norm(one)) for name, one in wanted.items()}
    row.error_all = float(np.hypot.reduce([*far.values()]) / np.hypot.reduce([*size.values()]))
    row.error_each = statistics.median(far[name] / size[name] for name in wanted if size[name])
    row.loss_error = abs(loss - wanted_loss) / abs(wanted_loss)


def show(console: Console, rows: Sequence[Row]) -> None:
    """One table, each candidate beside compile + autocast."""
    table = Table(box=None)
    columns = (
        "model",
        "batch",
        "candidate",
        "gradient error: all",
        "each",
        "kept, MiB",
        "over",
        "peak",
        "over",
        "ms",
        "speed",
        "compile s",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in ("model", "candidate") else "right")
    bases = {(row.model, row.batch): row for row in rows if row.candidate == _BASE}
    for row in rows:
        base = bases.get((row.model, row.batch))
        if row.failure is not None:
            table.add_row(row.model, str(row.batch), row.candidate, row.failure)
            continue
        time_ms = "-" if row.median_ms is None else f"{row.median_ms:.1f}"
        table.add_row(
            row.model, str(row.batch), row.candidate, f"{row.error_all:.2e}", f"{row.error_each:.2e}",
            f"{row.kept_mib:.1f}", _ratio(row.kept_mib, base and base.kept_mib),
            f"{row.peak_mib:.1f}", _ratio(row.peak_mib, base and base.peak_mib), time_ms,
            _ratio(base and base.median_ms, row.median_ms), f"{row.compile_s:.1f}",
        )  # fmt: skip
    console.print(table)


def _ratio(one: float | None, other: float | None) -> str:
    return "-" if one is None or not other else f"{one / other:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    from torch_networks import NETWORKS, SMALL

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=(*NETWORKS, *SMALL), default=list(NETWORKS))
    parser.add_argument("--batch", nargs="+", type=int, default=[4])
    parser.add_argument("--layers", type=int, default=2, help="of transformers; the most of a stage of the others")
    parser.add_argument("--to", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=tuple(_CLOCKS), default="wall", help="processor: seconds of all threads")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps of each candidate")
    parser.add_argument("--whole", action="store_true", help="a step updates the weights too")
    parser.add_argument("--candidates", nargs="+", choices=tuple(CANDIDATES), default=[_BASE, "mezzo"])
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args(arguments)
    console = Console(width=140)
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    rows: list[Row] = []
    for model in given.models:
        for batch in given.batch:
            task = Task(
                model=model,
                layers=given.layers,
                batch=batch,
                low=given.to,
                threads=given.threads,
                is_whole=given.whole,
                clock=given.clock,
            )
            rows += measure(task, given.candidates, given.rounds)
            print(f"{model}, batch {batch}: done", file=sys.stderr)
    show(console, rows)
    if given.json is not None:
        asked = {name: str(held) for name, held in vars(given).items()}
        document = {"environment": environment, "asked": asked, "rows": [asdict(row) for row in rows]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
