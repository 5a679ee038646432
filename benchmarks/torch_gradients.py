"""Gradients of mezzo.torch.compile beside those of autocast + torch.compile, on many small architectures.

    python benchmarks/torch_gradients.py --to bf16
    python benchmarks/torch_gradients.py --to fp16 --names t5 lstm resnet18 --json out/torch-gradients.json

Models are those of `torch_answers.py`, every second one unless --names or --all says otherwise, in training mode, no
dropout. The loss is a fixed linear function of the float results; ten steps of SGD follow, of a size at which the first
changes weights by a ten-thousandth. The error is |got - want| / |want| over all gradients and draws of inputs together
(L2 norms), `want` by the same model in FP64 on its own way: of the first step, and of the tenth. A row is right
where both are at most 1.05 of autocast's, or below a hundredth of the low type's eps, and where the tenth losses are
no further from those of FP64 than twice autocast's, or a hundredth of them. The run ends with 1 if one is not, or fails
where plain torch.compile trains. Under FP16 the loss is scaled, for both sides alike. Graphs are interpreted, as
`torch_answers.py` has it; each row is a process of its own. Needs torch, transformers, torchvision and timm.
"""

import argparse
import json
import logging
import math
import platform
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from conformance import describe_environment
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_answers import LOW, MOST, apart, as_double, inductor, interpret, norm, spell_problem, versions
from torch_models import draw, list_models, load_libraries, reference, shake
from torch_networks import without_dropout

from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import wrap
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.inspect.gradients import linear

_STEPS = 10
_FIRST_CHANGE = 1e-4
_SCALE = {"bf16": 1.0, "fp16": 2.0**10}
_LOSS_NOISE, _MOST_LOSS = 0.01, 2.0
_MOST_NUMBERS = 60_000_000  # of the gradients of all draws
Gradients = Mapping[str, torch.Tensor]
Run = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a way of training has come to: errors of the first and of the tenth gradients, and of the tenth loss."""

    first: float
    tenth: float
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model in one low type. Without `failure` it trained."""

    name: str
    to: str
    draws: int
    mezzo: Trained | None = None
    autocast: Trained | None = None
    notes: tuple[str, ...] = ()
    failure: str | None = None
    plain_fails: bool = False

    @property
    def is_right(self) -> bool:
        """Whether it trains, and as well as under autocast."""
        if self.mezzo is None or self.autocast is None:
            return self.plain_fails
        small = torch.finfo(LOW[self.to][0]).eps / 100
        pairs = ((self.mezzo.first, self.autocast.first), (self.mezzo.tenth, self.autocast.tenth))
        is_near = self.mezzo.loss <= max(_MOST_LOSS * self.autocast.loss, _LOSS_NOISE)
        return is_near and all(one <= max(MOST * other, small) for one, other in pairs)


class Way:
    """A model on its way: the same weights at its beginning, and the same inputs."""

    def __init__(self, model: nn.Module, start: Gradients, feeds: Sequence[Any], scale: float) -> None:
        self.model, self.start, self.feeds, self.scale = model, start, feeds, scale

    def gradients(
        self, run: Run, feed: Any, cast: AbstractContextManager[Any]
    ) -> tuple[dict[str, torch.Tensor], float]:
        """Gradients of all weights and the loss of one step."""
        self.model.zero_grad(set_to_none=True)
        with cast:
            made = run(*(one.clone() for one in feed))
        loss = linear(made)
        (loss * self.scale).backward()
        found = {name: one.grad / self.scale for name, one in self.model.named_parameters() if one.grad is not None}
        return found, float(loss.detach())

    def reset(self) -> None:
        with torch.no_grad():
            for name, held in self.model.state_dict().items():
                held.copy_(self.start[name])

    def walk(self, run: Run, rate: float | None, cast: Callable[[], AbstractContextManager[Any]]) -> "Walked":
        """Take the steps on each draw, from the same weights. The rate of learning is found where none is given."""
        firsts, lasts, losses = [], [], []
        for feed in self.feeds:
            self.reset()
            for number in range(_STEPS):
                found, loss = self.gradients(run, feed, cast())
                if number == 0:
                    firsts.append({name: one.clone() for name, one in found.items()})
                if rate is None:
                    rate = _FIRST_CHANGE * norm(list(self.model.parameters())) / max(norm(list(found.values())), 1e-30)
                if number < _STEPS - 1:
                    self.step(found, rate)
            lasts.append(found)
            losses.append(loss)
        assert rate is not None, "there is a first step"
        return Walked(firsts=firsts, lasts=lasts, losses=losses, rate=rate)

    def step(self, found: Gradients, rate: float) -> None:
        with torch.no_grad():
            for name, weight in self.model.named_parameters():
                if name in found:
                    weight.sub_(found[name].to(weight.dtype), alpha=rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    """Gradients of the first and of the last step by draw, losses of the last, and the rate of learning."""

    firsts: Sequence[Gradients]
    lasts: Sequence[Gradients]
    losses: Sequence[float]
    rate: float


def judge(name: str, to: str, draws: int) -> Row:
    """Train one model both ways beside FP64."""
    torch.manual_seed(0)
    model = list_models()[name]()
    shake(model.module)
    without_dropout(model.module.requires_grad_(True).train())
    start = {key: held.clone() for key, held in model.module.state_dict().items()}
    weights = sum(one.numel() for one in model.module.parameters())
    draws = max(1, min(draws, _MOST_NUMBERS // weights))
    feeds = [enlarged(model.inputs) for _ in range(draws)]
    exact = reference(model.module)
    wide = {key: held.double() if held.is_floating_point() else held for key, held in start.items()}
    far = Way(exact, wide, [as_double(feed) for feed in feeds], 1.0).walk(exact, None, nullcontext)
    way = Way(model.module, start, feeds, _SCALE[to])
    backend = Backend(read_settings({"to": to}), inner_compile=interpret)
    try:
        found = compared(way.walk(wrap(model.module, backend), far.rate, nullcontext), far)
    except Exception as problem:  # noqa: BLE001  # whatever it is, it is a row
        said = spell_problem(problem)
        return Row(name=name, to=to, draws=draws, failure=said, plain_fails=fails(way, far.rate))
    notes = {graph.note for graph in backend.account.graphs if graph.note}
    torch._dynamo.reset()
    plain = torch.compile(model.module, backend=inductor(interpret))
    try:
        beside = compared(way.walk(plain, far.rate, lambda: torch.autocast("cpu", LOW[to][0])), far)
    except Exception as problem:  # noqa: BLE001  # whatever it is, it is a row
        beside = Trained(first=math.inf, tenth=math.inf, loss=math.inf)
        notes.add(f"autocast fails: {problem}")
    return Row(name=name, to=to, draws=draws, mezzo=found, autocast=beside, notes=tuple(sorted(notes)))


def enlarged(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Another draw of inputs, of images four times as many: a batch norm in training mode is over few numbers else."""
    drawn = [draw(tuple(inputs)) for _ in range(4)]
    return tuple(
        torch.cat(several) if several[0].dim() == 4 and several[0].is_floating_point() else several[0]
        for several in zip(*drawn, strict=True)
    )


def compared(found: Walked, wanted: Walked) -> Trained:
    """How far a way of training has gone from another."""
    losses = zip(found.losses, wanted.losses, strict=True)
    return Trained(
        first=distance(found.firsts, wanted.firsts),
        tenth=distance(found.lasts, wanted.lasts),
        loss=math.hypot(*(one - other for one, other in losses)) / max(math.hypot(*wanted.losses), 1e-30),
    )


def distance(found: Sequence[Gradients], wanted: Sequence[Gradients]) -> float:
    """Between gradients of all weights on all draws, relative; infinite where one is no number."""
    pairs = [(own[name], one) for own, right in zip(found, wanted, strict=True) for name, one in right.items()]
    far = norm([one.double() - other for one, other in pairs])
    return far / max(norm([other for _, other in pairs]), 1e-30) if far == far else math.inf


def fails(way: Way, rate: float) -> bool:
    """Whether plain torch.compile does not train it either."""
    torch._dynamo.reset()
    try:
        way.walk(torch.compile(way.model, backend=inductor(interpret)), rate, nullcontext)
    except Exception:  # noqa: BLE001  # whatever it is, it is PyTorch's
        return True
    return False


def judge_apart(name: str, to: str, given: argparse.Namespace) -> Row:
    """Judge in a process of its own."""
    return apart(
        lambda: judge(name, to, given.draws),
        lambda said: Row(name=name, to=to, draws=given.draws, failure=said),
        given.timeout,
    )


def show(rows: Sequence[Row], console: Console) -> None:
    """Print the table, then what failed, and the sums."""
    table = Table(box=None)
    for column in (
        "architecture",
        "to",
        "first",
        "autocast",
        "ratio",
        "tenth",
        "autocast",
        "ratio",
        "loss",
        "autocast",
        "",
    ):
        table.add_column(column, justify="left" if column in ("architecture", "to", "") else "right")
    for row in rows:
        if row.mezzo is None or row.autocast is None:
            table.add_row(row.name, row.to, *("",) * 8, "" if row.is_right else "not right")
            continue
        own, other = row.mezzo, row.autocast
        cells = [
            *(f"{own.first:.2e}", f"{other.first:.2e}", f"{_ratio(own.first, other.first):.2f}"),
            *(f"{own.tenth:.2e}", f"{other.tenth:.2e}", f"{_ratio(own.tenth, other.tenth):.2f}"),
            *(f"{own.loss:.1e}", f"{other.loss:.1e}"),
        ]
        table.add_row(row.name, row.to, *cells, "" if row.is_right else "not right")
    console.print(table)
    for row in rows:
        if row.failure is not None:
            beside = "; plain torch.compile fails too" if row.plain_fails else ""
            console.print(f"{row.name} {row.to}: {row.failure}{beside}", markup=False, soft_wrap=True)
    for to in dict.fromkeys(row.to for row in rows):
        kind = [row for row in rows if row.to == to]
        console.print(f"{to}: {sum(row.is_right for row in kind)} of {len(kind)} right")


def _ratio(one: float, other: float) -> float:
    return 1.0 if one == other else one / other if other else math.inf


def main(arguments: Sequence[str] | None = None) -> int:
    assert __doc__ is not None, "the help begins with it"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", nargs="+", choices=tuple(LOW), default=["bf16", "fp16"], help="low types")
    parser.add_argument("--names", nargs="+", help="architectures, as the table names them, in place of every second")
    parser.add_argument("--all", action="store_true", help="all architectures, in place of every second")
    parser.add_argument("--draws", type=int, default=8, help="inputs that errors are taken over")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that a row may take")
    parser.add_argument("--json", type=Path, help="where the rows go, with versions and CPU")
    given = parser.parse_args(arguments)
    unknown = set(given.names or ()) - set(list_models())
    if unknown:
        parser.error(f"no architecture is called {', '.join(sorted(unknown))}; there are {', '.join(list_models())}")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    load_libraries()
    rows = []
    for name in given.names or list(list_models())[:: 1 if given.all else 2]:
        for to in given.to:
            rows.append(judge_apart(name, to, given))
            print(json.dumps(asdict(rows[-1])), file=sys.stderr, flush=True)
    show(rows, Console(width=130))
    if given.json:
        environment = describe_environment("mezzo")
        environment["versions"] |= versions() | {"python": platform.python_version()}
        document = {"environment": environment, "rows": [asdict(row) for row in rows]}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0 if all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
