"""Work on data spread over Ray's workers, beside one process: the same bytes, the time, what a task costs, and kills.

    python benchmarks/cluster.py --json out/cluster.json        # with a Python that has mezzo[ray]

A network of alike blocks is measured (ranges), probed (sensitivity) and tuned in one process and by 1, 2 and 4 workers,
which are real processes of this machine. Times are without the start of the cluster, which is told apart, and one
process uses all processors itself: on two of them two workers can win no more than what it leaves idle. "Same" compares
what each run found, and the bytes of what it keeps. A task that does nothing tells what handing one over costs. Then
workers are killed at random moments while ranges and tuning run, and what they found is compared again.
"""

import argparse
import json
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from conformance import describe_environment
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import mezzo
from mezzo.clusters.executor import RayExecutor
from mezzo.common.machine import count_cores, find_load
from mezzo.contracts.executor import in_turn


@dataclass(frozen=True, slots=True)
class Nothing:
    """A job that does nothing."""

    title: str = "nothing"

    def open(self, models: Sequence[Any]) -> Callable[[int], int]:
        return int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One verb by so many workers; 0 workers are one process."""

    verb: str
    workers: int
    time_s: float
    is_same: bool
    load: float | None


def make_model(path: Path, blocks: int, width: int) -> int:
    """Write a network of residual blocks; gives its number of weights."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for block in range(blocks):
        for half in ("a", "b"):
            name = f"w{block}{half}"
            numbers = rng.standard_normal((width, width)).astype(np.float32) / np.float32(width**0.5)
            weights.append(numpy_helper.from_array(numbers, name))
        nodes += [
            helper.make_node("MatMul", [last, f"w{block}a"], [f"h{block}"], f"up{block}"),
            helper.make_node("Gelu", [f"h{block}"], [f"g{block}"], f"gelu{block}"),
            helper.make_node("MatMul", [f"g{block}", f"w{block}b"], [f"d{block}"], f"down{block}"),
            helper.make_node("Add", [last, f"d{block}"], [f"r{block}"], f"add{block}"),
        ]
        last = f"r{block}"
    shape = ["N", width]
    graph = helper.make_graph(
        nodes, "blocks", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return 2 * blocks * width * width


def make_data(folder: Path, batches: int, samples: int, width: int) -> None:
    folder.mkdir()
    for number in range(batches):
        numbers = np.random.default_rng(number).standard_normal((samples, width)).astype(np.float32)
        np.savez(folder / f"{number:04}.npz", x=numbers)


def run_verb(verb: str, model: Path, data: Path, folder: Path) -> Any:
    """What a verb found, in a form that can be compared."""
    if verb == "ranges":
        found = mezzo.ranges(model, data, resume=folder / "ranges.npz")
        with np.load(folder / "ranges.npz") as held:
            return found, {name: held[name].tobytes() for name in held.files}
    if verb == "sensitivity":
        return mezzo.sensitivity(model, data)
    tuned = mezzo.tune(model, folder / "tuned.onnx", data=data, max_error=3e-4, resume=folder / "tuned.json")
    assert tuned.measured is not None and tuned.measured.search is not None
    search = replace(tuned.measured.search, time_s=0.0)
    files = (folder / "tuned.onnx").read_bytes(), (folder / "tuned.json").read_bytes()
    return replace(tuned.measured, search=search), tuned.plan, *files


def timed(verb: str, model: Path, data: Path) -> tuple[Any, float]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        found = run_verb(verb, model, data, Path(folder))
        return found, time.monotonic() - begin


def overhead_s(executor: RayExecutor, tasks: int = 500) -> float:
    """What handing a task over and taking its result back costs, in a row."""
    job = Nothing()
    team = executor.team(job, lambda: [], lambda: job.open([]))
    list(in_turn(team, range(2 * team.width)))
    begin = time.monotonic()
    list(in_turn(team, range(tasks)))
    return (time.monotonic() - begin) / tasks


class Weighing:
    """Adds up how many bytes items and results of a crew have, by the title of their job."""

    def __init__(self, executor: RayExecutor) -> None:
        self.sizes: dict[str, list[int]] = {}
        self._start, self._wait = executor.start, executor.wait_for
        executor.start, executor.wait_for = self.start, self.wait_for  # type: ignore[method-assign]

    def start(self, key: int, item: Any) -> Any:
        size = len(pickle.dumps(item, 5))
        task = self._start(key, item)
        held = self.sizes.setdefault(task.title, [0, 0, 0])
        held[0], held[1] = held[0] + 1, held[1] + size
        return task

    def wait_for(self, task: Any) -> Any:
        outcome = self._wait(task)
        self.sizes[task.title][2] += len(pickle.dumps(outcome, 5))
        return outcome


def killing(executor: RayExecutor, kills: int, seed: int, over: threading.Event, killed: list[int]) -> None:
    """Kill so many workers, one after the other, at random moments."""
    rng = random.Random(seed)
    while len(killed) < kills and not over.wait(rng.uniform(1.0, 6.0)):
        pids = executor.pids()
        if pids:
            os.kill(rng.choice(pids), signal.SIGKILL)
            killed.append(len(killed))


def try_kills(model: Path, data: Path, kills: int, alone: dict[str, Any]) -> dict[str, Any]:
    """Run ranges and tuning again and again until so many workers were killed."""
    over, killed, told = threading.Event(), list[int](), list[str]()
    runs = same = 0
    with mezzo.cluster("local", workers=2, tell=told.append) as executor:
        thread = threading.Thread(target=killing, args=(executor, kills, 7, over, killed))
        thread.start()
        try:
            while len(killed) < kills:
                for verb in ("ranges", "tune"):
                    runs, same = runs + 1, same + (timed(verb, model, data)[0] == alone[verb])
        finally:
            over.set()
            thread.join()
        counts = executor.counts
    return {"killed": len(killed), "lost_and_told": counts.lost, "begun_again": counts.again, "runs": runs,
            "same": same, "tasks": counts.done, "came_twice": counts.twice,
            "lines": sum("was lost" in line for line in told)}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batches", type=int, default=48)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as held:
        model, data = Path(held) / "model.onnx", Path(held) / "data"
        weights = make_model(model, asked.blocks, asked.width)
        make_data(data, asked.batches, asked.samples, asked.width)
        alone = {}
        for verb in ("ranges", "sensitivity", "tune"):
            alone[verb], time_s = timed(verb, model, data)
            rows.append(Row(verb=verb, workers=0, time_s=time_s, is_same=True, load=find_load()))
        starts, overheads, spent, sizes = {}, {}, {}, {}
        for workers in asked.workers:
            begin = time.monotonic()
            with mezzo.cluster("local", workers=workers) as executor:
                starts[workers] = time.monotonic() - begin
                overheads[workers] = overhead_s(executor)
                for verb in alone:
                    found, time_s = timed(verb, model, data)
                    row = Row(verb=verb, workers=workers, time_s=time_s, is_same=found == alone[verb], load=find_load())
                    rows.append(row)
                spent = {title: asdict(one) for title, one in executor.counts.spent.items()}
                if workers == asked.workers[-1]:
                    weighing = Weighing(executor)
                    for verb in alone:
                        timed(verb, model, data)
                    sizes = weighing.sizes
        kills = try_kills(model, data, asked.kills, alone) if asked.kills else {}
    _show(rows, starts, overheads, kills)
    document = {
        "environment": describe_environment("mezzo"), "cores": count_cores(), "weights": weights,
        "samples": asked.samples, "blocks": asked.blocks, "batches": asked.batches,
        "rows": [asdict(row) for row in rows], "start_s": starts, "overhead_s": overheads, "spent": spent,
        "bytes": {title: dict(zip(("tasks", "items", "results"), held, strict=True)) for title, held in sizes.items()},
        "kills": kills,
    }  # fmt: skip
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document, indent=1))
    return 0 if all(row.is_same for row in rows) and kills.get("same") == kills.get("runs") else 1


def _show(rows: Sequence[Row], starts: dict[int, float], overheads: dict[int, float], kills: dict[str, Any]) -> None:
    table = Table("verb", "workers", "time", "of one process", "same", "load")
    base = {row.verb: row.time_s for row in rows if not row.workers}
    for row in rows:
        who = str(row.workers) if row.workers else "one process"
        load = "" if row.load is None else f"{row.load:.1f}"
        speed = f"{base[row.verb] / row.time_s:.2f} x"
        table.add_row(row.verb, who, f"{row.time_s:.1f} s", speed, "yes" if row.is_same else "NO", load)
    console = Console()
    console.print(table)
    for workers, start_s in starts.items():
        console.print(f"{workers} workers: {start_s:.1f} s to start, {overheads[workers] * 1e3:.2f} ms per task")
    console.print(kills)


if __name__ == "__main__":
    sys.exit(main())
