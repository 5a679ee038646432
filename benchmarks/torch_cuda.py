"""PyTorch networks on an NVIDIA GPU: mezzo.torch beside torch.compile in FP32 and TF32, autocast, and half().

    pip install "mezzo[torch]" transformers
    python benchmarks/torch_cuda.py --json out/torch-cuda.json
    python benchmarks/torch_cuda.py --train --models bert llama resnet-50 --json out/torch-cuda-training.json
    python benchmarks/torch_cuda.py --device cpu --models bert --layers 2 --batch 2 --rounds 2     # does it work?

Networks of usual widths with random weights (`torch_networks.py`). Each is a process of its own; all compile at the
same time, then one after another is timed alone, its forms in turn: medians of CUDA events around single calls. Errors
are relative L2 of the first output, or with `--train` of all gradients together, against eager FP32 without TF32 on the
same GPU. A form that raises stands in the table with what it raised.
"""

import argparse
import json
import logging
import multiprocessing
import os
import statistics
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_REFERENCE = "eager fp32"
# The most telling first, as time may run out.
FORMS = (
    _REFERENCE,
    "mezzo bf16",
    "autocast bf16",
    "compile tf32",
    "mezzo fp16",
    "autocast fp16",
    "compile fp32",
    "bfloat16()",
    "half()",
)
TRAINED = (_REFERENCE, "mezzo bf16", "autocast bf16", "compile tf32", "compile fp32")
_MODELS = ("bert", "vit", "resnet-50", "llama", "convnext", "gpt2")
_WARM = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a process is to run."""

    model: str
    layers: int
    batch: int
    device: str
    forms: tuple[str, ...]
    is_training: bool
    rounds: int
    seconds: float


@dataclass(slots=True, kw_only=True)
class Row:
    """One form of one network. `account`: graphs, casts and notes of mezzo; `failure`: what it raised."""

    model: str
    form: str
    error: float | None = None
    time_ms: float | None = None
    compile_s: float | None = None
    account: str = ""
    failure: str = ""


@dataclass(slots=True, kw_only=True)
class Call:
    """A form that ran once, and its process-wide switch."""

    run: Callable[[], Any]
    is_tf32: bool
    times_ms: list[float] = field(default_factory=list)


def _distinct(network: Any, number: int) -> None:
    """Give a network a `forward` with code of its own, as Dynamo keeps the compiled code of few backends by code."""
    forward = type(network).forward
    code = forward.__code__.replace(co_name=f"forward_{number}")
    copied = types.FunctionType(code, forward.__globals__, f"forward_{number}", forward.__defaults__)
    network.__class__ = type(f"First{number}", (type(network),), {"forward": copied})


def _made(task: Task, form: str, number: int) -> tuple[Callable[[], Any], Any]:
    """A call of a form whose result is the answer in FP32, or all gradients; and what account is asked of."""
    import torch
    from torch_networks import build, converted, without_dropout

    by, _, low_name = form.partition(" ")
    network, feeds = build(task.model, task.layers, task.batch)
    _distinct(network, number)
    if task.is_training:
        without_dropout(network)
        network.train().requires_grad_(True)
    pure = {"half()": torch.float16, "bfloat16()": torch.bfloat16}.get(by)
    to: dict[str, Any] = {"device": task.device} | ({"dtype": pure} if pure is not None else {})
    network, feeds = network.to(**to), converted(feeds, **to)
    low = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(low_name)
    run: Any = network
    if by == "mezzo":
        import mezzo.torch

        run = mezzo.torch.compile(network, to=low_name)
    elif by != "eager":
        run = torch.compile(network)

    def context() -> Any:
        return torch.autocast(task.device, dtype=low) if by == "autocast" else nullcontext()

    def infer() -> Any:
        with torch.inference_mode(), context():
            return run(feeds)

    def step() -> Any:
        network.zero_grad(set_to_none=True)
        with context():
            answer = run(feeds)
        answer.square().mean().backward()
        return [weight.grad for weight in network.parameters() if weight.grad is not None]

    return (step if task.is_training else infer), run


def _switch(is_tf32: bool) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = is_tf32
    torch.backends.cudnn.allow_tf32 = is_tf32


def _flat(answer: Any) -> Any:
    """Answer or gradients as one FP64 vector on the CPU."""
    import torch

    tensors = answer if isinstance(answer, list) else [answer]
    return torch.cat([tensor.detach().double().cpu().reshape(-1) for tensor in tensors])


def _account(run: Any) -> str:
    import mezzo.torch

    graphs = mezzo.torch.account(run).graphs
    notes = [str(graph.note) for graph in graphs if graph.note]
    return f"{len(graphs)} graphs, {sum(graph.casts for graph in graphs)} casts {' '.join(notes)}".strip()


def serve(task: Task, pipe: Connection) -> None:
    """Compile every form and tell its row; when asked, time those that ran."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    rows: list[Row] = []
    calls: dict[str, Call] = {}
    reference = None
    end = time.monotonic() + task.seconds
    for number, form in enumerate(task.forms):
        row = Row(model=task.model, form=form)
        rows.append(row)
        if time.monotonic() > end:
            row.failure = "not compiled: out of time"
            continue
        try:
            _switch("tf32" in form)
            run, compiled = _made(task, form, number)
            begin = time.perf_counter()
            answer = _flat(run())
            row.compile_s = time.perf_counter() - begin
            reference = answer if form == _REFERENCE else reference
            row.error = float((answer - reference).norm() / reference.norm())
            calls[form] = Call(run=run, is_tf32="tf32" in form)
            if form.startswith("mezzo"):
                row.account = _account(compiled)
        except Exception as error:  # noqa: BLE001  whatever a compiler raises stands in the table
            row.failure = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            print(f"{task.model}, {form}: {traceback.format_exc()[-4000:]}", file=sys.stderr, flush=True)
        print(f"{task.model}, {form}: {row.compile_s} s, error {row.error}, {row.account}", flush=True)
    pipe.send(rows)
    if not pipe.recv():
        return
    for at in range(_WARM + task.rounds):
        for call in calls.values():
            _switch(call.is_tf32)
            taken = _time_ms(call.run, task.device)
            if at >= _WARM:
                call.times_ms.append(taken)
    for row in rows:
        if row.form in calls:
            row.time_ms = statistics.median(calls[row.form].times_ms)
    if task.device == "cuda":
        torch.cuda.synchronize()
    pipe.send(rows)


def _time_ms(run: Callable[[], Any], device: str) -> float:
    """A call after one that is not timed."""
    import torch

    run()
    if device != "cuda":
        begin = time.perf_counter()
        run()
        return (time.perf_counter() - begin) * 1e3
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    run()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last))


def measure(tasks: Sequence[Task], save: Callable[[list[Row]], None]) -> list[Row]:
    """Compile all networks at once, then time one after another. `save` is given the rows so far."""
    context = multiprocessing.get_context("spawn")
    started: list[tuple[Any, Connection]] = []
    for task in tasks:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(task, theirs))
        process.start()
        theirs.close()
        started.append((process, ours))
    by_task: list[list[Row]] = []
    for task, (_, pipe) in zip(tasks, started, strict=True):
        try:
            by_task.append(pipe.recv())
        except EOFError:
            by_task.append([Row(model=task.model, form="all", failure="its process ended")])
        save([row for rows in by_task for row in rows])
    for at, (process, pipe) in enumerate(started):
        try:
            pipe.send(True)
            by_task[at] = pipe.recv()
        except (EOFError, BrokenPipeError):
            print(f"{tasks[at].model}: ended while timed", file=sys.stderr)
        process.join()
        save([row for rows in by_task for row in rows])
        print(_table(by_task[at]), flush=True)
    return [row for rows in by_task for row in rows]


def _table(rows: Sequence[Row]) -> str:
    base = next((row.time_ms for row in rows if row.form == _REFERENCE), None)
    lines = []
    for row in rows:
        speed = f"{base / row.time_ms:.2f}" if base and row.time_ms else "-"
        figures = f"{row.time_ms or 0:9.3f} ms  {speed:>6}  {row.error if row.error is not None else -1:.2e}"
        lines.append(f"{row.model:12} {row.form:14} {figures} compile {row.compile_s or 0:5.1f} s {row.failure}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    from torch_networks import NETWORKS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=tuple(NETWORKS), default=list(_MODELS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--layers", type=int, default=12, help="of transformers; the most of a stage of the others")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--rounds", type=int, default=20, help="timed calls of each form")
    parser.add_argument("--forms", nargs="+", help="by their names; all by default")
    parser.add_argument("--train", action="store_true", help="forward and backward, and errors of gradients")
    parser.add_argument("--seconds", type=float, default=3600, help="no form is compiled after this long")
    parser.add_argument("--threads", type=int, default=4, help="of each network's compiler")
    parser.add_argument("--json", type=Path, help="write every figure here")
    options = parser.parse_args(arguments)
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(options.threads)
    forms = tuple(options.forms or (TRAINED if options.train else FORMS))
    if forms[0] != _REFERENCE:
        forms = (_REFERENCE, *forms)
    tasks = [
        Task(
            model=model, layers=options.layers, batch=options.batch, device=options.device, forms=forms,
            is_training=options.train, rounds=options.rounds, seconds=options.seconds,
        )
        for model in options.models
    ]  # fmt: skip
    from gpu import find_gpu
    from torch_speed import describe_torch_environment

    environment = describe_torch_environment() | {"gpu": find_gpu()}

    def save(rows: list[Row]) -> None:
        if options.json is not None:
            document = {"environment": environment, "results": [asdict(row) for row in rows]}
            options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")

    rows = measure(tasks, save)
    print(_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
