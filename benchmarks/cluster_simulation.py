"""What 1, 8, 64 and 512 workers would make of a 7 B and a 70 B model: a simulation, from task sizes that were measured.

    python benchmarks/cluster.py --json out/cluster.json
    python benchmarks/cluster_simulation.py --measured out/cluster.json

Nothing here was run at that size. Taken from the JSON: what a task of each kind takes per weight and sample, what it
takes to make a job ready per weight, what handing a task over costs, and how many bytes items and results have. Stated
below, as assumptions: machines, links, storage, how uneven workers are, and how values grow with a model. Every worker
is a machine; weights come to each once, over one storage. The driver hands tasks over and adds results up in their
order, one after the other, so a slow one holds the others up once four for each worker wait. A task that takes five
times the usual is begun a second time. The bottleneck is whatever is busy for the largest share of the time.
"""

import argparse
import heapq
import json
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What is assumed. A worker is so many times as fast as the process that was measured; a link's bytes per second
    are the driver's own, to which all items and results go; storage hands out weights to all workers together.
    """

    worker_speed: float = 16.0
    driver_bytes_per_s: float = 3.0e9
    worker_bytes_per_s: float = 3.0e9
    storage_bytes_per_s: float = 20.0e9
    start_s: float = 10.0
    spread: float = 0.15  # of the logarithm of what tasks take
    slow_share: float = 0.01  # of tasks that take so many times as long
    slow_times: float = 8.0
    again_times: float = 5.0
    ahead: int = 4  # of so many tasks for each worker results may wait for an earlier one, as in the crew


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One verb on one model: rounds of tasks, of which each waits for the one before."""

    verb: str
    model: str
    weights: float
    rounds: tuple[int, ...]
    task_s: float  # on one worker
    ready_s: float
    item_bytes: float
    result_bytes: float
    driver_s: float  # per task: handing over, and adding up


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it. `busy` are shares of the time in which each part was at work, workers on average."""

    verb: str
    model: str
    workers: int
    time_s: float
    moved_gib: float
    waited_s: float  # in all rounds, from the first worker that had nothing left to do to the last result
    begun_twice: int
    bottleneck: str
    busy: Mapping[str, float]


def simulate(load: Load, workers: int, world: World, seed: int) -> Outcome:
    """Run the rounds of a load on a clock."""
    rng = random.Random(seed)
    weights_bytes = 4 * load.weights
    reading_s = max(weights_bytes / world.worker_bytes_per_s, workers * weights_bytes / world.storage_bytes_per_s)
    free = [world.start_s + reading_s + load.ready_s] * workers
    busy = {"storage and links of workers": reading_s, "driver": 0.0, "link of the driver": 0.0, "workers": 0.0}
    link_s = (load.item_bytes + load.result_bytes) / world.driver_bytes_per_s
    now, waited_s, twice, driver_free = 0.0, 0.0, 0, 0.0
    for count in load.rounds:
        heapq.heapify(free)
        taken_s: list[float] = []  # when a result and all before it were there
        window = world.ahead * workers
        for number in range(count):
            may_begin = taken_s[number - window] if number >= window else now
            begin = max(heapq.heappop(free), driver_free, may_begin)
            driver_free = max(driver_free, now) + load.driver_s + link_s
            took_s = load.task_s * rng.lognormvariate(0.0, world.spread)
            if rng.random() < world.slow_share:
                took_s *= world.slow_times
            most_s = world.again_times * load.task_s
            if took_s > most_s and workers > 1:
                # Another worker begins it as it is found to be slow; the first result counts.
                again_s = most_s + load.task_s * rng.lognormvariate(0.0, world.spread)
                twice, took_s = twice + 1, min(took_s, again_s)
                busy["workers"] += took_s - most_s
            busy["workers"] += took_s
            heapq.heappush(free, begin + took_s)
            taken_s.append(max(begin + took_s, taken_s[-1] if taken_s else now))
        busy["driver"] += count * load.driver_s
        busy["link of the driver"] += count * link_s
        last = max(taken_s[-1], driver_free)
        waited_s += max(0.0, last - min(free)) if workers > 1 and count >= workers else 0.0
        now = last
        driver_free = max(driver_free, now)
    busy["workers"] /= workers
    shares = {name: spent / now for name, spent in busy.items()}
    shares["waiting of a round for its last task"] = waited_s / now
    moved = workers * weights_bytes + sum(load.rounds) * (load.item_bytes + load.result_bytes)
    bottleneck = max(shares, key=lambda name: shares[name])
    if workers > max(load.rounds) and bottleneck != "storage and links of workers":
        bottleneck = "too few tasks in a round"
    return Outcome(
        verb=load.verb, model=load.model, workers=workers, time_s=now, moved_gib=moved / _GIB, waited_s=waited_s,
        begun_twice=twice, bottleneck=bottleneck, busy=shares,
    )  # fmt: skip


def loads_of(measured: Mapping[str, Any], world: World) -> list[Load]:
    """The verbs on both models, by what was measured of a small one."""
    spent, sizes = measured["spent"], measured["bytes"]
    per_sample = measured["weights"] * measured["samples"]
    overhead_s = statistics.median(measured["overhead_s"].values())
    found = []
    # Layers and weights; a sample is a sequence of 2,048 tokens, a batch has four.
    for model, layers, weights in (("7 B", 32, 7e9), ("70 B", 80, 70e9)):
        tokens = 4 * 2048
        for verb, title, rounds in (
            ("ranges", "ranges", (1, 1023)),
            # All batches once, then up to twelve plans on all of them, one after the other; probes eight at a time.
            ("tune", "emulation", (768, *(768,) * 6, *(8,) * 5)),
        ):
            one = spent[title]
            task_s = one["time_s"] / one["tasks"] / per_sample * weights * tokens / world.worker_speed
            ready_s = one["ready_s"] / one["ready"] / measured["weights"] * weights / world.worker_speed
            kept = sizes[title]
            # Ranges hand back samples per value, and values grow with layers; tuning hands back sums per output.
            growth = layers * 20 / (measured["blocks"] * 4) if verb == "ranges" else 1.0
            found.append(
                Load(
                    verb=verb, model=model, weights=weights, rounds=rounds, task_s=task_s, ready_s=ready_s,
                    item_bytes=tokens * 8, result_bytes=kept["results"] / kept["tasks"] * growth,
                    driver_s=overhead_s * (1.0 + growth),
                )
            )  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="the JSON of benchmarks/cluster.py")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 8, 64, 512])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    world = World()
    loads = loads_of(json.loads(asked.measured.read_text()), world)
    outcomes = [simulate(load, workers, world, asked.seed) for load in loads for workers in asked.workers]
    table = Table("model", "verb", "workers", "time", "of one", "moved", "waits for stragglers", "twice", "bottleneck")
    alone = {(one.model, one.verb): one.time_s for one in outcomes if one.workers == asked.workers[0]}
    for one in outcomes:
        table.add_row(
            one.model, one.verb, str(one.workers), f"{one.time_s / 3600:.2f} h",
            f"{alone[one.model, one.verb] / one.time_s:.1f} x", f"{one.moved_gib:,.0f} GiB", f"{one.waited_s:.0f} s",
            str(one.begun_twice), f"{one.bottleneck} ({max(one.busy.values()):.0%})",
        )  # fmt: skip
    Console(width=160).print(table)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"world": asdict(world), "loads": [asdict(one) for one in loads],
                                          "outcomes": [asdict(one) for one in outcomes]}, indent=1))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
