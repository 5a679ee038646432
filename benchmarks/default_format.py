"""What `mezzo convert MODEL` takes on this machine, without and with data: the formats, their speed, how long it takes.

    python benchmarks/zoo.py --download --cache out/zoo
    python benchmarks/default_format.py --cache out/zoo --json out/default_format.json
    python benchmarks/default_format.py --only 'ppocr-*' nudenet

A row is a trained network, converted with `to="auto"`. "tried" has the speed over FP32 of each candidate, each on its
own runtime; "speed" that of the result; "seconds" the whole conversion. "agree" is the share of the task's answers that
are FP32's, on samples that no conversion saw, as the chosen runtime computes them, and FP16 in true precision.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import zoo
from apart import run_apart
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from zoo_networks import NETWORKS, Network

import mezzo

_COLUMNS = ("network", "data", "MB", "taken", "speed", "seconds", "agree", "tried")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A conversion: what was taken, its speed over FP32 there, and the share of the task's answers."""

    network: str
    has_data: bool
    megabytes: float
    to: str = "failed"
    target: str = ""
    speed: float | None = None
    seconds: float | None = None
    agreement: float | None = None
    tried: tuple[str, ...] = ()


def convert(network: Network, cache: Path, folder: Path, *, has_data: bool) -> Row:
    """Convert a network by default, and judge the result by its task."""
    task = zoo.open_task(network, cache)
    seen = list(task.seen[: network.int8_samples])
    path, begin = folder / "result.onnx", time.perf_counter()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        converted = mezzo.convert(task.path, path, to="auto", data=seen if has_data else None)
    seconds = time.perf_counter() - begin
    settings, measured = dict(converted.plan.settings), converted.measured
    to, target = settings["to"], settings["target"]
    judged_by = "openvino" if target == "openvino-cpu" else "onnxruntime" if "int8" in to else "emulation"
    way = zoo.Way(name="auto", to=to.partition(",")[0], title="", judge=judged_by, convert=lambda *_: (path, ""))
    timed = None if measured is None or measured.timing is None else measured.timing.models[1].speed
    return Row(
        network=network.name, has_data=has_data, megabytes=os.path.getsize(task.path) / 1e6, to=to, target=target,
        speed=None if timed is None else timed.estimate, seconds=seconds,
        agreement=zoo.judge(task, way, folder, lambda outcome: None).agreement,
        tried=() if measured is None else tuple(map(_spell, measured.tried)),
    )  # fmt: skip


def _spell(found: Any) -> str:
    speed = "-" if found.speed is None else f"{found.speed.estimate:.2f}"
    return f"{found.to} {found.target} {found.fault or speed}"


def main() -> None:
    """Measure, print a table, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/zoo"))
    parser.add_argument("--only", nargs="+", default=["*"], help="networks by name or glob")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    environment, rows = describe_environment("mezzo"), list[Row]()
    print(f"CPU features: {' '.join(environment['cpu_features'])}")
    for row in measure([each for each in NETWORKS.values() if any(fnmatch(each.name, glob) for glob in asked.only)],
                       asked.cache):  # fmt: skip
        rows.append(row)
        print(row, flush=True)
        if asked.json is not None:
            asked.json.parent.mkdir(parents=True, exist_ok=True)
            asked.json.write_text(json.dumps({**environment, "rows": [asdict(each) for each in rows]}, indent=1) + "\n")
    table = Table(*_COLUMNS)
    for row in rows:
        numbers = [("" if each is None else f"{each:.3g}") for each in (row.speed, row.seconds, row.agreement)]
        taken = f"{row.to} {row.target}".strip()
        table.add_row(row.network, "yes" if row.has_data else "", f"{row.megabytes:.1f}", taken, *numbers,
                      "; ".join(row.tried))  # fmt: skip
    Console(width=200).print(table)


def measure(networks: list[Network], cache: Path) -> Iterator[Row]:
    """Each network without and with data, each in a process of its own."""
    for network in networks:
        for has_data in (False, True):
            folder = Path(tempfile.mkdtemp(prefix="default-format-"))
            failed = Row(network=network.name, has_data=has_data, megabytes=0.0)

            work = partial(convert, network, cache, folder, has_data=has_data)
            try:
                yield run_apart(lambda report, work=work: work(), failed, limit_s=900.0, too_long=failed)
            finally:
                shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
