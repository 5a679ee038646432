"""Converts whole suites of models and judges every result: its form, its promises, its answers in the true precision.

    python benchmarks/conformance.py --suite operators --to fp16 bf16 --policy balanced aggressive
    python benchmarks/conformance.py --suite architectures --cache out/architectures
    python benchmarks/conformance.py --converter onnxconverter-common --suite operators zoo

Prints one table and the list of exceptions, and writes all of it to --json with the versions and the CPU.
"""

import argparse
import gc
import json
import logging
import multiprocessing
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import suites
from converters import CONVERTERS, Settings
from judging import Judgement, OutOfTime, find_baseline, judge, time_limit
from suites import Case

NOTE = (
    "sound: clean, i/o kept, loads where the original does, and right. "
    "right: within 2 % (fp16) or 6 % (bf16) of each output's scale in true precision. "
    "low nodes: share of the float nodes whose schema admits the low type that run in it; a float node has a port "
    "with a type variable that admits both fp32 and the low type; bodies and called functions count, casts, constants, "
    "shape readers and control flow do not."
)
CPU_FEATURES = (
    "avx2",
    "f16c",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "amx_bf16",
    "amx_int8",
    "amx_fp16",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a suite under one setting. Pairs are (kept, asked)."""

    suite: str
    settings: str
    models: int
    sound: int  # every promise kept, idempotence apart
    converted: int
    clean: tuple[int, int]
    interface: tuple[int, int]
    loads: tuple[int, int]
    right: tuple[int, int]
    idempotent: tuple[int, int]
    low_nodes: tuple[int, int]
    casts: int
    time_s: float


def find_cases(suite: str, cache: Path) -> list[Case]:
    match suite:
        case "operators":
            return list(suites.operators())
        case "zoo":
            return list(suites.zoo())
        case "zoo-weights":
            return list(suites.zoo_weights())
        case "architectures":
            return list(suites.architectures(cache))
    raise AssertionError(f"unknown suite {suite!r}")


def judge_case(case: Case, converter: str, settings: Sequence[Settings], limit_s: float) -> list[Judgement]:
    """Judge one model under every setting, within the time limit for each."""
    convert = CONVERTERS[converter].convert
    results = []
    try:
        with time_limit(limit_s):
            baseline = find_baseline(case)
    except OutOfTime:
        why = f"the original does not run within {limit_s:.0f} s"
        return [Judgement(case.name, str(one), not_judged=why, why=[why]) for one in settings]
    for one in settings:
        try:
            with time_limit(limit_s):
                results.append(judge(case, baseline, convert, one))
        except OutOfTime:
            results.append(Judgement(case.name, str(one), why=[f"takes more than {limit_s:.0f} s"]))
    gc.collect()  # sessions hold whole copies of the weights
    return results


def _work(cases: Sequence[Case], converter: str, settings: Sequence[Settings], limit_s: float, sent: Any) -> None:
    _be_quiet()
    for case in cases:
        sent.put((case.name, judge_case(case, converter, settings, limit_s)))
    sent.put(None)


def judge_in_parallel(
    cases: Sequence[Case],
    converter: str,
    settings: Sequence[Settings],
    limit_s: float,
    jobs: int,
    tell: Callable[[], None],
) -> list[Judgement]:
    """Judge in `jobs` processes, in the order of the cases; a process that dies fails the models it had left."""
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)
    sent: Any = context.Queue()
    workers = [
        context.Process(target=_work, args=(cases[k::jobs], converter, settings, limit_s, sent)) for k in range(jobs)
    ]
    for worker in workers:
        worker.start()
    found: dict[str, list[Judgement]] = {}
    finished = 0
    while finished < jobs:
        try:
            message = sent.get(timeout=2)
        except Exception:  # noqa: BLE001  queue.Empty, or a message cut by a dying process
            if not any(worker.is_alive() for worker in workers) and sent.empty():
                break
            continue
        if message is None:
            finished += 1
        else:
            found[message[0]] = message[1]
            tell()
    for worker in workers:
        worker.join()
    lost = [Judgement("", str(one), why=["the process died on this model or one before it"]) for one in settings]
    result = []
    for case in cases:
        for judgement in found.get(case.name, lost):
            judgement.case = case.name
            result.append(Judgement(**asdict(judgement)))
    return result


def judge_suite(
    cases: Sequence[Case], converter: str, settings: Sequence[Settings], limit_s: float, jobs: int, label: str
) -> list[Judgement]:
    """Judge every case of a suite, with a progress bar on the error stream."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(label, total=len(cases))
        if jobs > 1:
            return judge_in_parallel(cases, converter, settings, limit_s, jobs, lambda: progress.advance(bar))
        results = []
        for case in cases:
            results += judge_case(case, converter, settings, limit_s)
            progress.advance(bar)
        return results


def summarize(suite: str, settings: str, judgements: Sequence[Judgement]) -> Row:
    def kept(values: Iterable[bool | None]) -> tuple[int, int]:
        asked = [value for value in values if value is not None]
        return sum(asked), len(asked)

    return Row(
        suite,
        settings,
        len(judgements),
        sum(one.is_sound for one in judgements),
        sum(one.is_converted for one in judgements),
        kept(one.is_clean for one in judgements),
        kept(one.keeps_interface for one in judgements),
        kept(one.loads for one in judgements),
        kept(one.is_right for one in judgements),
        kept(one.is_idempotent for one in judgements),
        (sum(one.low_nodes for one in judgements), sum(one.float_nodes for one in judgements)),
        sum(one.casts for one in judgements),
        sum(one.time_s for one in judgements),
    )


def print_table(rows: Sequence[Row], judgements: Sequence[tuple[str, Judgement]], converter: str) -> None:
    from rich.console import Console
    from rich.table import Table

    def share(pair: tuple[int, int]) -> str:
        return f"{pair[0]}/{pair[1]}" if pair[1] else "-"

    table = Table(title=f"{converter}: conformance", caption=NOTE)
    for heading in ("suite", "settings"):
        table.add_column(heading)
    for heading in (
        "models",
        "sound",
        "converted",
        "clean",
        "i/o kept",
        "loads",
        "right",
        "idempotent",
        "low nodes",
        "casts",
        "s",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        low = f"{share(row.low_nodes)} ({row.low_nodes[0] / row.low_nodes[1]:.1%})" if row.low_nodes[1] else "-"
        kept = map(share, (row.clean, row.interface, row.loads, row.right, row.idempotent))
        counts = (str(row.models), str(row.sound), str(row.converted), *kept, low, str(row.casts), f"{row.time_s:.1f}")
        table.add_row(row.suite, row.settings, *counts)
    console = Console() if sys.stdout.isatty() else Console(width=150)
    console.print(table)
    for suite, one in judgements:
        for line in one.why:
            console.print(
                f"{suite} | {one.settings} | {one.case}: {line}", markup=False, highlight=False, soft_wrap=True
            )
    notes = {(suite, one.case): one.not_judged for suite, one in judgements if one.not_judged}
    if notes:
        console.print(f"{len(notes)} models whose answers are judged otherwise:")
    for (suite, name), note in sorted(notes.items()):
        console.print(f"{suite} | {name}: {note}", markup=False, highlight=False, soft_wrap=True)


def describe_environment(converter: str) -> dict[str, Any]:
    """Versions and CPU, for the JSON file."""
    versions = {}
    for name in ("onnx", "onnxruntime", "onnx-ir", "numpy", "ml_dtypes"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    versions[converter] = CONVERTERS[converter].version
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    return {
        "python": platform.python_version(),
        "versions": versions,
        "machine": platform.machine(),
        "cpu": fields.get("model name", platform.processor()),
        "cpu_features": [name for name in CPU_FEATURES if name in flags],
    }


def write_report(path: Path, converter: str, rows: Sequence[Row], judgements: Sequence[tuple[str, Judgement]]) -> None:
    report = {
        "converter": converter,
        "environment": describe_environment(converter),
        "note": NOTE,
        "rows": [asdict(row) for row in rows],
        "models": [{"suite": suite} | asdict(one) for suite, one in judgements],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def _be_quiet() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ("operators", "zoo", "zoo-weights", "architectures")
    parser.add_argument("--suite", nargs="+", choices=names, default=["operators"])
    parser.add_argument("--converter", choices=CONVERTERS, default="mezzo")
    parser.add_argument("--to", nargs="+", choices=("fp16", "bf16"), default=["fp16"])
    parser.add_argument("--policy", nargs="+", default=["balanced"])
    parser.add_argument("--strategy", nargs="+", default=[None], help="the converter's default if left out")
    parser.add_argument("--cache", type=Path, default=Path("out/architectures"), help="folder of architectures.py")
    parser.add_argument("--match", default="", help="only models whose name contains this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one model under one setting")
    parser.add_argument("--json", type=Path, default=Path("out/conformance.json"))
    return parser.parse_args()


def main() -> int:
    options = _parse()
    _be_quiet()
    if not CONVERTERS[options.converter].is_installed:
        print(f"converter {options.converter!r} is not installed for {sys.executable}", file=sys.stderr)
        return 2
    settings = [Settings(to, policy, way) for to in options.to for policy in options.policy for way in options.strategy]
    rows: list[Row] = []
    judgements: list[tuple[str, Judgement]] = []
    for suite in options.suite:
        begin = time.perf_counter()
        cases = [case for case in find_cases(suite, options.cache) if options.match in case.name]
        if not cases:
            where = f"; run architectures.py --cache {options.cache} first" if suite == "architectures" else ""
            print(f"suite {suite!r} has no models{where}", file=sys.stderr)
            return 2
        found = judge_suite(cases, options.converter, settings, options.limit, options.jobs, suite)
        judgements += [(suite, one) for one in found]
        rows += [summarize(suite, str(one), [j for j in found if j.settings == str(one)]) for one in settings]
        print(f"{suite}: {len(cases)} models in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    print_table(rows, judgements, options.converter)
    write_report(options.json, options.converter, rows, judgements)
    return 1 if any(one.why for _, one in judgements) else 0


if __name__ == "__main__":
    sys.exit(main())
