"""Whole trainings by two workers whose gradients are summed in FP32, BF16 or FP16: DDP's hooks and FSDP2's policy.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_workers.py --json out/torch-learning.json
    python benchmarks/torch_workers.py --seeds 1 --steps 20                # does it work?
    python benchmarks/learning_curves.py out/torch-learning.json --baseline "DDP, compile + autocast"

The vision transformer of `learning_tasks.py`. Workers are processes of one thread each that send by gloo; each has half
of every batch, the losses are means of both, and so all ways see what one process in FP32, the baseline, sees. The file
may be that of `torch_learning.py --threads 1`, whose FP32 is the same: what stands in it is not trained again.
"""

import argparse
import logging
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from learning_rows import Record, RecordError, Row, show
from learning_tasks import NETWORKS, Steps, Task
from rich.console import Console
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch_learning import STEPS
from torch_speed import describe_torch_environment

import mezzo.torch

_WORKERS = 2
_Pending = tuple[str, int]  # a way and a seed
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Who shares the work, what compiles, and in what gradients are summed."""

    sharing: Literal["one process", "DDP", "FSDP2"]
    compiler: Literal["none", "autocast", "mezzo"]
    reduce: Literal["fp32", "bf16", "fp16"] = "fp32"


WAYS: Mapping[str, Way] = {
    "FP32": Way(sharing="one process", compiler="none"),
    "DDP, compile + autocast": Way(sharing="DDP", compiler="autocast"),
    "DDP, mezzo, gradients in FP32": Way(sharing="DDP", compiler="mezzo"),
    "DDP, mezzo, gradients in BF16": Way(sharing="DDP", compiler="mezzo", reduce="bf16"),
    "DDP, mezzo, gradients in FP16": Way(sharing="DDP", compiler="mezzo", reduce="fp16"),
    "FSDP2, mezzo, gradients in FP32": Way(sharing="FSDP2", compiler="mezzo"),
    "FSDP2, mezzo, gradients in BF16": Way(sharing="FSDP2", compiler="mezzo", reduce="bf16"),
    "FSDP2, mezzo, gradients in FP16": Way(sharing="FSDP2", compiler="mezzo", reduce="fp16"),
    "DDP, FP32": Way(sharing="DDP", compiler="none"),
}


def _prepared(network: Any, way: Way) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """The network as the workers share it, and what runs it."""
    match way.sharing:
        case "one process":
            return network, network
        case "DDP":
            shared: Any = DistributedDataParallel(network)
        case "FSDP2":
            # Its hooks stand around what is compiled in place.
            network.compile(backend="mezzo", options={"to": "bf16"})
            mesh = torch.distributed.init_device_mesh("cpu", (_WORKERS,))
            shared = fully_shard(network, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=_DTYPES[way.reduce]))
    match way.compiler:
        case "none":
            return shared, shared
        case "autocast":
            return shared, torch.compile(shared)
        case "mezzo":
            compiled = mezzo.torch.compile(shared, to="bf16", weight_grad_reduce=way.reduce)
            return shared, shared if way.sharing == "FSDP2" else compiled


def train(task: Task, name: str, seed: int, steps: int, rank: int | None) -> Row:
    """Train in one way, as one of the workers or alone."""
    torch._dynamo.reset()
    way = WAYS[name]
    shared, run = _prepared(task.network(seed).train(), way)
    making = Steps(task, shared, steps)
    losses, begin = [], time.perf_counter()
    for batch in task.batches(seed, steps):
        inputs, targets = batch if rank is None else (part.chunk(_WORKERS)[rank] for part in batch)
        with torch.autocast("cpu", torch.bfloat16) if way.compiler == "autocast" else nullcontext():
            answers = run(inputs)
        losses.append(making.make(task.loss(answers, targets)))
    time_s = time.perf_counter() - begin
    if rank is not None:
        means = torch.tensor(losses, dtype=torch.float64)
        torch.distributed.all_reduce(means)
        losses = (means / _WORKERS).tolist()
    score = task.score(_whole(task, shared, way))
    return Row(
        network=task.name,
        way=name,
        seed=seed,
        held_out=score.loss,
        accuracy=score.accuracy,
        time_s=time_s,
        losses=losses,
    )


def _whole(task: Task, shared: Any, way: Way) -> Any:
    """A network of its own that has the weights of the workers' together."""
    network = task.network(seed=0)
    weights = (shared.module if way.sharing == "DDP" else shared).state_dict()
    wholes = {key: one.full_tensor() if isinstance(one, DTensor) else one for key, one in weights.items()}
    network.load_state_dict(wholes)
    return network


def _work(
    rank: int, port: int, network: str, steps: int, pending: Sequence[tuple[str, int]], path: Path | None
) -> None:
    """What one worker does: ways with their seeds, one after the other. The first keeps the rows."""
    _be_quiet()
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=_WORKERS)
    task, record = Task(network), Record(path, _environment()) if rank == 0 else None
    for way, seed in pending:
        row = train(task, way, seed, steps, rank)
        if record is not None:
            _keep(record, row)
    torch.distributed.destroy_process_group()


def _keep(record: Record, row: Row) -> None:
    record.add(row)
    print(f"{row.way}, seed {row.seed}: {row.held_out:.4f}, {row.time_s:.0f} s", file=sys.stderr, flush=True)


def _be_quiet() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


def _environment() -> Mapping[str, Any]:
    return {**describe_torch_environment(), "threads": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="vit")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="in place of those of torch_learning.py")
    parser.add_argument("--json", type=Path, required=True, help="keep every training here, and go on with those there")
    given = parser.parse_args(arguments)
    _be_quiet()
    console = Console(width=170)
    environment = _environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    steps = given.steps or STEPS[given.network]
    try:
        record = Record(given.json, environment)
        pending = [
            (way, seed)
            for way in given.ways
            for seed in range(1, given.seeds + 1)
            if not record.has(given.network, way, seed, steps)
        ]
        alone = [(way, seed) for way, seed in pending if WAYS[way].sharing == "one process"]
        for way, seed in alone:
            _keep(record, train(Task(given.network), way, seed, steps, rank=None))
        shared = [one for one in pending if one not in alone]
        if shared:
            work = (_free_port(), given.network, steps, shared, given.json)
            torch.multiprocessing.spawn(_work, work, nprocs=_WORKERS)
        show(console, Record(given.json, environment).rows)
    except RecordError as error:
        parser.error(str(error))
    return 0


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
