"""Measures what judging a large model costs in time and memory, beside running it once on ONNX Runtime.

    python benchmarks/big_models.py --folder /a/folder/with/20/GB/free
    python benchmarks/big_models.py --models large --jobs plain compare ranges --memory-limit 3.0
    python benchmarks/big_models.py --models large --jobs compare ranges int8 tune --memory-limit 3.0 --memory 3GB
    python benchmarks/big_models.py --models huge --jobs plain compare --batches 1

Models with random weights and a data set of their own: "small" of 38 MB, "medium" of 1.3 GB, "large" of 4.3 GB, "huge"
of 13 GB. Each job is a process of its own, imports included: "plain" is ONNX Runtime on the same batches, others are
verbs. --memory-limit bounds from outside what a job may allocate (RLIMIT_DATA, in GB); --memory is mezzo's own bound,
by which models are cut into segments, and into how many is told.

Three peaks are told. "private": memory that no file backs (RssAnon), summed over the processes of the job and sampled
every 20 ms. "PSS": that and a share of mapped pages of files, which the system may take back at any time. "RSS": what
`getrusage` says of the job's own process, mapped pages of files included. A digest names what a job answered, so that
runs under a limit can be held against others; "replay_blocks" writes by the plan of "blocks", which comes first.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import logging
import math
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weights import Size, write_model

MODELS = {
    "small": Size(2, 512, 1024, 4096, True, True, ()),
    "medium": Size(16, 1024, 4096, 32000, True, True, ()),
    "large": Size(4, 4096, 11008, 32000, True, True, ()),
    "huge": Size(15, 4096, 11008, 32000, True, True, ()),
}
SAMPLES, TOKENS = 2, 32
MAX_ERROR = 5e-4
BLOCK_ERROR = 0.1
JOBS = (
    "plain", "convert", "ranges", "compare", "sensitivity", "tune", "int8", "corrected", "judged", "blocks",
    "replay_blocks", "tune_blocks",
)  # fmt: skip
POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job on one model. Sizes are in MB; `digest` names the answer."""

    model: str
    job: str
    process_s: float
    private_mb: float
    pss_mb: float
    rss_mb: float
    digest: str
    failure: str | None = None
    told: str = ""


# -- a job, in a process of its own -----------------------------------------------------------------------------------


def run_plain(model: Path, data: Path) -> Any:
    """Run a model on all batches, as whoever deploys it would."""
    import numpy
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    digest = hashlib.sha256()
    for path in sorted(data.iterdir()):
        with numpy.load(path) as batch:
            digest.update(session.run(None, dict(batch))[0].tobytes())
    return digest.hexdigest()


def run_verb(job: str, model: Path, data: Path, low: Path, out: Path) -> Any:
    """Do what a job says; returns its answer, None where that is what it writes."""
    import mezzo

    plan = model.with_suffix(".plan.json")
    match job:
        case "convert":
            mezzo.convert(model, low, to="fp16", overwrite=True)
        case "ranges":
            return mezzo.ranges(model, data)
        case "compare":
            return mezzo.compare(model, low, data)
        case "sensitivity":
            return mezzo.sensitivity(model, data)
        case "tune":
            mezzo.tune(model, out, data=data, max_error=MAX_ERROR, overwrite=True)
        case "int8":
            mezzo.convert(model, out, to="int8", data=data, correct="none", overwrite=True)
        case "corrected":
            mezzo.convert(model, out, to="int8", data=data, overwrite=True)
        case "blocks":
            mezzo.convert(model, out, to="int4", overwrite=True).plan.save(plan)
        case "replay_blocks":
            mezzo.convert(model, out, plan=plan, overwrite=True)
        case "tune_blocks":
            mezzo.tune(model, out, data=data, to="int4,int8w", max_error=BLOCK_ERROR, overwrite=True)
        case "judged":
            mezzo.convert(model, out, to="fp16", data=data, overwrite=True)
        case _:
            raise ValueError(f"there is no job {job!r}; choose one of {', '.join(JOBS)}")
    return None


def digest_of(answer: Any) -> str:
    """Name an answer by its numbers, every bit of them."""
    return hashlib.sha256(repr(_plain(answer)).encode()).hexdigest()[:12]


def _plain(answer: Any) -> Any:
    if dataclasses.is_dataclass(answer):
        return [(field.name, _plain(getattr(answer, field.name))) for field in dataclasses.fields(answer)]
    if isinstance(answer, Mapping):
        return [(key, _plain(held)) for key, held in answer.items()]
    if isinstance(answer, list | tuple):
        return [_plain(held) for held in answer]
    return answer


def digest_of_files(model: Path) -> str:
    """Name what was written by every byte of it."""
    digest = hashlib.sha256()
    for path in sorted(model.parent.glob(f"{model.name}*")):
        with path.open("rb") as file:
            while piece := file.read(1 << 24):
                digest.update(piece)
    return digest.hexdigest()[:12]


def run_child(job: str, limit_gb: str, memory: str, *paths: str) -> int:
    """Do a job and print its answer's digest as JSON, alone on the last line of standard output."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    if float(limit_gb):
        limit_bytes = int(float(limit_gb) * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
    model, data, low, out = map(Path, paths)
    if job == "plain":
        answer = run_plain(model, data)
    else:
        import mezzo

        told: list[str] = []
        with mezzo.memory(memory, tell=told.append) if memory else contextlib.nullcontext():
            answer = run_verb(job, model, data, low, out)
        print(*told, sep="\n", file=sys.stderr)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"digest": "" if answer is None else digest_of(answer), "rss_mb": peak_mb}))
    return 0


# -- watching it ------------------------------------------------------------------------------------------------------


class Watch:
    """Samples what a process and all that it starts hold."""

    def __init__(self, pid: int) -> None:
        self.private_kb = self.pss_kb = 0
        self._pid, self._is_over = pid, threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        turn = 0
        while not self._is_over.wait(POLL_S):
            pids = family_of(self._pid)
            self.private_kb = max(self.private_kb, sum(_field(pid, "status", "RssAnon:") for pid in pids))
            if turn % 25 == 0:  # this one walks all pages
                self.pss_kb = max(self.pss_kb, sum(_field(pid, "smaps_rollup", "Pss:") for pid in pids))
            turn += 1


def family_of(pid: int) -> list[int]:
    """A process and those that it started."""
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        try:
            waiting += map(int, Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text().split())
        except OSError:
            continue  # it ended
    return found


def _field(pid: int, file: str, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0  # it ended
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def ask(model: str, job: str, limit_gb: float, memory: str, *paths: Path) -> Row:
    """Do a job in a child and watch it."""
    begin = time.perf_counter()
    command = [sys.executable, __file__, "--child", job, str(limit_gb), memory, *map(str, paths)]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as answers:
        child = subprocess.Popen(command, stdout=answers, stderr=errors)
        watch = Watch(child.pid)
        code = child.wait()
        seconds = time.perf_counter() - begin
        watch.stop()
        errors.seek(0)
        answers.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        told = answers.read().decode().strip().splitlines()
    failure = None if not code else f"exit status {code}: {lines[-1][:200] if lines else ''}"
    answer: dict[str, Any] = json.loads(told[-1]) if failure is None else {"digest": "", "rss_mb": math.nan}
    return Row(
        model=model,
        job=job,
        process_s=seconds,
        private_mb=watch.private_kb * 1024 / 1e6,
        pss_mb=watch.pss_kb * 1024 / 1e6,
        rss_mb=answer["rss_mb"],
        digest=answer["digest"],
        failure=failure,
        told=" then ".join(line for line in lines if "segments" in line),
    )


# -- all jobs of a model ----------------------------------------------------------------------------------------------


def write_data(folder: Path, words: int, batches: int) -> None:
    """Write batches of tokens, a file for each."""
    import numpy

    folder.mkdir(exist_ok=True)
    random = numpy.random.default_rng(5)
    for number in range(batches):
        numpy.savez(folder / f"{number}.npz", ids=random.integers(0, words, (SAMPLES, TOKENS)))


def measure(options: argparse.Namespace, folder: Path, name: str) -> list[Row]:
    """Do all jobs on one model, one after the other."""
    size, source, data = MODELS[name], folder / f"{name}.onnx", folder / f"{name}.data"
    low, out = folder / f"{name}.fp16.onnx", folder / f"{name}.out.onnx"
    if not source.exists():
        write_model(size, source)
    if not data.exists():
        write_data(data, size.words, options.batches)
    jobs = list(options.jobs)
    if "compare" in jobs and "convert" not in jobs and not low.exists():
        jobs.insert(0, "convert")
    rows = []
    for job in jobs:
        os.sync()
        row = ask(name, job, options.memory_limit, options.memory, source, data, low, out)
        if not row.digest and row.failure is None:
            row = dataclasses.replace(row, digest=digest_of_files(low if job == "convert" else out))
        rows.append(row)
        print(f"{name} {job}: {rows[-1].failure or format(rows[-1].process_s, '.1f') + ' s'}", file=sys.stderr)
        for path in folder.glob(f"{name}.out.onnx*"):
            path.unlink()
    return rows


def print_table(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=120)
    table = Table(title="Judging large models, each job a process of its own")
    for heading in ("model", "job"):
        table.add_column(heading)
    for heading in ("s", "to plain", "private MB", "over plain", "PSS MB", "RSS MB", "answer"):
        table.add_column(heading, justify="right")
    plain = {row.model: row for row in rows if row.job == "plain" and row.failure is None}
    for row in rows:
        if row.failure is not None:
            table.add_row(row.model, row.job, "failed", "", f"{row.private_mb:.0f}", "", f"{row.pss_mb:.0f}")
            continue
        base = plain.get(row.model)
        beside = ("", "") if base is None else (
            f"{row.process_s / base.process_s:.1f}", f"{row.private_mb - base.private_mb:.0f}"
        )  # fmt: skip
        sizes = (f"{row.private_mb:.0f}", beside[1], f"{row.pss_mb:.0f}", f"{row.rss_mb:.0f}")
        table.add_row(row.model, row.job, f"{row.process_s:.1f}", beside[0], *sizes, row.digest)
    console.print(table)
    for row in rows:
        if row.told:
            console.print(f"{row.model} {row.job}: {row.told}", markup=False, highlight=False, soft_wrap=True)
        if row.failure is not None:
            console.print(f"{row.model} {row.job}: {row.failure}", markup=False, highlight=False, soft_wrap=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["medium"])
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--batches", type=int, default=4, help="of 2 x 32 tokens")
    parser.add_argument("--memory-limit", type=float, default=0.0, help="GB that a job may allocate; 0: no limit")
    parser.add_argument("--memory", default="", help="mezzo's own bound, such as 3GB; as without it by default")
    parser.add_argument("--folder", type=Path, help="where models go and stay; a temporary folder by default")
    parser.add_argument("--json", type=Path, default=Path("out/big_models.json"))
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return run_child(*sys.argv[2:])
    options = _parse()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="big-models-") as temporary:
        for name in options.models:
            folder = options.folder or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            rows += measure(options, folder, name)
    from conformance import describe_environment

    environment = describe_environment("mezzo")
    load = os.getloadavg()
    print(f"{environment['cpu']}: {' '.join(environment['cpu_features'])}; load {load[0]:.1f} of {os.cpu_count()} CPUs")
    print("; ".join(f"{name} {text}" for name, text in environment["versions"].items()))
    print_table(rows)
    report = {
        "environment": environment,
        "load": load,
        "batches": options.batches,
        "memory_limit_gb": options.memory_limit,
        "memory": options.memory,
        "rows": [asdict(row) for row in rows],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(row.failure for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
