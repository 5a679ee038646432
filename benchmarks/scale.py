"""Measures how conversion time grows with the number of nodes, mezzo and the tools people use today side by side.

    python benchmarks/scale.py --peer-python /path/to/an/environment/with/the/peers/bin/python
    python benchmarks/scale.py --sizes 1000 16000 --shapes blocks --tools mezzo onnxruntime-float16
    python benchmarks/scale.py --profile 16000

Two shapes of model: "blocks" repeats a transformer's block written in small operators, "chain" is one long chain. Every
measurement is a process of its own that reads a file, converts a small model first, and then times conversions in
memory, model in to model out. The tools take turns, so that whatever else the machine does hits them alike.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# onnx and what imports it are loaded in the processes that need them: a child's peak memory starts at its parent's.

SIZES = (1_000, 4_000, 16_000, 64_000, 256_000)
SHAPES = ("blocks", "chain")
REFERENCE = "onnxruntime-float16"
UNRAISED = "mezzo unraised"
# label: (converter, settings, largest number of nodes); AutoCast's time is quadratic.
TOOLS: dict[str, tuple[str, dict[str, str], int]] = {
    "mezzo": ("mezzo", {}, 1 << 60),
    UNRAISED: ("mezzo", {"fuse": "none"}, 1 << 60),
    "mezzo aggressive": ("mezzo", {"policy": "aggressive"}, 1 << 60),
    "onnxconverter-common": ("onnxconverter-common", {}, 1 << 60),
    REFERENCE: (REFERENCE, {}, 1 << 60),
    "modelopt-autocast": ("modelopt-autocast", {}, 4_000),
}
WIDTH, HEADS = 8, 2
WARM_UP_NODES = 200
# A process converts small models several times and gives the median: one conversion is over in milliseconds.
NODES_PER_PROCESS = 8_000
HEADINGS = (
    "s", "checker s", "checker alone", "us/node", "growth", "to ORT's", "to unraised", "peak MB", "before MB", "spread",
    "runs",
)  # fmt: skip
NOTE = (
    "s: median of the processes, conversion in memory, calls of the ONNX checker inside it taken out: mezzo checks its "
    "result in full, most peers do not. checker s: those calls; checker alone: the same check of the result by itself. "
    "growth: time per node against the smallest model's. to ORT's: against onnxruntime-float16; to unraised: against "
    "mezzo that leaves written-out operators as they are. spread: slowest less fastest process. Peaks are of whole "
    "processes."
)


@dataclass(frozen=True, slots=True)
class Row:
    """One tool on one model. `base_mb` is the peak before the conversion; `failure` is the first failed run's text."""

    shape: str
    nodes: int
    tool: str
    seconds: float
    checker_s: float | None
    checker_alone_s: float | None
    us_per_node: float
    growth: float
    to_reference: float | None
    to_unraised: float | None
    peak_mb: float
    base_mb: float
    spread: float
    runs: int
    succeeded: int
    failure: str | None = None


class Builder:
    """Collects nodes and weights of one graph. Names are made from a counter."""

    def __init__(self) -> None:
        import numpy
        import onnx

        self.onnx, self.numpy = onnx, numpy
        self.nodes: list[Any] = []
        self.weights: dict[str, Any] = {}
        self.random = numpy.random.default_rng(7)

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [name + "_out"], name=name, **attributes))
        return name + "_out"

    def floats(self, name: str, *shape: int) -> str:
        """A random weight; asked for again by the same name, the same one."""
        if name not in self.weights:
            numbers = self.random.standard_normal(shape, self.numpy.float32) / WIDTH
            self.weights[name] = self.onnx.numpy_helper.from_array(numbers, name)
        return name

    def constant(self, name: str, numbers: object, dtype: str = "float32") -> str:
        if name not in self.weights:
            self.weights[name] = self.onnx.numpy_helper.from_array(self.numpy.array(numbers, dtype), name)
        return name

    def model(self, last: str) -> Any:
        helper, dims = self.onnx.helper, ["batch", "sequence", WIDTH]
        floats = self.onnx.TensorProto.FLOAT
        outputs = [helper.make_tensor_value_info(last, floats, dims)]
        inputs = [helper.make_tensor_value_info("x", floats, dims)]
        graph = helper.make_graph(self.nodes, "scale", inputs, outputs, list(self.weights.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def build(shape: str, nodes: int) -> Any:
    """Build a model of exactly `nodes` nodes."""
    builder = Builder()
    last, block = "x", 0
    if shape == "blocks":
        one = Builder()
        add_block(one, "x", 0)
        while len(builder.nodes) + len(one.nodes) <= nodes:
            last = add_block(builder, last, block)
            block += 1
    matrix, bias = builder.floats("chain_matrix", WIDTH, WIDTH), builder.floats("chain_bias", WIDTH)
    turns = (("MatMul", matrix), ("Add", bias), ("Relu",), ("Mul", bias), ("Sigmoid",))
    while len(builder.nodes) < nodes:
        op, *operands = turns[len(builder.nodes) % len(turns)]
        last = builder.node(op, last, *operands)
    return builder.model(last)


def add_block(b: Builder, x: str, number: int) -> str:
    """Attention and a feed-forward part with residuals; one norm in small operators, one as LayerNormalization."""
    heads = [
        split_heads(b, linear(b, x, letter, number), (0, 2, 3, 1) if letter == "k" else (0, 2, 1, 3))
        for letter in ("q", "k", "v")
    ]
    scores = b.node("Div", b.node("MatMul", heads[0], heads[1]), b.constant("scale", 2.0))
    mixed = b.node("MatMul", b.node("Softmax", scores, axis=-1), heads[2])
    joined = b.node("Reshape", b.node("Transpose", mixed, perm=[0, 2, 1, 3]), shape_of(b, x))
    x = small_norm(b, b.node("Add", x, linear(b, joined, "o", number)), number)
    wide = linear(b, x, "up", number, WIDTH, 2 * WIDTH)
    halves = b.node("Erf", b.node("Div", wide, b.constant("root_of_2", 1.4142135)))
    gelu = b.node("Mul", b.node("Mul", wide, b.node("Add", halves, b.constant("one", 1.0))), b.constant("half", 0.5))
    total = b.node("Add", x, linear(b, gelu, "down", number, 2 * WIDTH, WIDTH))
    gain, bias = b.floats(f"gain_{number}", WIDTH), b.floats(f"bias_{number}", WIDTH)
    return b.node("LayerNormalization", total, gain, bias, axis=-1, epsilon=1e-5)


def linear(b: Builder, x: str, letter: str, number: int, rows: int = WIDTH, columns: int = WIDTH) -> str:
    """A product and a bias. Blocks have biases of their own and share eight sets of matrices: files stay small."""
    product = b.node("MatMul", x, b.floats(f"matrix_{letter}_{number % 8}", rows, columns))
    return b.node("Add", product, b.floats(f"bias_{letter}_{number}", columns))


def split_heads(b: Builder, x: str, order: Sequence[int]) -> str:
    target = b.constant("split", [0, 0, HEADS, WIDTH // HEADS], "int64")
    return b.node("Transpose", b.node("Reshape", x, target), perm=list(order))


def shape_of(b: Builder, x: str) -> str:
    """[batch, sequence, width] computed as exporters do, in integers."""
    shape, axes = b.node("Shape", x), b.constant("axis_0", [0], "int64")
    sizes = [
        b.node("Unsqueeze", b.node("Gather", shape, b.constant(f"index_{axis}", axis, "int64")), axes)
        for axis in range(2)
    ]
    return b.node("Concat", *sizes, b.constant("width", [WIDTH], "int64"), axis=0)


def small_norm(b: Builder, x: str, number: int) -> str:
    centred = b.node("Sub", x, b.node("ReduceMean", x, axes=[-1]))
    variance = b.node("ReduceMean", b.node("Pow", centred, b.constant("two", 2.0)), axes=[-1])
    root = b.node("Sqrt", b.node("Add", variance, b.constant("epsilon", 1e-5)))
    scaled = b.node("Mul", b.node("Div", centred, root), b.floats(f"norm_gain_{number}", WIDTH))
    return b.node("Add", scaled, b.floats(f"norm_bias_{number}", WIDTH))


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


@contextlib.contextmanager
def timed_checker() -> Iterator[list[float]]:
    """Time the calls of the ONNX checker made inside, whoever makes them."""
    import onnx.checker

    original, times = onnx.checker.check_model, []

    def check(*arguments: Any, **options: Any) -> None:
        begin = time.perf_counter()
        original(*arguments, **options)
        times.append(time.perf_counter() - begin)

    with unittest.mock.patch.object(onnx.checker, "check_model", check):
        yield times


def measure(tool: str, path: Path, small: Path) -> dict[str, Any]:
    """Convert a small model, then the one at `path`. All times are seconds."""
    import onnx
    from converters import CONVERTERS, Settings

    converter, chosen, _ = TOOLS[tool]
    row, settings = CONVERTERS[converter], Settings("fp16", **chosen)
    row.convert(onnx.load(small), settings)
    model = onnx.load(path)
    base = peak_mb()
    seconds, checker = [], []
    for _ in range(max(NODES_PER_PROCESS // len(model.graph.node), 1)):
        with timed_checker() as times:
            begin = time.perf_counter()
            result = row.convert(model, settings)
            seconds.append(time.perf_counter() - begin - sum(times))
            checker.append(sum(times))
    versions = {"onnx": onnx.__version__, row.distribution: row.version}
    answer = {"seconds": statistics.median(seconds), "peak_mb": peak_mb(), "base_mb": base, "versions": versions}
    if any(checker):
        answer["checker_s"] = statistics.median(checker)
        begin = time.perf_counter()
        onnx.checker.check_model(result, full_check=True)
        answer["checker_alone_s"] = time.perf_counter() - begin
    return answer


def run_child(job: str, *rest: str) -> int:
    """Do what the parent asks and print the answer as JSON, alone on standard output."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(io.StringIO()):
        answer: dict[str, Any] = {}
        if job == "build":
            Path(rest[2]).write_bytes(build(rest[0], int(rest[1])).SerializeToString())
        else:
            answer = measure(rest[0], Path(rest[1]), Path(rest[2]))
    print(json.dumps(answer))
    return 0


def ask(python: str, *arguments: str) -> dict[str, Any]:
    """Run this script as a child. Returns its answer, or {"failure": why}."""
    # One thread each: the tools are single-threaded, and idle pools only add noise.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([python, __file__, "--child", *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"failure": lines[-1][:200] if lines else f"exit status {done.returncode}"}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def compare(options: argparse.Namespace, folder: Path, shape: str, versions: dict[str, str]) -> list[Row]:
    """Measure every tool at every size of one shape; versions are added to `versions`."""
    rows: list[Row] = []
    small = folder / f"{shape}-warm-up.onnx"
    ask(sys.executable, "build", shape, str(WARM_UP_NODES), str(small))
    smallest: dict[str, float] = {}
    for nodes in options.sizes:
        path = folder / f"{shape}-{nodes}.onnx"
        ask(sys.executable, "build", shape, str(nodes), str(path))
        tools = [tool for tool in options.tools if nodes <= TOOLS[tool][2]]
        answers: dict[str, list[dict[str, Any]]] = {tool: [] for tool in tools}
        for turn in range(options.repeats if nodes < options.once_from else 1):
            for tool in tools[turn % len(tools) :] + tools[: turn % len(tools)]:
                python = sys.executable if TOOLS[tool][0] == "mezzo" else options.peer_python
                answers[tool].append(ask(python, "measure", tool, str(path), str(small)))
        seconds = {tool: _median(answers[tool], "seconds") for tool in tools}
        for tool in tools:
            rows.append(_row(shape, nodes, tool, answers[tool], seconds, smallest))
            for answer in answers[tool]:
                versions.update({f"{name} ({tool})": text for name, text in answer.get("versions", {}).items()})
            print(f"{shape} {nodes} {tool}: {rows[-1].seconds:.3f} s", file=sys.stderr)
        path.unlink()
    return rows


def _median(answers: Sequence[dict[str, Any]], key: str) -> float | None:
    found = [answer[key] for answer in answers if key in answer]
    return statistics.median(found) if found else None


def _row(
    shape: str, nodes: int, tool: str, answers: Sequence[dict[str, Any]], medians: dict[str, float | None],
    smallest: dict[str, float],
) -> Row:  # fmt: skip
    seconds = medians[tool]
    failure = next((str(answer["failure"]) for answer in answers if "failure" in answer), None)
    if seconds is None:
        return Row(shape, nodes, tool, 0.0, None, None, 0.0, 0.0, None, None, 0.0, 0.0, 0.0, len(answers), 0, failure)
    times = [answer["seconds"] for answer in answers if "seconds" in answer]
    per_node = seconds / nodes * 1e6
    growth = per_node / smallest.setdefault(tool, per_node)
    to_others = [other and seconds / other for other in map(medians.get, (REFERENCE, UNRAISED))]
    return Row(
        shape, nodes, tool, seconds, _median(answers, "checker_s"), _median(answers, "checker_alone_s"), per_node,
        growth, *to_others, max(a.get("peak_mb", 0.0) for a in answers),
        _median(answers, "base_mb") or 0.0, (max(times) - min(times)) / seconds, len(answers), len(times), failure,
    )  # fmt: skip


def print_tables(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=140)
    for shape in dict.fromkeys(row.shape for row in rows):
        table = Table(title=f"FP32 to FP16 in memory, {shape}", caption=NOTE)
        table.add_column("nodes", justify="right")
        table.add_column("tool")
        for heading in HEADINGS:
            table.add_column(heading, justify="right")
        nodes = 0
        for row in (row for row in rows if row.shape == shape):
            if row.nodes != nodes:
                table.add_section()
                nodes = row.nodes
            table.add_row(*_cells(row))
        console.print(table)
        for row in rows:
            if row.shape == shape and row.failure is not None:
                failed = row.runs - row.succeeded
                line = f"{row.tool}, {row.nodes:,} nodes: {failed} of {row.runs} runs failed: {row.failure}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)


def _cells(row: Row) -> tuple[str, ...]:
    runs = f"{row.succeeded}/{row.runs}"
    if not row.succeeded:
        return f"{row.nodes:,}", row.tool, "failed", *[""] * (len(HEADINGS) - 2), runs
    ratios = ["" if ratio is None else f"{ratio:.2f}" for ratio in (row.to_reference, row.to_unraised)]
    checks = ["" if seconds is None else f"{seconds:.3f}" for seconds in (row.checker_s, row.checker_alone_s)]
    return (
        f"{row.nodes:,}", row.tool, f"{row.seconds:.3f}", *checks, f"{row.us_per_node:.1f}", f"{row.growth:.2f}",
        *ratios, f"{row.peak_mb:.0f}", f"{row.base_mb:.0f}", f"{row.spread:.0%}", runs,
    )  # fmt: skip


def profile(shape: str, nodes: int, policy: str) -> int:
    """Print where mezzo spends its time: cProfile's top 40, by own time and by time with callees."""
    import cProfile
    import pstats

    from converters import CONVERTERS, Settings

    convert = CONVERTERS["mezzo"].convert
    convert(build(shape, WARM_UP_NODES), Settings("fp16", policy))
    model = build(shape, nodes)
    profiler = cProfile.Profile()
    profiler.enable()
    convert(model, Settings("fp16", policy))
    profiler.disable()
    for order in ("tottime", "cumulative"):
        pstats.Stats(profiler).strip_dirs().sort_stats(order).print_stats(40)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--repeats", type=int, default=3, help="processes per tool and size")
    parser.add_argument("--once-from", type=int, default=1 << 60, help="sizes from here on are measured once")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has the peers")
    parser.add_argument("--profile", type=int, metavar="N", help="only profile mezzo on a model of N nodes")
    parser.add_argument("--policy", default="balanced", help="the policy that --profile uses")
    parser.add_argument("--json", type=Path, default=Path("out/scale.json"))
    return parser.parse_args()


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return run_child(*sys.argv[2:])
    options = _parse()
    if options.profile is not None:
        return profile(options.shapes[0], options.profile, options.policy)
    versions: dict[str, str] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        for shape in options.shapes:
            rows += compare(options, Path(folder), shape, versions)
    from conformance import describe_environment

    environment = describe_environment("mezzo")
    print(f"{environment['cpu']}: {' '.join(environment['cpu_features'])}; Python {environment['python']}")
    print("; ".join(f"{name} {text}" for name, text in sorted(versions.items())))
    print_tables(rows)
    report = {"environment": environment, "versions": versions, "note": NOTE, "rows": [asdict(r) for r in rows]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if any(row.failure for row in rows if TOOLS[row.tool][0] == "mezzo") else 0


if __name__ == "__main__":
    sys.exit(main())
