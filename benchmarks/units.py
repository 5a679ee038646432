"""Compares the units that mezzo states with the kernels that runtimes make, over the exports of architectures.

    python benchmarks/units.py --cache out/architectures --target onnxruntime-cpu openvino-cpu

For every pattern: units that lie inside one kernel of the runtime's graph, units of which the runtime kept only a part
together, and units whose nodes are all apart or gone. Then, by the runtime's own kernels: how many of them some unit
holds whole, and which operators most of the others join. A unit's nodes that the runtime has dropped do not count.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from suites import architectures, operators, zoo
from units_runtimes import (
    MOVING,
    Group,
    groups_of_onnxruntime,
    groups_of_onnxruntime_cuda,
    groups_of_openvino,
    node_key,
)

import mezzo

_READERS: Mapping[str, Callable[[onnx.ModelProto], list[Group]]] = {
    "onnxruntime-cpu": groups_of_onnxruntime,
    "onnxruntime-cuda": groups_of_onnxruntime_cuda,
    "openvino-cpu": groups_of_openvino,
}
_SHOWN = 12


@dataclass(slots=True)
class Count:
    """Units of one pattern: inside one kernel, partly, apart."""

    whole: int = 0
    partly: int = 0
    apart: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Result:
    """One target over all models. `found` and `missed` count the runtime's kernels by name and operators."""

    target: str
    models: int = 0
    refused: int = 0
    patterns: dict[str, Count] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    missed_by_kernel: Counter[str] = field(default_factory=Counter)


def judge(result: Result, name: str, model: onnx.ModelProto) -> None:
    """Compare the two on one model."""
    try:
        groups = _READERS[result.target](model)
    except Exception as error:  # noqa: BLE001  any of the runtime's own
        result.refused += 1
        print(f"{name}: {result.target} refuses it: {str(error)[:100]}", file=sys.stderr)
        return
    result.models += 1
    ops = {node_key(node): node.op_type for node in model.graph.node}
    kernel_of = {key: number for number, group in enumerate(groups) for key in group.nodes}
    split = mezzo.partition(model, target=result.target)
    units = [(unit.pattern, frozenset(unit.results) & {k for k in ops if ops[k] not in MOVING}) for unit in split.units]
    for pattern, keys in units:
        if len(keys) < 2:
            continue
        count = result.patterns.setdefault(pattern, Count())
        kernels = Counter(kernel_of[key] for key in keys if key in kernel_of)
        most = max(kernels.values(), default=0)
        if most == len(keys):
            count.whole += 1
            continue
        count.partly += most > 1
        count.apart += most <= 1
        count.examples.append(f"{name}: {' '.join(sorted(keys))[:160]}")
    for group in groups:
        if any(group.nodes <= keys for _, keys in units):
            result.found[group.kernel] += 1
        else:
            result.missed_by_kernel[group.kernel] += 1
            result.missed[f"{group.kernel}: {' '.join(sorted(ops[key] for key in group.nodes))}"] += 1


def _models(suite: str, cache: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    cases = architectures(cache) if suite == "architectures" else operators() if suite == "operators" else zoo()
    for case in cases:
        yield case.name, case.model


def show(console: Console, result: Result) -> None:
    """Print both tables of a target."""
    table = Table(title=f"{result.target}: {result.models} models, {result.refused} refused")
    for column in ("pattern", "units", "in one kernel", "partly", "apart"):
        table.add_column(column, justify="left" if column == "pattern" else "right")
    for pattern, count in sorted(result.patterns.items()):
        units = count.whole + count.partly + count.apart
        table.add_row(pattern, str(units), str(count.whole), str(count.partly), str(count.apart))
    console.print(table)
    table = Table(title="the runtime's kernels of several operators")
    for column in ("kernel", "held by a unit", "not"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for kernel in sorted(result.found.keys() | result.missed_by_kernel.keys()):
        table.add_row(kernel, str(result.found[kernel]), str(result.missed_by_kernel[kernel]))
    console.print(table)
    for missed, number in result.missed.most_common(_SHOWN):
        console.print(f"  {number} not held: {missed[:140]}", markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=("architectures", "operators", "zoo"), default="architectures")
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"))
    parser.add_argument("--target", nargs="+", choices=sorted(_READERS), default=["onnxruntime-cpu"])
    parser.add_argument("--only", default="", help="models whose name holds this")
    parser.add_argument("--json", type=Path, help="write every count here")
    parser.add_argument("--examples", action="store_true", help="print units that no kernel holds")
    given = parser.parse_args(arguments)
    results = [Result(target) for target in given.target]
    for name, model in _models(given.suite, given.cache):
        if given.only in name:
            for result in results:
                judge(result, name, model)
    console = Console(width=120)
    for result in results:
        show(console, result)
        for pattern, count in sorted(result.patterns.items()) if given.examples else ():
            for example in count.examples[:8]:
                console.print(f"  {pattern}: {example}", markup=False)
    if given.json is not None:
        document = {"environment": describe_environment("mezzo"), "results": [_spell(result) for result in results]}
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0


def _spell(result: Result) -> dict[str, object]:
    patterns = {
        name: {"whole": count.whole, "partly": count.partly, "apart": count.apart}
        for name, count in sorted(result.patterns.items())
    }
    return {
        "target": result.target, "models": result.models, "refused": result.refused, "patterns": patterns,
        "kernels_held": dict(sorted(result.found.items())),
        "kernels_not_held": dict(sorted(result.missed_by_kernel.items())),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
