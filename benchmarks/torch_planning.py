"""Time that mezzo itself takes around the graphs that torch.compile hands over: reading, planning and rewriting them.

    pip install "mezzo[torch]" transformers
    python benchmarks/torch_planning.py --json out/torch-planning.json
    python benchmarks/torch_planning.py --networks bert:2 --profile       # where the time goes

Each network is planned in a process of its own. Before that, and not timed, the process compiles a small network of
three operators, so that nothing is imported later. "First" is the first time that the network's graph is planned, as
in a program that compiles it; "again" the median of five more, each on a copy of the graph as it came. Times are of the
process's CPU, on one thread, and hold no code generation. Goal: 1 ms for 20 nodes.
"""

import argparse
import cProfile
import json
import multiprocessing
import os
import pstats
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from torch_speed import describe_torch_environment

NETWORKS = ("bert:2", "bert:12", "resnet-50:6", "t5:6")
_PER_NODES = 20
_ROUNDS = 5
_WIDTH = 64
_LINES = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network. Times are of the CPU; `nodes` are those of FX graphs that were planned."""

    network: str
    layers: int
    nodes: int
    first_ms: float
    again_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self.again_ms)


def plan(network: str, layers: int, pipe: Connection, is_profiled: bool) -> None:
    """Plan a network's graphs, and tell how long that took."""
    warnings.filterwarnings("ignore")
    import torch
    from torch_models import define_nms

    define_nms()
    from torch_networks import build

    torch.set_num_threads(1)
    small = torch.nn.Sequential(torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, _WIDTH))
    _compile(small, torch.ones(2, _WIDTH), lambda program, options, rewrite: rewrite(program, options))
    first, again, nodes = [], [], []

    def measure(program: Any, options: Any, rewrite: Callable[[Any, Any], Any]) -> Any:
        copies = [_copied(program) for _ in range(_ROUNDS)]
        nodes.append(len(program.graph.nodes))
        begin = time.process_time()
        planned = rewrite(program, options)
        first.append(time.process_time() - begin)
        again.append([_time(rewrite, copy, options) for copy in copies])
        if is_profiled:
            _profile(rewrite, _copied(copies[0]), _copied(program), options)
        return planned

    model, feeds = build(network, layers, 1)
    _compile(model, feeds, measure)
    rounds = tuple(sum(taken) * 1e3 for taken in zip(*again, strict=True))
    pipe.send(Row(network=network, layers=layers, nodes=sum(nodes), first_ms=sum(first) * 1e3, again_ms=rounds))


def _compile(model: Any, feeds: Any, measure: Callable[[Any, Any, Callable[[Any, Any], Any]], Any]) -> None:
    """Call a model as mezzo compiles it, but for Inductor's code. `measure` stands where graphs are planned."""
    import torch

    from mezzo.torch.compiler import passes
    from mezzo.torch.compiler.backend import Backend
    from mezzo.torch.compiler.compiled import wrap
    from mezzo.torch.compiler.settings import read_settings

    rewrite = passes.rewrite
    passes.rewrite = lambda program, options: measure(program, options, rewrite)
    try:
        backend = Backend(read_settings({}), lambda module, inputs, **ignored: module.forward)
        with torch.no_grad():
            wrap(model, backend, dynamic=None, fullgraph=False)(feeds)
    finally:
        passes.rewrite = rewrite


def _copied(program: Any) -> Any:
    """A program whose graph may be edited."""
    graph = program.copied()
    graph.owning_module = program.graph.owning_module
    return replace(program, graph=graph)


def _time(rewrite: Callable[[Any, Any], Any], program: Any, options: Any) -> float:
    begin = time.process_time()
    rewrite(program, options)
    return time.process_time() - begin


def _profile(rewrite: Callable[[Any, Any], Any], program: Any, other: Any, options: Any) -> None:
    profile = cProfile.Profile()
    profile.runcall(rewrite, program, options)
    for order in ("cumulative", "tottime"):
        pstats.Stats(profile).sort_stats(order).print_stats(_LINES)


def measure_all(networks: Sequence[str], is_profiled: bool) -> list[Row]:
    """Plan each network in a process of its own, one after another."""
    context = multiprocessing.get_context("spawn")
    rows = []
    for asked in networks:
        name, _, layers = asked.partition(":")
        ours, theirs = context.Pipe()
        process = context.Process(target=plan, args=(name, int(layers or 12), theirs, is_profiled), daemon=True)
        process.start()
        theirs.close()
        rows.append(ours.recv())
        process.join()
        print(f"{asked}: done", file=sys.stderr, flush=True)
    return rows


def show(console: Console, rows: Sequence[Row]) -> None:
    """One table: whole times, and those for 20 nodes."""
    table = Table()
    columns = ("network", "layers", "FX nodes", "first ms", "again ms", "first, ms / 20 nodes", "again, ms / 20 nodes")
    for column in columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    for row in rows:
        share = _PER_NODES / row.nodes
        table.add_row(
            row.network, str(row.layers), str(row.nodes), f"{row.first_ms:.0f}", f"{row.median_ms:.0f}",
            f"{row.first_ms * share:.2f}", f"{row.median_ms * share:.2f}",
        )  # fmt: skip
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), metavar="NAME:LAYERS")
    parser.add_argument("--profile", action="store_true", help="print where the time of one more planning goes")
    parser.add_argument("--json", type=Path, help="write every figure here")
    given = parser.parse_args(arguments)
    environment = describe_torch_environment()
    load = os.getloadavg()
    rows = measure_all(given.networks, given.profile)
    console = Console(width=140)
    console.print(f"CPU: {environment['cpu']}; load before: {load[0]:.1f}, after: {os.getloadavg()[0]:.1f}")
    show(console, rows)
    if given.json is not None:
        document = {"environment": environment, "load": [load[0], os.getloadavg()[0]], "networks": given.networks}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        document["results"] = [asdict(row) for row in rows]
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
