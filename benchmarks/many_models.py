"""A folder of 200 models, 20 of them bad: what `mezzo convert FOLDER OUT` makes of it, how fast, in how much memory.

    python benchmarks/many_models.py                  a table of runs: one process, two, a second run, pages
    python benchmarks/many_models.py --good 9 --bad 11    a smaller folder; --keep FOLDER leaves it there

Each run is a process of its own. Seconds are of the wall, processor seconds of the command and its processes; memory is
the largest resident size of one of them. It fails unless all good models are converted and each bad one is named.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_WIDTHS = (64, 96, 128, 160)
Bad = Callable[[Path], None]


def write_model(path: Path, seed: int) -> onnx.ModelProto:
    """A perceptron with a normalization and an attention-like softmax, of a width and depth by its seed."""
    random, width = np.random.default_rng(seed), _WIDTHS[seed % len(_WIDTHS)]
    nodes, weights, last = [], [], "x"
    for layer in range(3 + seed % 4):
        weight = random.normal(size=(width, width)).astype(np.float32) / width**0.5
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes += [
            helper.make_node("MatMul", [last, f"w{layer}"], [f"h{layer}"], f"mm{layer}"),
            helper.make_node("Relu" if layer % 2 else "Softmax", [f"h{layer}"], [f"a{layer}"], f"act{layer}"),
            helper.make_node("Add", [f"a{layer}", last], [f"r{layer}"], f"add{layer}"),
        ]
        last = f"r{layer}"
    ports = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", width]) for name in ("x", last))
    source, result = ports
    graph = helper.make_graph(nodes, f"model{seed}", [source], [result], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return model


def _truncated(path: Path) -> None:
    write_model(path, 0)
    os.truncate(path, path.stat().st_size // 2)


def _without_data(path: Path) -> None:
    model = write_model(path, 0)
    name = f"{path.stem}.weights"
    onnx.save(model, path, save_as_external_data=True, location=name, size_threshold=0)
    (path.parent / name).unlink()


def _without_opset(path: Path) -> None:
    model = write_model(path, 0)
    del model.opset_import[:]
    onnx.save(model, path)


def _cyclic(path: Path) -> None:
    model = write_model(path, 0)
    model.graph.node[0].input[0] = model.graph.output[0].name
    onnx.save(model, path)


# What people have in such folders by accident.
BAD: dict[str, Bad] = {
    "zero": lambda path: path.touch(),
    "truncated": _truncated,
    "text": lambda path: path.write_text("This is no model.\n" * 50) and None,
    "page": lambda path: path.write_text("<!DOCTYPE html><html><body>404</body></html>") and None,
    "pointer": lambda path: path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 123\n"
    ) and None,
    "without-data": _without_data,
    "no-opset": _without_opset,
    "cyclic": _cyclic,
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to(path.name),
    "pipe": lambda path: os.mkfifo(path),
}  # fmt: skip


def make_folder(folder: Path, good: int, bad: int) -> tuple[list[str], list[str]]:
    """Fill a folder; the names of good and of bad models."""
    folder.mkdir()
    good_names = [f"good{number:03}.onnx" for number in range(good)]
    for number, name in enumerate(good_names):
        write_model(folder / name, number)
    kinds = list(BAD.items())
    bad_names = []
    for number in range(bad):
        kind, make = kinds[number % len(kinds)]
        bad_names.append(f"{kind}{number // len(kinds)}.onnx")
        make(folder / bad_names[-1])
    return good_names, bad_names


def run(words: Sequence[str], cwd: Path) -> dict[str, Any]:
    """Run a command; seconds, processor seconds, megabytes and its document."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    program = (
        "import resource, sys; from mezzo.cli import main; code = main(sys.argv[1:])\n"
        "who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)\n"
        "print('RSS', *(resource.getrusage(each).ru_maxrss for each in who), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "convert", "many", *words, "--json"],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 2):
        sys.exit(f"exit code {done.returncode}: {done.stderr}")
    memory = [int(size) // 1024 for size in done.stderr.split("RSS")[-1].split()]
    return {
        "seconds": seconds,
        "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "memory": max(memory),
        "code": done.returncode,
        "document": json.loads(done.stdout),
    }


def main() -> None:
    """Make the folder, run the commands, check and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--good", type=int, default=180)
    parser.add_argument("--bad", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="make the folder here and leave it, with its results")
    given = parser.parse_args()
    root = given.keep or Path(tempfile.mkdtemp())
    root.mkdir(exist_ok=True)
    try:
        _measure(root, given.good, given.bad)
    finally:
        if given.keep is None:
            shutil.rmtree(root)


def _measure(root: Path, good: int, bad: int) -> None:
    good_names, bad_names = make_folder(root / "many", good, bad)
    commands = {
        "one process": ["one", "--to", "fp16"],
        "two processes": ["two", "--to", "fp16", "-j", "2"],
        "with records and pages": ["third", "--to", "fp16", "--resume", "state", "--report", "report"],
        "a second run": ["third", "--to", "fp16", "--resume", "state", "--report", "report"],
    }
    print("| run | s | s per model | processor s | MB | converted | unchanged | failed | code |")
    print("|---|---|---|---|---|---|---|---|---|")
    documents = {}
    for title, words in commands.items():
        result = run(words, root)
        document = documents[title] = result["document"]
        counts = document["counts"]
        print(
            f"| {title} | {result['seconds']:.1f} | {result['seconds'] / good:.3f} | {result['processor']:.1f} |"
            f" {result['memory']} | {counts['converted']} | {counts['unchanged']} | {counts['failed']} |"
            f" {result['code']} |",
            flush=True,
        )
        assert [file["source"] for file in document["files"]] == good_names
        assert sorted(entry["name"] for entry in document["failed"]) == sorted(bad_names)
    for name in good_names:
        result = f"{Path(name).stem}_fp16.onnx"
        assert (root / "one" / result).read_bytes() == (root / "two" / result).read_bytes(), result
    print("\nWhat is said of the bad ones:\n")
    for entry in documents["one process"]["failed"][: 2 * len(BAD)]:
        print(f"- {entry['because']}")


if __name__ == "__main__":
    main()
