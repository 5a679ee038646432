"""25 small models with the magnitudes of reports of FP16 that went wrong: who converts them right, and how much is low?

    python benchmarks/trouble_spots.py
    python benchmarks/trouble_spots.py --peers-python PYTHON --only gemma t5

The models are in tests/support/trouble_models.py. Each result is judged in the true precision on batches that no tool
saw: right is every output finite and within 1 % (relative L2). "Before" is mezzo without range repair and without
raising operators written out. Whole are attentions, as TensorRT fuses them, without a node in FP32. PYTHON has
onnxconverter-common, onnxruntime and nvidia-modelopt[onnx]; AutoCast sees the data. Ends with 1 where mezzo on data,
with its defaults, is wrong on a model.
"""

import argparse
import json
import logging
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import onnx
from conformance import describe_environment
from float_nodes import count_casts, float_nodes
from rich.console import Console
from rich.table import Table
from whole_kernels import attentions

import mezzo
from mezzo.formats.dtypes import DType

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from trouble_models import ROWS, Spot, make_spot

LARGEST_ERROR = 0.01
BEFORE: Mapping[str, str] = {"out_of_range": "protect", "fuse": "none"}
# What is known of the models without measuring them, what data shows, and that with as much low as data allows.
WAYS = (("no data", "balanced", False), ("data", "balanced", True), ("data", "aggressive", True))
PEERS = ("onnxconverter-common", "onnxruntime-float16")
Result = tuple[onnx.ModelProto, frozenset[str]]  # and the names of the original nodes in FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model converted by one tool; a fault says why the result is no answer."""

    model: str
    error: float = float("inf")
    fault: str | None = None
    low: int = 0
    nodes: int = 0
    casts: int = 0
    whole: int = 0
    attentions: int = 0
    time_s: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.fault is None and self.error <= LARGEST_ERROR


@dataclass(slots=True)
class Tool:
    """A converter with its settings, and what it made of every model."""

    name: str
    rows: list[Row] = field(default_factory=list)

    def cells(self) -> Iterator[str]:
        right = [row for row in self.rows if row.is_right]
        low, nodes = sum(row.low for row in self.rows), sum(row.nodes for row in self.rows)
        yield f"{len(right)} of {len(self.rows)}"
        yield str(sum(row.low == row.nodes for row in right))
        yield f"{low} of {nodes}, {low / max(nodes, 1):.1%}"
        yield str(sum(row.casts for row in self.rows))
        yield f"{sum(row.whole for row in self.rows)} of {sum(row.attentions for row in self.rows)}"
        yield f"{max((row.error for row in right), default=0):.1e}"
        yield f"{sum(row.time_s for row in self.rows):.0f}"


def convert_with_mezzo(spot: Spot, policy: str, sees_data: bool, target: str | None, **options: str) -> Result:
    data = list(spot.seen) if sees_data else None
    result = mezzo.convert(spot.model, policy=policy, data=data, target=target, **options)  # type: ignore[arg-type]
    high = (node.name for node in result.plan.nodes if node.precision.compute is DType.FLOAT32)
    return result.model, frozenset(high)


def read_result(path: Path) -> Result:
    """Read what another tool made of a model; its file beside it says why there is nothing."""
    if not path.exists():
        raise ValueError(path.with_suffix(".txt").read_text()[:100])
    model = onnx.load(path)
    return model, frozenset(node.node.name for node in float_nodes(model, "fp16") if not node.is_low)


def judge(spot: Spot, convert: Callable[[], Result]) -> Row:
    """Convert a model, and judge the result on batches that the converter did not see."""
    begin = time.process_time()
    try:
        model, high = convert()
        time_s = time.process_time() - begin
        compared = mezzo.compare(spot.model, model, list(spot.unseen), max_error=LARGEST_ERROR)
    except Exception as error:  # noqa: BLE001  whatever a converter raises is its failure
        return Row(model=spot.name, fault=f"{type(error).__name__}: {error}"[:200])
    nodes = list(float_nodes(model, "fp16"))
    kernels = attentions(spot.model, "tensorrt")
    return Row(
        model=spot.name,
        error=compared.verdict.error.estimate,
        fault=next((output.fault for output in compared.outputs if output.fault), None),
        low=sum(node.is_low for node in nodes),
        nodes=len(nodes),
        casts=count_casts(model) - count_casts(spot.model),
        whole=sum(high.isdisjoint(names) for names in kernels),
        attentions=len(kernels),
        time_s=time_s,
    )


def run_mezzo(spots: Sequence[Spot], targets: Sequence[str]) -> Iterator[Tool]:
    for target in targets:
        for data, policy, sees_data in WAYS:
            for moment, options in (("before", BEFORE), ("after", {})):
                tool = Tool(f"mezzo, {target}, {data}, {policy}, {moment}")
                name = None if target == "default" else target
                for spot in spots:
                    print(tool.name, spot.name, file=sys.stderr, flush=True)
                    convert = lambda: convert_with_mezzo(spot, policy, sees_data, name, **options)  # noqa: B023, E731
                    tool.rows.append(judge(spot, convert))
                yield tool


def run_peers(spots: Sequence[Spot], python: str, folder: Path) -> Iterator[Tool]:
    """Convert with the other tools, in processes of another Python, and judge what they wrote."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stems = {spot.name: re.sub(r"\W+", "-", spot.name) for spot in spots}
    for spot in spots:
        onnx.save(spot.model, folder / f"{stems[spot.name]}.onnx")
        data = folder / f"{stems[spot.name]}.data"
        data.mkdir()
        for number, feeds in enumerate(spot.seen):
            np.savez(data / f"{number}.npz", **feeds)
    here = Path(__file__).parent
    for script, names in (("peer_folder.py", PEERS), ("autocast_folder.py", ())):
        subprocess.run([python, str(here / script), str(folder), *names], check=True, stdout=subprocess.DEVNULL)
    for name in PEERS:
        version = (folder / name / "version").read_text()
        rows = [judge(spot, lambda: read_result(folder / name / f"{stems[spot.name]}.onnx")) for spot in spots]  # noqa: B023
        yield Tool(f"{name} {version}", rows)
    rows = [judge(spot, lambda: read_result(folder / f"{stems[spot.name]}.autocast.onnx")) for spot in spots]  # noqa: B023
    ask = "from importlib.metadata import version; print(version('nvidia-modelopt'))"
    version = subprocess.run([python, "-c", ask], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    yield Tool(f"ModelOpt AutoCast {version}, data", rows)


def print_tools(console: Console, tools: Sequence[Tool]) -> None:
    versions = str(describe_environment("mezzo")["versions"])
    table = Table(title="trouble spots of FP16, in its true precision", caption=versions)
    for heading in ("tool", "right", "wholly low", "low nodes", "casts", "attentions whole", "worst", "s"):
        table.add_column(heading)
    for tool in tools:
        table.add_row(tool.name, *tool.cells())
    console.print(table)
    for tool in tools:
        for row in tool.rows:
            if not row.is_right:
                console.print(f"{tool.name} | {row.model}: {row.fault or format(row.error, '.2e')}", markup=False)


def print_models(console: Console, tools: Sequence[Tool]) -> None:
    """Print, for each model, the share of low nodes and the casts by each tool, or that it is wrong."""
    table = Table(title="low nodes and casts by model; ! is wrong")
    for heading in ("model", *(tool.name for tool in tools)):
        table.add_column(heading)
    for rows in zip(*(tool.rows for tool in tools), strict=True):
        table.add_row(
            rows[0].model, *(f"{row.low}/{row.nodes}, {row.casts}{'' if row.is_right else ' !'}" for row in rows)
        )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", default=["default", "tensorrt"])
    parser.add_argument("--peers-python", default=None, help="a Python that has the other converters")
    parser.add_argument("--folder", type=Path, default=Path("out/trouble-spots"), help="takes the peers' models, anew")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of models; all if left out")
    parser.add_argument("--json", type=Path, default=Path("out/trouble_spots.json"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    spots = [make_spot(name) for name in ROWS if not options.only or any(part in name for part in options.only)]
    tools = list(run_mezzo(spots, options.targets))
    ours = [tool for tool in tools if ", data, " in tool.name and tool.name.endswith("after")]
    if options.peers_python is not None:
        tools += run_peers(spots, options.peers_python, options.folder)
    console = Console() if sys.stdout.isatty() else Console(width=160)
    print_tools(console, tools)
    print_models(console, ours)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    report = {"environment": describe_environment("mezzo"), "tools": [asdict(tool) for tool in tools]}
    options.json.write_text(json.dumps(report, indent=1))
    return 0 if all(row.is_right for tool in ours for row in tool.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
