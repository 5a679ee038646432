"""Converts mutated models and judges how each run ends: a result that keeps the contracts, or one line of error.

    python benchmarks/fuzz.py --cases 20000 --seed 7 --jobs 2 --save out/fuzz
    python benchmarks/fuzz.py --only 4711            # one mutant again, with its traceback

Anything else is a failure: another exception, a crash of native code, a run of more than ten seconds, a file left
behind, a result that the ONNX checker refuses. Mutants are converted in processes of their own, so that none takes the
run with it.
"""

import argparse
import json
import multiprocessing
import pickle
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import onnx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from mutations import make_neighbours, spoil  # noqa: E402
from random_models import random_model  # noqa: E402

LIMIT_S = 10.0
_MEMORY_BYTES = 6 << 30
_LARGEST_SEED_BYTES = 40_000
_NEIGHBOURS = frozenset({"data.bin", "folder", "link.bin", "loop.bin", "pipe.bin"})
CONVERTED, REFUSED, FAILED = "converted", "refused", "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the conversion of one mutant ended. `text` is the error, or what is wrong.

    `was_clean` says of a mutant that was refused, not for its options, whether the checker accepts it.
    """

    number: int
    verdict: str
    text: str
    was_clean: bool | None = None


def collect_seeds() -> list[bytes]:
    """Small models of other makers: ONNX's own operator tests, one in six, and the demo's network."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute infinities on purpose
        cases = sorted(collect_testcases(None), key=lambda case: case.name)
    found = [case.model.SerializeToString() for case in cases[::6] if case.model is not None]
    demo = ROOT / "examples" / "digits" / "digits.onnx"
    return [data for data in found if len(data) < _LARGEST_SEED_BYTES] + ([demo.read_bytes()] if demo.exists() else [])


def make_mutant(seeds: Sequence[bytes], seed: int, number: int) -> tuple[bytes, dict[str, Any]]:
    """The mutant of a number and the options it is converted with."""
    rng = random.Random(f"{seed} {number}")
    if rng.random() < 0.6:
        model = random_model(rng, rng.randint(1, 10), has_unknown=rng.random() < 0.1)
    else:
        # The demo's network is large: one in a hundred.
        model = onnx.load_model_from_string(seeds[-1] if rng.random() < 0.01 else rng.choice(seeds[:-1]))
    options: dict[str, Any] = {
        "to": rng.choice(["fp16", "bf16"]),
        "policy": rng.choice(["balanced", "balanced", "aggressive", "conservative"]),
        "strategy": rng.choice(["mincut", "mincut", "forward"]),
        "io": rng.choice(["keep", "keep", "low"]),
    }
    rare: dict[str, list[Any]] = {
        "target": ["any", "onnxruntime-cpu"],
        "out_of_range": ["clamp", "error"],
        "opset": ["keep"],
        "include": [["op:*"], ["*"], ["op:Softmax"], ["[", ""]],
        "exclude": [["op:Add"], ["*"], ["\x00"]],
        "trust_external_paths": [True],
        "io": [{"in0": "bf16"}, {"in0": options["to"], "v1": "fp32"}, {"": "fp16"}],
        "to": ["fp6", ""],
    }
    for name, values in rare.items():
        if rng.random() < (0.02 if name != "to" else 0.002):
            options[name] = rng.choice(values)
    return spoil(model, seeds[:50], rng), options


def find_new_fault(source: Path, result: Path) -> str | None:
    """What the checker has against a result that it has not against its source: what a runtime runs though the checker
    faults it is converted with a note, and is held to the strictest check that it passed.
    """
    for is_full in (True, False):
        if check_file(source, is_full=is_full) is None:
            return check_file(result, is_full=is_full)
    return None


def check_file(path: Path, *, is_full: bool = True) -> str | None:
    """What the checker, in full or without its shape inference, has against a file."""
    try:
        onnx.checker.check_model(str(path), full_check=is_full)
    except Exception as error:  # noqa: BLE001  # whatever it raises on a mutant, the mutant is not clean
        return " ".join(str(error).split())[:300] or type(error).__name__
    return None


def convert_mutant(data: bytes, options: dict[str, Any], folder: Path) -> tuple[str, str, bool]:
    """Convert a mutant from a file to a file. Returns the verdict, what there is to say, and if it blames the model."""
    import mezzo

    source, result = folder / "model.onnx", folder / "result.onnx"
    source.write_bytes(data)
    before = {path.name for path in folder.iterdir()}
    blames_model = False
    try:
        mezzo.convert(source, result, **options)
    except mezzo.MezzoError as error:
        verdict, text, blames_model = REFUSED, str(error), type(error) is not mezzo.InputError
        if "\n" in text or not text:
            verdict, text = FAILED, f"error of several lines: {text!r}"
        elif "report this model" in text:
            verdict = FAILED
    except (MemoryError, Exception) as error:  # noqa: BLE001  # what the fuzz run is for
        where = traceback.extract_tb(error.__traceback__)[-1]
        verdict, text = FAILED, f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}: {error}"
    else:
        verdict, text = CONVERTED, ""
    left = {path.name for path in folder.iterdir()} - before
    allowed = {"result.onnx", "result.onnx.data"} if verdict == CONVERTED else set()
    if left - allowed:
        return FAILED, f"left behind: {sorted(left - allowed)} ({text})", False
    if source.read_bytes() != data:
        return FAILED, "the source was changed", False
    if verdict == CONVERTED:
        fault = find_new_fault(source, result) if result.exists() else "nothing was written"
        if fault is not None:
            return FAILED, f"result is not clean: {fault}", False
    for name in left:
        (folder / name).unlink()
    return verdict, text, blames_model


def work(connection: Connection, seeds_path: str, seed: int, root: str) -> None:
    """Convert the numbers that come in, saying before each which it is."""
    warnings.simplefilter("ignore")
    _bound_memory()
    seeds: list[bytes] = pickle.loads(Path(seeds_path).read_bytes())
    folder = Path(tempfile.mkdtemp(dir=root)) / "models"
    folder.mkdir()
    (folder.parent / "outside.bin").write_bytes(bytes(4096))
    make_neighbours(folder)
    expected = {"model.onnx", *_NEIGHBOURS}
    while True:
        numbers = connection.recv()
        if numbers is None:
            return
        for number in numbers:
            data, options = make_mutant(seeds, seed, number)
            connection.send(("start", number))
            verdict, text, blames_model = convert_mutant(data, options, folder)
            was_clean = check_file(folder / "model.onnx") is None if verdict == REFUSED and blames_model else None
            connection.send(("end", Outcome(number, verdict, text, was_clean)))
            for path in folder.iterdir():
                if path.name not in expected:
                    path.unlink()
        connection.send(("idle", None))


def _bound_memory() -> None:
    try:
        import resource
    except ImportError:
        return  # not on Windows
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


class Worker:
    """A process and the mutant it is at."""

    def __init__(self, seeds_path: str, seed: int, root: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, seeds_path, seed, root), daemon=True)
        self.process.start()
        theirs.close()
        self.pending: list[int] = []
        self.at: int | None = None
        self.since = time.monotonic()

    def give(self, numbers: Sequence[int]) -> None:
        self.pending = list(numbers)
        self.connection.send(self.pending)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Run:
    """Hands batches of numbers to workers, and replaces those that die or hang."""

    def __init__(self, options: argparse.Namespace, seeds_path: str, root: str) -> None:
        self.options = options
        self.start = lambda: Worker(seeds_path, options.seed, root)
        self.numbers = list(range(options.cases - 1, -1, -1))
        self.outcomes: list[Outcome] = []

    def collect(self) -> list[Outcome]:
        workers = [self.start() for _ in range(self.options.jobs)]
        for worker in workers:
            self._feed(worker)
        while workers:
            wait([worker.connection for worker in workers], timeout=1.0)
            for worker in list(workers):
                if self._read(worker):
                    continue
                workers.remove(worker)
                if worker.pending or self.numbers:
                    workers.append(self._replace(worker))
                worker.stop()
        return sorted(self.outcomes, key=lambda outcome: outcome.number)

    def _feed(self, worker: Worker) -> bool:
        batch = [self.numbers.pop() for _ in range(min(50, len(self.numbers)))]
        worker.give(batch)
        return bool(batch)

    def _read(self, worker: Worker) -> bool:
        """Take what a worker has to say. False if it is done, dead or hanging."""
        try:
            while worker.connection.poll():
                kind, what = worker.connection.recv()
                worker.since = time.monotonic()
                if kind == "start":
                    worker.at = what
                elif kind == "end":
                    self._note(what)
                    worker.pending.remove(what.number)
                    worker.at = None
                elif not self._feed(worker):
                    return False
        except (EOFError, OSError):
            worker.process.join()
            code = worker.process.exitcode or 0
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            self._lose(worker, f"crash: {name}")
            return False
        if worker.at is not None and time.monotonic() - worker.since > LIMIT_S:
            self._lose(worker, f"hang: more than {LIMIT_S:.0f} s")
            return False
        return True

    def _lose(self, worker: Worker, text: str) -> None:
        lost = worker.at if worker.at is not None else worker.pending[0] if worker.pending else None
        if lost is not None:
            self._note(Outcome(lost, FAILED, text))
            worker.pending.remove(lost)

    def _replace(self, worker: Worker) -> Worker:
        fresh = self.start()
        if worker.pending:
            fresh.give(worker.pending)
        else:
            self._feed(fresh)
        return fresh

    def _note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if len(self.outcomes) % 2000 == 0:
            print(f"{len(self.outcomes)} of {self.options.cases}", file=sys.stderr)


def group(text: str) -> str:
    """A message without the names and numbers in it, to count alike ones together."""
    import re

    text = re.sub(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"", "'...'", text)
    return re.sub(r"-?\d[\d.e+-]*", "0", text)[:160]


def print_report(outcomes: Sequence[Outcome], time_s: float, seed: int) -> None:
    from rich.console import Console
    from rich.table import Table

    counts = Counter(outcome.verdict for outcome in outcomes)
    suspicious = [outcome for outcome in outcomes if outcome.was_clean]
    table = Table(
        title=f"fuzz: {len(outcomes)} mutants, seed {seed}, {time_s:.0f} s ({len(outcomes) / time_s:.0f} per second)"
    )
    for heading in (CONVERTED, "refused in one line", "of these clean for the checker", FAILED):
        table.add_column(heading, justify="right")
    table.add_row(*map(str, (counts[CONVERTED], counts[REFUSED], len(suspicious), counts[FAILED])))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for title, chosen in (
        ("failures", [outcome for outcome in outcomes if outcome.verdict == FAILED]),
        ("refused though the checker accepts the mutant", suspicious),
    ):
        groups: dict[str, list[Outcome]] = {}
        for outcome in chosen:
            groups.setdefault(group(outcome.text), []).append(outcome)
        if groups:
            console.print(f"{title}, alike ones together:")
        for alike in sorted(groups.values(), key=len, reverse=True):
            line = f"  {len(alike)} x (e.g. --only {alike[0].number}) {alike[0].text[:300]}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def write_report(path: Path, outcomes: Sequence[Outcome], options: argparse.Namespace, time_s: float) -> None:
    names = ("mezzo", "onnx", "onnx-ir", "onnxruntime", "numpy", "protobuf")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    report = {
        "environment": {"python": platform.python_version(), "machine": platform.machine(), "versions": versions},
        "seed": options.seed,
        "mutants": len(outcomes),
        "time_s": round(time_s, 1),
        "counts": Counter(outcome.verdict for outcome in outcomes),
        "refusals": Counter(group(outcome.text) for outcome in outcomes if outcome.verdict == REFUSED).most_common(200),
        "failures": [asdict(outcome) for outcome in outcomes if outcome.verdict == FAILED],
        "refused_though_clean": [asdict(outcome) for outcome in outcomes if outcome.was_clean],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def run_one(seeds: Sequence[bytes], seed: int, number: int, root: Path) -> int:
    """Convert one mutant in this process, with its traceback."""
    import mezzo

    data, options = make_mutant(seeds, seed, number)
    kept = Path(f"mutant-{number}.onnx")
    kept.write_bytes(data)
    print(f"{kept} ({len(data)} bytes), options {options}; the checker says: {check_file(kept) or 'clean'}")
    make_neighbours(root)
    (root / "model.onnx").write_bytes(data)
    try:
        mezzo.convert(root / "model.onnx", root / "result.onnx", **options)
    except mezzo.MezzoError as error:
        print(f"{type(error).__name__}: {error}")
        return 0
    print(f"converted; the checker says of the result: {check_file(root / 'result.onnx') or 'clean'}")
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", "--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, default=None, help="convert this mutant alone and show its traceback")
    parser.add_argument("--save", type=Path, default=Path("out/fuzz"), help="folder for the mutants that failed")
    parser.add_argument("--json", type=Path, default=Path("out/fuzz.json"))
    return parser.parse_args()


def main() -> int:
    options = _parse()
    seeds = collect_seeds()
    root = Path(tempfile.mkdtemp(prefix="mezzo-fuzz-"))
    try:
        if options.only is not None:
            return run_one(seeds, options.seed, options.only, root)
        seeds_path = root / "seeds"
        seeds_path.write_bytes(pickle.dumps(seeds))
        begin = time.monotonic()
        outcomes = Run(options, str(seeds_path), str(root)).collect()
        time_s = time.monotonic() - begin
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print_report(outcomes, time_s, options.seed)
    write_report(options.json, outcomes, options, time_s)
    failed = [outcome for outcome in outcomes if outcome.verdict == FAILED]
    for outcome in failed:
        options.save.mkdir(parents=True, exist_ok=True)
        data, used = make_mutant(seeds, options.seed, outcome.number)
        (options.save / f"{outcome.number}.onnx").write_bytes(data)
        (options.save / f"{outcome.number}.json").write_text(
            json.dumps({"text": outcome.text, "options": used}, indent=1) + "\n"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
