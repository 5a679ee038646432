"""Compares how many casts converters insert, and how many nodes they bring into the low type, over the architectures.

The first table lets every tool choose by itself. The second gives mezzo each peer's choice, its FP32 nodes excluded and
its low nodes included by name, and compares only the casts, where the peer's result is valid. Peers that are not
installed for this Python are left out.

    python benchmarks/casts.py --cache out/architectures
"""

import argparse
import contextlib
import io
import json
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import onnx
from conformance import describe_environment
from converters import CONVERTERS, Settings, convert_with_fixed_nodes
from float_nodes import count_nodes, float_nodes

from mezzo.onnx.run.session import Engine, native_session

PEERS = ("onnxconverter-common", "onnxruntime-float16", "modelopt-autocast")
POLICIES = ("aggressive", "balanced")
STRATEGIES = ("mincut", "forward")


@dataclass(slots=True)
class Total:
    """Sums of one tool over all models. `worse` counts the models with more casts than the peer it is compared with."""

    tool: str
    models: int = 0
    valid: int = 0
    casts: int = 0
    low_nodes: int = 0
    float_nodes: int = 0
    time_s: float = 0.0
    worse: int = 0
    failures: list[str] | None = None


def name_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give every node of the main graph a name of its own, in place, to find it again after a conversion."""
    taken: set[str] = set()
    for position, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{position}"
        taken.add(node.name)
    return model


def convert_one(
    total: Total, name: str, model: onnx.ModelProto, to: str, convert: Callable[[], onnx.ModelProto]
) -> onnx.ModelProto | None:
    """Convert one model and add what came out to the tool's sums; None if the tool fails."""
    begin = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            converted = convert()
        total.time_s += time.perf_counter() - begin
        before, after = count_nodes(model, to), count_nodes(converted, to)
    except Exception as error:  # noqa: BLE001  a tool's failure is a result
        text = str(error).strip()
        failures = total.failures = total.failures or []
        failures.append(f"{name}: {type(error).__name__}: {text.splitlines()[0][:200] if text else ''}")
        return None
    total.models += 1
    total.valid += is_valid(converted, to)
    total.casts += after.casts - before.casts
    total.low_nodes += after.low_nodes - before.low_nodes
    total.float_nodes += after.float_nodes - before.low_nodes
    return converted


def is_valid(model: onnx.ModelProto, to: str) -> bool:
    """Say whether a result is a model at all: ONNX Runtime loads it (fp16), the checker accepts its types (bf16)."""
    try:
        if to == "fp16":
            native_session(model, Engine.ONNXRUNTIME)
        else:
            onnx.checker.check_model(model, full_check=True)
    except Exception:  # noqa: BLE001  loaders and checkers raise several unrelated types
        return False
    return True


def compare_free(models: dict[str, onnx.ModelProto], to: str, tools: dict[str, tuple[str, Settings]]) -> list[Total]:
    """Let every tool convert every model as it likes."""
    totals = []
    for label, (tool, settings) in tools.items():
        total = Total(label)
        for name, model in models.items():
            convert_one(total, name, model, to, partial(CONVERTERS[tool].convert, model, settings))
        totals.append(total)
        print(f"{label}: {total.models} models in {total.time_s:.0f} s", file=sys.stderr)
    return totals


def compare_fixed(models: dict[str, onnx.ModelProto], to: str, peer: str) -> tuple[Total, Total]:
    """Give mezzo the peer's choice of nodes; both sums are over the models of which both make valid ones."""
    settings = Settings(to, "aggressive")
    theirs, ours = Total(peer), Total(f"mezzo, {peer}'s nodes")
    for name, model in models.items():
        one, other = Total(peer), Total("mezzo")
        converted = convert_one(one, name, model, to, partial(CONVERTERS[peer].convert, model, settings))
        if converted is None or not one.valid:  # a result with clashing types has saved its casts the wrong way
            continue
        floats = {found.node.name for found in float_nodes(model, to)} - {""}
        chosen = {found.node.name: found.is_low for found in float_nodes(converted, to) if found.node.name in floats}
        high = sorted(node for node, is_low in chosen.items() if not is_low)
        low = sorted(node for node, is_low in chosen.items() if is_low)
        convert_one(other, name, model, to, partial(convert_with_fixed_nodes, model, settings, high, low))
        if other.models:
            _add(theirs, one)
            _add(ours, other)
            ours.worse += other.casts > one.casts
        else:
            ours.failures = (ours.failures or []) + (other.failures or [])
    return theirs, ours


def _add(total: Total, one: Total) -> None:
    total.models += one.models
    total.valid += one.valid
    total.casts += one.casts
    total.low_nodes += one.low_nodes
    total.float_nodes += one.float_nodes
    total.time_s += one.time_s


def print_table(free: Sequence[Total], fixed: Sequence[tuple[Total, Total]], to: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=130)
    table = Table(title=f"Casts between floating types and nodes in {to}, over the architectures")
    table.add_column("tool")
    for heading in ("models", "failed", "valid", "casts", "low nodes", "s", "models with more casts"):
        table.add_column(heading, justify="right")
    for total in free:
        table.add_row(*_cells(total), "")
    for theirs, ours in fixed:
        table.add_section()
        table.add_row(*_cells(theirs), "")
        table.add_row(*_cells(ours), str(ours.worse))
    console.print(table)
    for total in (*free, *(ours for _, ours in fixed)):
        for line in total.failures or ():
            console.print(f"{total.tool} | {line}", markup=False, highlight=False, soft_wrap=True)


def _cells(total: Total) -> tuple[str, ...]:
    low = f"{total.low_nodes}/{total.float_nodes}"
    return (
        total.tool,
        str(total.models),
        str(len(total.failures or ())),
        str(total.valid),
        str(total.casts),
        low,
        f"{total.time_s:.1f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"), help="folder of architectures.py")
    parser.add_argument("--to", choices=("fp16", "bf16"), default="fp16")
    parser.add_argument("--match", default="", help="only models whose name contains this")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--json", type=Path, default=Path("out/casts.json"))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    paths = [path for path in sorted(options.cache.glob("*.onnx")) if options.match in path.stem]
    if not paths:
        print(f"no models in {options.cache}; run architectures.py --cache {options.cache} first", file=sys.stderr)
        return 2
    models = {path.stem: name_nodes(onnx.load(path)) for path in paths}
    peers = [peer for peer in options.peers if CONVERTERS[peer].is_installed]
    for peer in sorted(set(options.peers) - set(peers)):
        print(f"{peer} is not installed for {sys.executable}; left out", file=sys.stderr)
    tools = {
        f"mezzo {policy} {strategy}": ("mezzo", Settings(options.to, policy, strategy))
        for policy in POLICIES
        for strategy in STRATEGIES
    } | {peer: (peer, Settings(options.to)) for peer in peers}
    free = compare_free(models, options.to, tools)
    fixed = [compare_fixed(models, options.to, peer) for peer in peers]
    print_table(free, fixed, options.to)
    report = {
        "environment": describe_environment("mezzo"),
        "peers": {peer: CONVERTERS[peer].version for peer in peers},
        "to": options.to,
        "free": [asdict(total) for total in free],
        "same_nodes": [[asdict(theirs), asdict(ours)] for theirs, ours in fixed],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
