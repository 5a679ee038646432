"""INT8 and INT4 in PyTorch on CPUs: mezzo's, with BF16, beside its BF16, torch.compile with autocast, PyTorch's own
exported quantization (PT2E) with X86InductorQuantizer, torchao's, and torch.compile in FP32.

    pip install "mezzo[torch]" transformers torchao
    python benchmarks/torch_int8.py --json out/torch-int8.json
    python benchmarks/torch_int8.py --models bert vit --layers 2 --batch small --rounds 3      # does it work?
    python benchmarks/torch_int8.py --threads 1 --clock processor                             # on a busy machine

Each candidate lives in a process of its own and takes turns with the others, as in torch_speed.py. All are frozen.
Scales are from eight batches of random inputs; errors are relative L2 on another one, against eager FP64. PT2E
quantizes what X86InductorQuantizer asks for by default, with FP32 between, or under autocast; torchao quantizes a
network in BF16. "INT8" counts the matmuls and convolutions that mezzo's plan runs in INT8, of all of them. A candidate
that fails stands in the table with its error. On a CPU without BF16 instructions leave out those in BF16, which
PyTorch emulates; without VNNI PT2E needs `reduce_range`, activations in seven bits:

    python benchmarks/torch_int8.py --candidates "compile, fp32" "PT2E int8" "PT2E int8, reduced" "mezzo, int8"
    python benchmarks/torch_int8.py --candidates "compile, fp32" "PT2E int8, dynamic, reduced" "mezzo, int8 dynamic"

On an NVIDIA GPU:

    python benchmarks/torch_int8.py --device cuda --threads 16 --candidates "compile, fp32" "compile + autocast" \
        "torchao int8, dynamic" "mezzo, bf16" "mezzo, int8 + bf16" "mezzo, int8 dynamic + bf16"
"""

import argparse
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch_speed import (
    BATCHES,
    Task,
    Timed,
    describe_torch_environment,
    exact,
    spell_raised,
    take_turns,
    time_when_asked,
)

BASE, LOW, MIXED = "compile + autocast", "mezzo, bf16", "mezzo, int8 + bf16"
FLOATS, REDUCED, ALONE = "compile, fp32", "PT2E int8, reduced", "mezzo, int8"
INT4 = "mezzo, int4 + bf16"
PT2E, PT2E_LOW, PT2E_DYNAMIC = "PT2E int8", "PT2E int8 + autocast", "PT2E int8, dynamic + autocast"
REDUCED_DYNAMIC = "PT2E int8, dynamic, reduced"
DYNAMIC, MIXED_DYNAMIC = "mezzo, int8 dynamic", "mezzo, int8 dynamic + bf16"
TORCHAO, TORCHAO_INT4 = "torchao int8, dynamic", "torchao int4"
CANDIDATES = (
    FLOATS, BASE, PT2E, REDUCED, PT2E_LOW, PT2E_DYNAMIC, REDUCED_DYNAMIC, TORCHAO, TORCHAO_INT4, LOW, INT4, ALONE,
    MIXED, DYNAMIC, MIXED_DYNAMIC
)  # fmt: skip
PRODUCTS = frozenset({"addmm", "bmm", "convolution", "mm"})
CALIBRATED = 8  # batches
_CLOCKS = {"wall": time.perf_counter, "processor": time.thread_time}  # the second is for busy machines
_OF_MEZZO = {
    LOW: "bf16", MIXED: "int8,bf16", INT4: "int4,bf16", ALONE: "int8", DYNAMIC: "int8", MIXED_DYNAMIC: "int8,bf16"
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Row(Timed):
    """One candidate on one network. `products`: matmuls and convolutions, `int8`: those of them in INT8."""

    model: str
    batch: str
    candidate: str
    error: float | None = None
    compile_s: float | None = None
    products: int | None = None
    int8: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task(Task):
    """A network of torch_speed.py, how scales are chosen, and the clock."""

    calibrator: str
    clock: str


def serve(task: _Task, candidate: str, cache: str, pipe: Connection) -> None:
    """Compile a candidate, tell its answer, and time a call whenever that is asked for."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(task.threads)
    try:
        begin = time.perf_counter()
        with torch.no_grad():
            call, compiled = prepared(task, candidate)
            answer = call()
        plans = [plan for plan in getattr(compiled, "plans", ()) if plan is not None]
        formats = [
            str(node.precision.compute)
            for plan in plans
            for node in plan.nodes
            if node.op in PRODUCTS and node.kind == "op"
        ]
        pipe.send((answer.double().cpu().numpy(), time.perf_counter() - begin, len(formats), formats.count("int8")))
    except Exception as error:  # noqa: BLE001  # whatever a compiler raises stands in the table
        pipe.send(spell_raised(error))
        return
    time_when_asked(pipe, call, _CLOCKS[task.clock])


def prepared(task: _Task, candidate: str) -> tuple[Callable[[], Any], Any]:
    """A call of a candidate without gradients, and what it calls."""
    import torch
    import torch._inductor.config
    from torch_networks import NETWORKS, build, converted

    network, feeds = build(task.model, task.layers, task.batch)
    network, feeds = network.to(task.device), converted(feeds, device=task.device)
    make = NETWORKS[task.model][1]
    drawn = [make(task.batch, torch.Generator().manual_seed(1 + seed)) for seed in range(CALIBRATED)]
    data = [(converted(draw, device=task.device),) for draw in drawn]
    autocast = candidate in (BASE, PT2E_LOW, PT2E_DYNAMIC)
    if candidate in _OF_MEZZO:
        import mezzo.torch

        options: dict[str, Any] = {}
        if candidate in (MIXED, ALONE):
            options = {"data": data, "calibrator": task.calibrator}
        elif candidate in (DYNAMIC, MIXED_DYNAMIC):
            options = {"calibrator": "none"}
        run: Any = mezzo.torch.compile(network, to=_OF_MEZZO[candidate], freeze=True, **options)
    else:
        torch._inductor.config.freezing = True
        if candidate in (TORCHAO, TORCHAO_INT4):
            network = quantized_by_torchao(network, candidate)
            feeds = {name: feed.bfloat16() if feed.is_floating_point() else feed for name, feed in feeds.items()}
        elif candidate not in (BASE, FLOATS):
            network = quantized_by_pt2e(network, data, candidate)
        run = torch.compile(network)

    def call() -> Any:
        with torch.no_grad(), torch.autocast(task.device, torch.bfloat16, enabled=autocast):
            result = run(feeds)
        if task.device == "cuda":
            torch.cuda.synchronize()
        return result

    return call, run


def quantized_by_torchao(network: Any, candidate: str) -> Any:
    """The network in BF16 with its linear layers in INT8, ranges found at run time, or with INT4 weights."""
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    config: Any = Int8DynamicActivationInt8WeightConfig()
    if candidate == TORCHAO_INT4:
        config = PrototypeInt4WeightOnlyConfig(group_size=32)  # what packs for CPUs since torchao 0.18
    low = network.bfloat16()
    quantize_(low, config)
    return low


def quantized_by_pt2e(network: Any, data: Sequence[Any], candidate: str) -> Any:
    """The network as exported quantization makes it, with the default of X86InductorQuantizer."""
    import torch
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as quantizers

    quantizer = quantizers.X86InductorQuantizer()
    asked = {"is_dynamic": "dynamic" in candidate, "reduce_range": "reduced" in candidate}
    quantizer.set_global(quantizers.get_default_x86_inductor_quantization_config(**asked))
    watched = prepare_pt2e(torch.export.export(network, data[0]).module(), quantizer)
    for batch in data:
        watched(*batch)
    model = convert_pt2e(watched)
    move_exported_model_to_eval(model)
    for check in model.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        model.graph.erase_node(check)  # which autocast fails
    model.recompile()
    return model


def measure(task: _Task, batch: str, candidates: Sequence[str], rounds: int) -> list[Row]:
    reference = exact(task)
    rows = [Row(model=task.model, batch=batch, candidate=candidate) for candidate in candidates]

    def greet(row: Row, said: Any) -> None:
        answer, row.compile_s, row.products, row.int8 = said
        row.error = float(np.linalg.norm(answer - reference) / np.linalg.norm(reference))

    take_turns(serve, [(task, candidate) for candidate in candidates], rows, greet, rounds)
    return rows


def show(console: Console, rows: Sequence[Row]) -> None:
    """One table, and geometric means of speeds over each of the others."""
    table = Table()
    bases = [name for name in (FLOATS, BASE, LOW) if any(row.candidate == name for row in rows)]
    ratios_over = [f"over {name}" for name in bases]
    columns = ("model", "batch", "candidate", "ms", "least", *ratios_over, "error", "INT8", "compile s")
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:3] else "right")
    by_name = {(row.model, row.batch, row.candidate): row for row in rows}

    def over(row: Row, name: str) -> float | None:
        other = by_name.get((row.model, row.batch, name))
        own, theirs = row.median_ms, None if other is None else other.median_ms
        return None if own is None or theirs is None else theirs / own

    for row in rows:
        if row.failure is not None:
            table.add_row(row.model, row.batch, row.candidate, row.failure)
            continue
        ratios = [f"{ratio:.2f}" if (ratio := over(row, name)) is not None else "-" for name in bases]
        table.add_row(
            row.model, row.batch, row.candidate, f"{row.median_ms:.2f}", f"{min(row.times_ms):.2f}", *ratios,
            f"{row.error:.2e}", f"{row.int8} of {row.products}" if row.products else "-", f"{row.compile_s:.0f}",
        )  # fmt: skip
    console.print(table)
    for batch in dict.fromkeys(row.batch for row in rows):
        for own, name in ((own, name) for own in (ALONE, MIXED) for name in CANDIDATES if name != own):
            ours = [row for row in rows if row.batch == batch and row.candidate == own]
            ratios = [ratio for row in ours if (ratio := over(row, name)) is not None]
            if ratios:
                mean = float(np.exp(np.mean(np.log(ratios))))
                console.print(f"batch {batch}: {own} over {name}, geometric mean of {len(ratios)}: {mean:.3f}")


def main(arguments: Sequence[str] | None = None) -> int:
    from torch_networks import NETWORKS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS)[:9])
    parser.add_argument("--batch", nargs="+", choices=tuple(BATCHES), default=list(BATCHES))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--layers", type=int, default=12, help="of transformers; the most of a stage of the others")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--calibrator", default="minmax", help="how mezzo chooses scales")
    parser.add_argument(
        "--clock", choices=tuple(_CLOCKS), default="wall", help="processor: with one thread, of its own"
    )
    parser.add_argument("--rounds", type=int, default=20, help="timed calls of each candidate")
    parser.add_argument("--json", type=Path, default=Path("out/torch-int8.json"))
    given = parser.parse_args(arguments)
    console = Console(width=170)
    environment = describe_torch_environment()
    console.print(f"CPU: {environment['cpu']}; features: {' '.join(environment['cpu_features'])}", markup=False)
    rows: list[Row] = []
    for model in given.models:
        for batch in given.batch:
            task = _Task(
                model=model, layers=given.layers, batch=BATCHES[batch], low="bf16", device=given.device,
                threads=given.threads, calibrator=given.calibrator, clock=given.clock,
            )  # fmt: skip
            rows += measure(task, batch, given.candidates, given.rounds)
            print(f"{model}, batch {batch}: done", file=sys.stderr, flush=True)
            given.json.parent.mkdir(parents=True, exist_ok=True)
            document = {"environment": environment, "asked": {**vars(given), "json": str(given.json)}}
            given.json.write_text(json.dumps({**document, "results": [asdict(row) for row in rows]}, indent=1))
    show(console, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
