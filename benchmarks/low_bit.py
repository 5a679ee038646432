"""Weights in 4 and 8 bits of trained language models and an encoder: error, size and speed, by mezzo and other tools.

    pip install -e '.[zoo]'                                  # builds the models: torch, transformers, gguf, onnxscript
    python benchmarks/low_bit.py --only smollm2 --ways 'ort-*' 'nncf-*'
    python benchmarks/low_bit.py --python onnxruntime-genai=VENV/bin/python --ways 'genai-*'
    python benchmarks/low_bit.py --file name=FILE.onnx --only smollm2    # a file that was made elsewhere
    python benchmarks/low_bit.py --time --threads 1                      # on a quiet machine
    python benchmarks/low_bit.py --read out/low_bit/table.json           # the table of what was measured

A row is a model, the way its weights were stored, and the runtime that answered (low_bit_judging.py). "KL": mean
divergence per token of next-token distributions, FP32's on ONNX Runtime to the file's, in nats, on text that no way
saw. Perplexities and KL come with the standard error over rows of text; compare ways by KL, since their perplexities
differ by less than that. "MB": the file with its weights; it holds the table of embeddings as the way left it, in FP32,
INT8 or 4 bits, or shared with the head, so compare files of equal bytes. "decode": one token, without a past, as no
export here but onnxruntime-genai's has a cache: what the products take, without attention to earlier tokens. "prefill":
64 tokens. Files are made by low_bit_peers.py in the Python of their tool, or by mezzo's command line, and kept:
--again makes them anew. The same command goes on where its --json ended.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import low_bit_judging as judging
import numpy as np
from apart import run_apart
from conformance import describe_environment
from low_bit_models import (
    MODELS,
    Model,
    Sources,
    calibration_file,
    huggingface_folder,
    make_model,
    untied_file,
)
from low_bit_peers import PEERS
from rich.console import Console
from rich.table import Table

FP32 = "fp32"
MEZZO = {  # options of `mezzo convert`
    "mezzo-int4": ("--to", "int4"),
    "mezzo-int8w": ("--to", "int8w"),
    "mezzo-int4-int8w": ("--to", "int4,int8w"),
}
TARGETS = ("onnxruntime-cpu", "openvino-cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row of the table. `note` says why figures are missing."""

    model: str
    way: str
    runtime: str = ""
    bytes: int | None = None
    seconds: float | None = None  # of making the file
    answers: judging.Answers | None = None
    times: judging.Times | None = None
    versions: Mapping[str, str] | None = None
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.model, self.way, self.runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A file of a way, or why there is none."""

    path: Path | None
    seconds: float = 0.0
    versions: Mapping[str, str] | None = None
    note: str = ""


def make_file(model: Model, way: str, options: argparse.Namespace) -> Made:
    """The file of a way: made in its tool's process, unless it is there."""
    if way == FP32:
        return Made(path=model.path)
    if way in options.file:
        return Made(path=options.file[way])
    folder = options.cache / "files" / model.row.name / way
    record = folder / "made.json"
    if options.again or not record.exists():
        shutil.rmtree(folder, ignore_errors=True)  # external data are appended to what an earlier try left
        folder.mkdir(parents=True)
        record.write_text(json.dumps(_make(model, way, folder, options)))
    made = json.loads(record.read_text())
    path = next((folder / name for name in ("model.onnx", "model.xml") if (folder / name).exists()), None)
    is_whole = way not in PEERS or not made["note"]  # mezzo leaves no file in part
    return Made(path=path if is_whole else None, **made)


def _make(model: Model, way: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    command = _command(model, way, folder, options)
    begin = time.perf_counter()
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"note": f"took over {options.limit:.0f} s", "seconds": options.limit, "versions": None}
    seconds = time.perf_counter() - begin
    lines = (run.stderr or run.stdout).strip().splitlines() or [f"exit status {run.returncode}"]
    verdicts = [line for line in lines if line.startswith("verdict")]  # mezzo's
    note = "" if run.returncode == 0 else [*lines, *verdicts][-1][:300]
    record = folder / "versions.json"
    versions = json.loads(record.read_text()) if record.exists() and not note else None
    return {"note": note, "seconds": seconds, "versions": versions}


def _command(model: Model, way: str, folder: Path, options: argparse.Namespace) -> list[str]:
    if way in PEERS:
        script = Path(__file__).with_name("low_bit_peers.py")
        inputs = (model.path, untied_file(model.path), calibration_file(model.path), huggingface_folder(model.path))
        python = options.python.get(PEERS[way].package, sys.executable)
        return [python, str(script), way, *map(str, inputs), str(folder)]
    name, _, target = way.partition("@")
    data, _, _ = name.partition("-data")
    return [
        *shlex.split(options.mezzo), "convert", str(model.path), str(folder / "model.onnx"), *MEZZO[data],
        "--target", target, "--overwrite", *(("--data", str(_calls_folder(model))) if data != name else ()),
    ]  # fmt: skip


def _calls_folder(model: Model) -> Path:
    """The calibration tokens as mezzo reads them: a file per row."""
    folder = model.path.with_suffix(".calibration")
    folder.mkdir(exist_ok=True)
    for row in range(len(next(iter(model.calibration.values())))):
        feeds = {name: array[row : row + 1] for name, array in model.calibration.items()}
        np.savez(folder / f"{row:03}.npz", **feeds)
    return folder


def way_names(model: Model, options: argparse.Namespace) -> list[str]:
    """Ways that this model has, of those that are wanted."""
    peers = [name for name, peer in PEERS.items() if not peer.needs_huggingface or model.row.huggingface]
    mezzo = [f"{name}{data}@{target}" for name in MEZZO for data in ("", "-data") for target in TARGETS]
    names = [FP32, *peers, *mezzo, *options.file]
    return [name for name in names if name in options.file or any(fnmatch(name, glob) for glob in options.ways)]


def judge(model: Model, way: str, runtime: str, made: Made, options: argparse.Namespace) -> Outcome:
    """Answers and times of a file in a runtime."""
    assert made.path is not None, "a file is judged that is there"
    reference = np.load(_reference(model, options), mmap_mode="r")
    line = {
        "model": model.row.name, "way": way, "runtime": runtime, "bytes": judging.file_bytes(made.path),
        "seconds": made.seconds, "versions": made.versions, "note": made.note,
    }  # fmt: skip
    try:
        run = judging.load(made.path, runtime, options.threads)
        judged = judging.judge_encoder if model.row.is_encoder else judging.judge_language
        answers = judged(run, model.held_out, reference)
        times = None
        if options.time:
            times = judging.time_pair(judging.load(model.path, runtime, options.threads), run, model.held_out)
    except Exception as error:  # noqa: BLE001, a runtime's errors share no class
        line["note"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return Outcome(**line)
    return Outcome(**line, answers=answers, times=times)


def _reference(model: Model, options: argparse.Namespace) -> Path:
    path = model.path.with_suffix(".reference.npy")
    if not path.exists():
        run = judging.load(model.path, "onnxruntime", options.threads)
        judging.save_reference(run, model.held_out, path)
    return path


def runtimes_of(path: Path, wanted: Sequence[str]) -> list[str]:
    """Runtimes that read such a file, and for which "-exact" is another thing."""
    if path.suffix != ".onnx":
        return [name for name in wanted if name.startswith("openvino")]
    return [name for name in wanted if name != "onnxruntime-exact" or judging.has_accuracy_levels(path)]


def measure(options: argparse.Namespace, known: Mapping[tuple[str, str, str], Outcome]) -> Iterator[Outcome]:
    sources = Sources(options.cache / "models", options.minutes)
    for row in MODELS:
        if not any(fnmatch(row.name, glob) for glob in options.only):
            continue
        model = make_model(row, sources)
        print(f"{row.name}: {model.path}", flush=True)
        _reference(model, options)
        for way in way_names(model, options):
            made = make_file(model, way, options)
            if made.path is None:
                yield Outcome(model=row.name, way=way, seconds=made.seconds, note=made.note)
                continue
            for runtime in runtimes_of(made.path, options.runtimes):
                done = known.get((row.name, way, runtime))
                if done is None or (done.times is None and options.time) or options.again:
                    done = _judge_apart(model, way, runtime, made, options)
                yield done


def _judge_apart(model: Model, way: str, runtime: str, made: Made, options: argparse.Namespace) -> Outcome:
    ended = Outcome(model=model.row.name, way=way, runtime=runtime, note="the runtime ended its process")
    return run_apart(lambda report: judge(model, way, runtime, made, options), ended)


def print_table(outcomes: Sequence[Outcome], console: Console) -> None:
    table = Table()
    for name in ("model", "way", "runtime"):
        table.add_column(name)
    for name in ("MB", "KL x 1e-3", "agree", "perplexity", "error", "cosine", "decode", "prefill", "made in"):
        table.add_column(name, justify="right")
    table.add_column("note")
    for row in outcomes:
        table.add_row(row.model, row.way, row.runtime, *_figures(row), row.note)
    console.print(table)


def _figures(row: Outcome) -> list[str]:
    """The columns of numbers; empty where there is none."""
    answers, times = row.answers or judging.Answers(), row.times
    texts = {
        "bytes": row.bytes and f"{row.bytes / 1e6:.1f}",
        "kl": answers.kl is not None and f"{1e3 * answers.kl:.2f} ± {1e3 * (answers.kl_se or 0):.2f}",
        "agreement": answers.agreement is not None and f"{answers.agreement:.1%}",
        "perplexity": answers.perplexity and f"{answers.perplexity:.2f} ± {answers.perplexity_se:.2f}",
        "error": answers.relative_l2 is not None and f"{answers.relative_l2:.1e}",
        "cosine": answers.cosine and f"{answers.cosine:.5f}",
        "decode": times and f"{times.decode_ms:.1f} ms, {times.decode_speedup:.2f}x",
        "prefill": times and f"{times.prefill_ms:.1f} ms, {times.prefill_speedup:.2f}x",
        "made in": row.seconds and f"{row.seconds:.0f} s",
    }
    return [text or "" for text in texts.values()]


def _read(path: Path) -> list[Outcome]:
    if not path.exists():
        return []
    rows = json.loads(path.read_text())["rows"]
    for row in rows:
        row["answers"] = judging.Answers(**row["answers"]) if row["answers"] else None
        row["times"] = judging.Times(**row["times"]) if row["times"] else None
    return [Outcome(**row) for row in rows]


def _write(path: Path, outcomes: Mapping[tuple[str, str, str], Outcome], options: argparse.Namespace) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    report = {
        "environment": describe_environment("mezzo"),
        "threads": options.threads,
        "rows": [asdict(row) for row in outcomes.values()],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")


def _pair(text: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    return name, value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/low_bit"), help="folder of models and files")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB", help="models")
    parser.add_argument("--ways", nargs="+", default=["*"], metavar="GLOB", help="ways to store weights")
    parser.add_argument("--runtimes", nargs="+", default=list(judging.RUNTIMES), choices=judging.RUNTIMES)
    parser.add_argument("--file", action="append", default=[], type=_pair, metavar="NAME=FILE", help="judge a file")
    parser.add_argument("--python", action="append", default=[], type=_pair, metavar="PACKAGE=PYTHON",
                        help="the Python that has a tool; otherwise this one")  # fmt: skip
    parser.add_argument("--mezzo", default=f"{sys.executable} -m mezzo", help="the command")
    parser.add_argument("--minutes", type=float, default=7, help="that the byte model may train")
    parser.add_argument("--time", action="store_true", help="time files beside FP32, too")
    parser.add_argument("--limit", type=float, default=3600, help="seconds that making a file may take")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="make files anew that are there")
    parser.add_argument("--json", type=Path, default=Path("out/low_bit/table.json"))
    parser.add_argument("--read", type=Path, help="print the table of such a file")
    options = parser.parse_args()
    options.python = dict(options.python)
    options.file = {name: Path(path) for name, path in options.file}
    console = Console() if sys.stdout.isatty() else Console(width=210)
    if options.read is not None:
        print_table(_read(options.read), console)
        return 0
    outcomes = {row.key: row for row in _read(options.json)}
    seen = []
    for row in measure(options, outcomes):
        outcomes[row.key] = row
        seen.append(row)
        _write(options.json, outcomes, options)
        print(f"{row.way} {row.runtime} {row.answers or row.note}", flush=True)
    print_table(seen, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
