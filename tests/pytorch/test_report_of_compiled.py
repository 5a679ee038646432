"""The page about a compiled model: modules, graphs beside each other, names that mean harm, where it may stand."""

import gc
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from driving import Net
from driving import compiled as interpreted
from torch import nn

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.report.html import packing

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Broken(nn.Module):
    """Two graphs, one of them in a module whose name means harm."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module(HOSTILE, nn.Linear(8, 8))
        self.last = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = getattr(self, HOSTILE)(x)
        torch._dynamo.graph_break()
        made: torch.Tensor = self.last(x)
        return made


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def account_in(page: str) -> dict[str, Any]:
    (packed,) = re.findall(r'id="account"[^>]*>\s*([A-Za-z0-9+/=\s]+?)\s*<', page)
    return packing.unpack(packed)


def test_a_page_tells_modules_precisions_casts_and_lines(tmp_path: Path) -> None:
    compiled = interpreted(Net().eval())
    compiled(torch.randn(4, 32))
    path = mezzo.torch.report(compiled, tmp_path / "net.html")
    told = account_in(path.read_text())
    nodes = {node["name"]: node for node in told["graph"]["nodes"]}
    up = nodes["up/addmm"]
    assert up["module"] == "up" and up["line"]["file"].endswith("driving.py") and "self.up" in up["line"]["code"]
    decided = {one["name"]: one for one in told["decisions"]}
    assert decided["up/addmm"]["precision"]["compute"] == "bf16" and decided["up/addmm"]["rule"] == "linear"
    assert told["conversion"]["casts"] == mezzo.torch.account(compiled).casts
    assert [model["path"] for model in told["models"]] == ["Net", "mezzo.torch.compile"]
    kept = len(mezzo.torch.account(compiled).graphs[0].shadows)  # a bias is no copy where its product is packed
    assert any(note.startswith(f"{kept} weights cast once") for note in told["notes"])


def test_graphs_stand_beside_each_other_and_other_shapes_are_told_once(tmp_path: Path) -> None:
    compiled = interpreted(Broken().eval(), fullgraph=False, dynamic=False)
    compiled(torch.randn(4, 8))
    compiled(torch.randn(6, 8))
    assert len(mezzo.torch.account(compiled).graphs) == 4
    told = account_in(mezzo.torch.report(compiled, tmp_path / "two.html").read_text())
    names = [node["name"] for node in told["graph"]["nodes"]]
    assert len(names) == len(set(names))
    assert sum(name.endswith("addmm") for name in names) == 2 and "graph 2: last/addmm" in names
    place = names.index("graph 2: last/addmm")
    (plan,) = told["plans"]
    assert place in plan["precisions"]["bf16"]
    # What it reads is of its own graph: every edge leads to a node of the same one.
    makers = [told["graph"]["values"][value]["producer"] for value in told["graph"]["nodes"][place]["inputs"]]
    assert all(names[maker].startswith("graph 2: ") for maker in makers)
    assert {cause for one in told["decisions"] if (cause := one["cause"])} <= set(names)


def test_names_that_mean_harm_are_no_markup(tmp_path: Path) -> None:
    compiled = interpreted(Broken().eval(), fullgraph=False)
    compiled(torch.randn(4, 8))
    page = mezzo.torch.report(compiled, tmp_path / "hostile.html").read_text()
    assert HOSTILE not in page and "<img src" not in page
    told = account_in(page)
    assert any(HOSTILE in (node["module"] or "") for node in told["graph"]["nodes"])


def test_a_page_replaces_a_page_and_nothing_else(tmp_path: Path) -> None:
    compiled = interpreted(Net().eval())
    with pytest.raises(
        InputError, match="no graph of the model was planned: nothing was compiled yet: call it once; where"
    ):
        mezzo.torch.report(compiled, tmp_path / "net.html")
    compiled(torch.randn(4, 32))
    for _ in range(2):
        mezzo.torch.report(compiled, tmp_path / "net.html")
    other = tmp_path / "work.html"
    other.write_text("<h1>mine</h1>")
    with pytest.raises(InputError) as caught:
        mezzo.torch.report(compiled, other)
    assert str(caught.value) == f"report '{other}' exists and is no report of mezzo's; give another name or remove it"
    assert other.read_text() == "<h1>mine</h1>"
    with pytest.raises(InputError, match=r"cannot write report .*: .* is not a folder"):
        mezzo.torch.report(compiled, tmp_path / "none" / "net.html")


def test_what_is_kept_for_a_page_keeps_no_weight() -> None:
    model = Net().eval()
    compiled = interpreted(model)
    compiled(torch.randn(4, 32))
    (graph,) = mezzo.torch.account(compiled).graphs
    assert graph.snapshot is not None
    snapshot, weight = graph.snapshot, weakref.ref(model.up.weight)
    held = _reachable(snapshot.graph)
    assert not any(isinstance(one, torch.Tensor) for one in held) and weight() is not None


def _reachable(root: object) -> list[object]:
    """What an object holds on to, modules and classes left out."""
    found: dict[int, object] = {id(root): root}
    waiting = [root]
    while waiting:
        for one in gc.get_referents(waiting.pop()):
            if id(one) not in found and not isinstance(one, type | type(gc)) and not _is_global(one):
                found[id(one)] = one
                waiting.append(one)
    return list(found.values())


def _is_global(one: object) -> bool:
    return isinstance(one, dict) and "__builtins__" in one
