"""Answers of mezzo.torch.compile beside those of autocast + torch.compile, on many small architectures.

    python benchmarks/torch_answers.py --to bf16 fp16
    python benchmarks/torch_answers.py --names t5 lstm --dynamic --inductor --json out/torch-answers.json
    python benchmarks/torch_answers.py --to int8,bf16 --json out/torch-answers-int8.json

The error is the largest over a model's float results of |got - want| / |want| (L2 norms), `want` by the same model in
FP64. An architecture is right where mezzo's error is at most 1.05 of autocast's, or below a hundredth of the low type's
eps; the run ends with 1 if one is not, or fails where plain torch.compile does not. Where autocast fails, its error is
infinite. Two roundings of few numbers differ by chance: with --draws, a result's norms are taken over its values on so
many draws of the inputs. INT8 has scales from eight other draws, and is held beside its own plan emulated (in FP32,
each value rounded as planned) in place of autocast; it is not right either where a product that is planned in INT8 runs
in no kernel of it. With --frozen, weights are constants. Graphs are those that Inductor compiles, with mezzo's pass;
unless --inductor is given they are interpreted operator by operator (those of both sides are), in place of generating
code. Each row is a process of its own, so that a crash is a row. Needs torch, transformers, torchvision and timm.
"""

import argparse
import json
import logging
import math
import multiprocessing
import platform
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from torch import fx
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch_models import Model, draw, list_models, load_libraries, other_sizes, reference, shake

from mezzo.contracts.plans import PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.report.records.groups import count_precisions
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import wrap
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.inspect.accounts import Account
from mezzo.torch.inspect.reference_runs import ReferenceBackend, ReferenceRun
from mezzo.torch.plans_from_data import plans_from_data

MOST = 1.05
LOW = {
    "bf16": (torch.bfloat16, DType.BFLOAT16),
    "fp16": (torch.float16, DType.FLOAT16),
    "int8": (torch.bfloat16, DType.QUANTIZED8),
    "int8,bf16": (torch.bfloat16, DType.QUANTIZED8),
}
PRODUCTS = frozenset({"addmm", "baddbmm", "bmm", "convolution", "mm"})
CALIBRATED = 8  # draws that scales are from
T = TypeVar("T")
VERSIONS = ("torch", "transformers", "torchvision", "timm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model in one low type. Without `failure` it ran; `low` of `nodes` planned operators run in the low type.

    With INT8, `autocast` is the error of the emulated plan, `bf16` that of mezzo's BF16; `int8` of `products` are
    planned in INT8, `kernels` run in kernels of it, and `floats` counts the others by reason.
    """

    name: str
    to: str
    shapes: str
    error: float = 0.0
    autocast: float = 0.0
    draws: int = 1
    low: int = 0
    nodes: int = 0
    graphs: int = 0
    bf16: float = 0.0
    int8: int = 0
    kernels: int = 0
    products: int = 0
    floats: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failure: str | None = None
    plain_fails: bool = False

    @property
    def ratio(self) -> float:
        """The error in those of autocast."""
        if self.error == self.autocast:
            return 1.0
        return self.error / self.autocast if self.autocast else float("inf")

    @property
    def is_right(self) -> bool:
        """Whether it runs, and answers as well as autocast."""
        if self.failure is not None:
            return self.plain_fails
        return self.kernels == self.int8 and self.is_near

    @property
    def is_near(self) -> bool:
        """Whether the error is about the other one."""
        return self.ratio <= MOST or self.error < torch.finfo(LOW[self.to][0]).eps / 100


Run = Callable[..., Any]
Feeds = Sequence[Sequence[tuple[torch.Tensor, ...]]]


def judge(name: str, to: str, is_dynamic: bool, is_generated: bool, draws: int = 1) -> Row:
    """Compile one model both ways, and compare what they answer."""
    torch.manual_seed(0)
    shapes = "dynamic" if is_dynamic else "static"
    model = list_models()[name]()
    shake(model.module)
    sizes = [model.inputs, other_sizes(model.inputs)] if is_dynamic else [model.inputs]
    feeds = [[inputs, *(draw(inputs) for _ in range(draws - 1))] for inputs in sizes]
    inner = compile_fx_inner if is_generated else interpret
    backend = Backend(read_settings({"to": to}), inner_compile=inner)
    with torch.no_grad():
        exact = reference(model.module)
        wants = [[answers(exact, as_double(feed)) for feed in drawn] for drawn in feeds]
        try:
            error = farthest(wrap(model.module, backend, dynamic=is_dynamic or None), feeds, wants)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a row
            said, is_plain = spell_problem(problem), fails(model, sizes, inner, is_dynamic)
            return Row(name=name, to=to, shapes=shapes, draws=draws, failure=said, plain_fails=is_plain)
        torch._dynamo.reset()
        plain = torch.compile(model.module, backend=inductor(inner), dynamic=is_dynamic or None)
        notes = {graph.note for graph in backend.account.graphs if graph.note}
        try:
            with torch.autocast("cpu", LOW[to][0]):
                autocast = farthest(plain, feeds, wants)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a row
            autocast = float("inf")
            notes.add(f"autocast fails: {problem}")
    low, nodes = count(backend.account, LOW[to][1])
    graphs = len(backend.account.graphs)
    told = {
        "error": error,
        "autocast": autocast,
        "draws": draws,
        "low": low,
        "nodes": nodes,
        "graphs": graphs,
        "notes": tuple(sorted(notes)),
    }
    return Row(name=name, to=to, shapes=shapes, **told)


def judge_int8(name: str, to: str, is_dynamic: bool, is_generated: bool, draws: int, is_frozen: bool) -> Row:
    """Compile one model with INT8, and compare what it answers with what its plan should."""
    torch.manual_seed(0)
    row = Row(name=name, to=to, shapes="dynamic" if is_dynamic else "static", draws=draws)
    model = list_models()[name]()
    shake(model.module)
    sizes = [model.inputs, other_sizes(model.inputs)] if is_dynamic else [model.inputs]
    data = [draw(inputs) for inputs in sizes for _ in range(CALIBRATED)]
    feeds = [[draw(inputs) for _ in range(draws)] for inputs in sizes]
    inner, dynamic = compile_fx_inner if is_generated else interpret, is_dynamic or None
    with torch.no_grad():
        exact = reference(model.module)
        wants = [[answers(exact, as_double(feed)) for feed in drawn] for drawn in feeds]
        try:
            settings = read_settings({"to": to, "freeze": is_frozen})
            settings = replace(settings, saved=plans_from_data(model.module, settings, data))
            backend = Backend(settings, inner_compile=inner)
            error = farthest(wrap(model.module, backend, dynamic=dynamic), feeds, wants)
        except Exception as problem:  # noqa: BLE001  # whatever it is, it is a row
            is_plain = fails(model, sizes, inner, is_dynamic)
            return replace(row, failure=spell_problem(problem), plain_fails=is_plain)
        torch._dynamo.reset()
        emulator = ReferenceBackend(settings)
        emulator.begin(ReferenceRun.PLANNED, lambda *_: None)
        emulated = farthest(wrap(model.module, emulator, dynamic=dynamic), feeds, wants)
        torch._dynamo.reset()
        floats = Backend(read_settings({"to": "bf16"}), inner_compile=interpret)
        bf16 = farthest(wrap(model.module, floats, dynamic=dynamic), feeds, wants)
    low, nodes = count(backend.account, DType.QUANTIZED8)
    plans = [plan for plan in backend.account.plans if plan is not None]
    products = [node for plan in plans for node in plan.nodes if node.kind == "op" and node.op in PRODUCTS]
    reasons = Counter(spell_reason(node) for node in products if node.precision.compute is not DType.QUANTIZED8)
    return replace(
        row,
        error=error,
        autocast=emulated,
        bf16=bf16,
        low=low,
        nodes=nodes,
        graphs=len(backend.account.graphs),
        int8=len(products) - reasons.total(),
        kernels=sum(graph.int8_products for graph in backend.account.graphs),
        products=len(products),
        floats=dict(reasons),
        notes=tuple(sorted({graph.note for graph in backend.account.graphs if graph.note})),
    )


def spell_reason(node: PlannedNode) -> str:
    """Why a product is in floats, without what is of this product alone."""
    return f"{node.op} in {node.precision.compute}: {node.rule}, {node.because}"


def interpret(module: fx.GraphModule, inputs: Sequence[object], **ignored: object) -> Run:
    """Run a graph that Inductor would write code for, operator by operator. A view copies where it has to, as
    Inductor's does: convolutions may answer with channels last.
    """
    for view in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        view.target = torch.ops.aten.reshape.default

    def run(given: list[Any]) -> list[Any]:
        held = list(given)
        given.clear()
        results = fx.Interpreter(module).run(*held)
        return list(results) if isinstance(results, tuple | list) else [results]

    run._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd tells
    return run


def inductor(inner: Run) -> Run:
    """The backend of plain torch.compile."""
    return lambda module, inputs: compile_fx(module, inputs, inner_compile=inner)


def fails(model: Model, feeds: Sequence[Sequence[torch.Tensor]], inner: Run, is_dynamic: bool) -> bool:
    """Whether plain torch.compile fails on it as well."""
    torch._dynamo.reset()
    try:
        plain = torch.compile(model.module, backend=inductor(inner), dynamic=is_dynamic or None)
        for feed in feeds:
            plain(*feed)
    except Exception:  # noqa: BLE001  # whatever it is, it is a row
        return True
    return False


def as_double(feed: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.double() if tensor.is_floating_point() else tensor for tensor in feed)


def answers(run: Run, feed: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """A model's float results."""
    leaves = pytree.tree_leaves(run(*(tensor.clone() for tensor in feed)))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def farthest(run: Run, feeds: Feeds, wants: Sequence[Sequence[Sequence[torch.Tensor]]]) -> float:
    """The largest distance of a result from what it should be, over the sizes of inputs."""
    found = 0.0
    for drawn, want in zip(feeds, wants, strict=True):
        got = [answers(run, feed) for feed in drawn]
        pairs = zip(zip(*got, strict=True), zip(*want, strict=True), strict=True)
        found = max([found, *(distance(ones, others) for ones, others in pairs)])
    return found


def distance(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """How far one result's draws are from what they should be, relative to these; infinite where one is no number."""
    far = norm([one.double() - other.double() for one, other in zip(got, want, strict=True)])
    return far / max(norm(want), 1e-30) if far == far else float("inf")


def norm(tensors: Sequence[torch.Tensor]) -> float:
    """L2, over all of them."""
    return math.hypot(*(tensor.double().norm().item() for tensor in tensors))


def count(account: Account, low: DType) -> tuple[int, int]:
    """Operators that run low, and all that were planned."""
    counts = [count_precisions(plan) for plan in account.plans if plan is not None]
    return sum(counted.get(low, 0) for counted in counts), sum(sum(counted.values()) for counted in counts)


def judge_apart(name: str, to: str, given: argparse.Namespace) -> Row:
    """Judge in a process of its own."""
    shapes = "dynamic" if given.dynamic else "static"
    asked = (name, to, given.dynamic, given.inductor, given.draws)
    return apart(
        lambda: judge_int8(*asked, given.frozen) if "int8" in to else judge(*asked),
        lambda said: Row(name=name, to=to, shapes=shapes, failure=said),
        given.timeout,
    )


def apart(work: Callable[[], T], failed: Callable[[str], T], timeout: float) -> T:
    """What a piece of work gives in a process of its own, or what `failed` makes of why it gives nothing."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def send() -> None:
        try:
            made = work()
        except Exception as problem:  # noqa: BLE001  # of the model itself, in eager mode
            made = failed(spell_problem(problem))
        sender.send(made)

    process = context.Process(target=send)
    process.start()
    sender.close()
    try:
        if not receiver.poll(timeout):
            process.kill()
            return failed(f"not done in {timeout:g} s")
        made: T = receiver.recv()
    except EOFError:
        process.join()
        return failed(f"the process ended with {process.exitcode}")
    finally:
        process.join()
        receiver.close()
    return made


def spell_problem(problem: Exception) -> str:
    """What was raised, on one line that is not too long."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:400]


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table, then what failed, and the sums."""
    table = Table(box=None)
    numbers = ("error", "beside", "ratio", "low", "of", "graphs", "bf16", "INT8")
    for column in ("architecture", "to", "shapes", *numbers, ""):
        table.add_column(column, justify="left" if column in ("architecture", "to", "shapes", "") else "right")
    for row in rows:
        cells = (f"{row.error:.2e}", f"{row.autocast:.2e}", f"{row.ratio:.2f}", f"{row.low}", f"{row.nodes}")
        int8 = (f"{row.bf16:.2e}", f"{row.int8} of {row.products}") if "int8" in row.to else ("", "")
        shown = (*cells, f"{row.graphs}", *int8) if row.failure is None else ("",) * 8
        table.add_row(row.name, row.to, row.shapes, *shown, "" if row.is_right else "not right")
    console.print(table)
    for row in rows:
        if row.failure is not None:
            beside = "; plain torch.compile fails too" if row.plain_fails else ""
            console.print(f"{row.name} {row.to} {row.shapes}: {row.failure}{beside}", markup=False, soft_wrap=True)
    for to, shapes in sorted({(row.to, row.shapes) for row in rows}):
        kind = [row for row in rows if (row.to, row.shapes) == (to, shapes)]
        ratios = [row.ratio for row in kind if row.failure is None]
        for reason, times in sum((Counter(row.floats) for row in kind), Counter[str]()).most_common():
            console.print(f"{to} {shapes}: {times} products are {reason}", markup=False, soft_wrap=True)
        reach = f", ratio {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        console.print(f"{to} {shapes}: {sum(row.is_right for row in kind)} of {len(kind)} right{reach}")


def versions() -> dict[str, str]:
    """Of the libraries that models come from."""
    return {name: metadata.version(name) for name in VERSIONS}


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None, "the help begins with it"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", nargs="+", choices=tuple(LOW), default=["bf16", "fp16"], help="low types")
    parser.add_argument("--names", nargs="+", help="architectures, as the table names them, in place of all")
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic shapes, and call with two sizes")
    parser.add_argument("--inductor", action="store_true", help="generate code, in place of interpreting")
    parser.add_argument("--frozen", action="store_true", help="with INT8: weights are constants")
    parser.add_argument("--draws", type=int, default=1, help="inputs that errors are taken over")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a row may take")
    parser.add_argument("--json", type=Path, help="where the rows go, with versions and CPU")
    given = parser.parse_args(arguments)
    unknown = set(given.names or ()) - set(list_models())
    if unknown:
        parser.error(f"no architecture is called {', '.join(sorted(unknown))}; there are {', '.join(list_models())}")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    load_libraries()
    rows = []
    for name in given.names or list_models():
        for to in given.to:
            rows.append(judge_apart(name, to, given))
            print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    show(rows, Console(width=120))
    if given.json:
        environment = describe_environment("mezzo")
        environment["versions"] |= versions() | {"python": platform.python_version()}
        document = {"environment": environment, "generated": given.inductor, "rows": [asdict(row) for row in rows]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0 if all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
