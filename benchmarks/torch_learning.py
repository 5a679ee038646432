"""Whole trainings with mezzo.torch in all its controls, beside FP32 and torch.compile with autocast, over seeds.

    pip install "mezzo[torch]" scikit-learn
    python benchmarks/torch_learning.py --json out/torch-learning.json
    python benchmarks/torch_learning.py --networks vit --seeds 1 --steps 100        # does it work?
    python benchmarks/learning_curves.py out/torch-learning.json

The networks are those of `learning_tasks.py`. A seed draws weights and batches, the same for every way, and all ways of
a network make as many steps of AdamW, its rate falling to zero. "Held out" is the cross-entropy on data that was not
trained on, in nats of digits and bits per byte of text, evaluated in FP32; digits have their accuracy beside it. What
is equal within noise is judged as `learning_curves.py` does. The file is whole after every training, and what stands in
it is not trained again: a run that was cut off goes on with the same command. `--threads 1` leaves the other cores to
others. Sums in BF16 are emulated, and slow.
"""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from learning_rows import Record, RecordError, Row, show
from learning_tasks import NETWORKS, Steps, Task
from rich.console import Console
from torch_speed import describe_torch_environment

import mezzo.torch

AUTOCAST = "compile + autocast"
MASTERS: Mapping[str, object] = {"weight_update": "fp32", "weight_grad_reduce": "bf16"}
# In the order in which they are trained, what is emulated last.
WAYS: Mapping[str, Mapping[str, object] | None] = {
    "FP32": None,
    AUTOCAST: None,
    "mezzo": {},
    "mezzo, masters": MASTERS,
    "mezzo, gradients in BF16": {"weight_grad_reduce": "bf16"},
    "mezzo, gradients in FP16": {"weight_grad_reduce": "fp16"},
    "mezzo, memory 0.9": {"memory": 0.9},
    "mezzo, sums in FP32": {"accumulate": "fp32"},
    "mezzo, masters, memory 0.9": {**MASTERS, "memory": 0.9},
    "mezzo, masters, gradients in FP32": {"weight_update": "fp32"},
    "mezzo, memory 1.0": {"memory": 1.0},
    "mezzo, tiles of 32": {"accumulate": "bf16", "tile": 32},
    "mezzo, sums in BF16": {"accumulate": "bf16"},
}
STEPS: Mapping[str, int] = {"vit": 400, "residual": 120, "language": 200}


def train(task: Task, way: str, seed: int, steps: int) -> Row:
    """Train in one way."""
    torch._dynamo.reset()
    network = task.network(seed).train()
    options = WAYS[way]
    run: Callable[[torch.Tensor], torch.Tensor]
    if options is None:
        run = torch.compile(network) if way == AUTOCAST else network
    else:
        run = mezzo.torch.compile(network, to="bf16", **options)
    making = Steps(task, network, steps)
    if options is not None and "weight_update" in options:
        mezzo.torch.compile_update(making.optimizer)
    losses, begin = [], time.perf_counter()
    for inputs, targets in task.batches(seed, steps):
        with torch.autocast("cpu", torch.bfloat16) if way == AUTOCAST else nullcontext():
            answers = run(inputs)
        losses.append(making.make(task.loss(answers, targets)))
    time_s = time.perf_counter() - begin
    score = task.score(network)
    return Row(
        network=task.name,
        way=way,
        seed=seed,
        held_out=score.loss,
        accuracy=score.accuracy,
        time_s=time_s,
        losses=losses,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, help=f"in place of {', '.join(f'{STEPS[name]} of {name}' for name in STEPS)}"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="keep every training here, and go on with those that are there")
    given = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(given.threads)
    console = Console(width=170)
    environment = {**describe_torch_environment(), "threads": given.threads}
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", highlight=False)
    try:
        record = Record(given.json, environment)
        for name in given.networks:
            task, steps = Task(name), given.steps or STEPS[name]
            for way in given.ways:
                for seed in range(1, given.seeds + 1):
                    if record.has(name, way, seed, steps):
                        continue
                    row = train(task, way, seed, steps)
                    record.add(row)
                    said = f"{name}, {way}, seed {seed}: {row.held_out:.4f}, {row.time_s:.0f} s"
                    print(said, file=sys.stderr, flush=True)
    except RecordError as error:
        parser.error(str(error))
    show(console, record.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
