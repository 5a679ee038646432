"""Policies that name operators of ONNX, in PyTorch: rows say which operator theirs are like, forward and backward."""

import re
import warnings
from collections.abc import Callable

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import Net, compiled
from torch import nn

from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.plugins.discovery import policies
from mezzo.tables.facts import HEAVY
from mezzo.tables.ops import op_facts
from mezzo.tables.policy import Category, Policy, rule
from mezzo.torch.compiler.compiled import account
from mezzo.torch.inspect.graph_snapshots import GraphSnapshot

_GRAPHAMP = ("graphamp-aggressive", "graphamp-balanced", "graphamp-conservative")


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class _Whole(nn.Module):
    """A small network of convolutions, a transformer's block on what it sees, and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 32, 3)
        self.block, self.head = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = torch.relu(self.second(torch.relu(self.norm(self.first(x)))))
        answer: torch.Tensor = self.head(self.block(held.flatten(2).transpose(1, 2)).mean(1))
        return answer


def _perceptron() -> tuple[nn.Module, torch.Tensor]:
    return Net(), torch.randn(4, 32)


def _whole() -> tuple[nn.Module, torch.Tensor]:
    return _Whole(), torch.randn(2, 3, 8, 8)


Program = Callable[[], tuple[nn.Module, torch.Tensor]]


def _trained(program: Program, **options: object) -> GraphSnapshot:
    model, x = program()
    run = compiled(model.train(), **options)
    run(x.requires_grad_()).sum().backward()
    (graph,) = account(run).graphs
    assert graph.snapshot is not None
    assert graph.has_backward
    return graph.snapshot


def _products(graph: Graph, plan: Plan) -> dict[str, DType]:
    """What products compute in, by their names."""
    found = {}
    for planned in plan.nodes:
        node = graph.nodes[graph.by_name[planned.name]]
        row = op_facts(node.signature.dialect).get(node.op)
        if planned.kind == "op" and row is not None and row.cost in HEAVY:
            found[planned.name] = planned.precision.compute
    return found


@pytest.mark.parametrize("to", ["bf16", "fp16"])
@pytest.mark.parametrize("name", sorted(set(policies()) - {"off"}))
def test_products_of_both_passes_run_low_under_every_policy(name: str, to: str) -> None:
    """One that names operators has a rule for each that is there."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="no product runs low")
        snapshot = _trained(_whole, policy=name, to=to)
    products = _products(snapshot.graph, snapshot.plan)
    assert any("/backward/" in one for one in products)
    assert any("/backward/" not in one for one in products)
    assert HIGH not in products.values(), products
    if any(one.ops for one in policies()[name].rules):
        assert [one.op for one in snapshot.plan.nodes if one.rule == "otherwise"] == []


def _verdicts(name: str, strategy: str = "upstream", to: str = "bf16") -> dict[str, str]:
    """What a preset says of each operator of a network with a norm, a GELU and two products, and what each runs in."""
    torch._dynamo.reset()
    snapshot = _trained(_perceptron, policy=name, strategy=strategy, to=to)
    return {
        one.name: f"{'' if one.category is None else one.category.value} {one.precision.compute}"
        + ("" if one.precision.output is one.precision.compute else f", hands on {one.precision.output}")
        for one in snapshot.plan.nodes
        if one.op in ("addmm", "mm", "gelu", "gelu_backward", "native_layer_norm", "native_layer_norm_backward", "sum")
    }


def test_presets_of_graphamp_mean_in_pytorch_what_they_mean() -> None:
    """From conservative on, where products alone are mixed, each preset has more operators run low. What infers takes
    the precision that its readers want: the GELU is read by a product, its derivative by a normalization's.
    """
    mixed = "allow bf16, hands on f32"
    sums = ("down/backward/sum", "up/backward/sum")
    norms = ("norm/native_layer_norm", "norm/backward/native_layer_norm_backward")
    gelus = ("gelu", "backward/gelu_backward")
    products = (
        "up/addmm", "down/addmm", "down/backward/mm", "down/backward/mm#1", "up/backward/mm", "up/backward/mm#1"
    )  # fmt: skip
    assert _verdicts("graphamp-conservative") == {
        **dict.fromkeys(products, mixed),
        **dict.fromkeys((*sums, *norms, *gelus), "deny f32"),
    }
    assert _verdicts("graphamp-balanced") == {
        **dict.fromkeys(products, mixed),
        **dict.fromkeys((*sums, *norms), "deny f32"),
        "gelu": "infer bf16",
        "backward/gelu_backward": "infer f32",
    }
    assert _verdicts("graphamp-aggressive") == dict.fromkeys((*products, *sums, *norms, *gelus), mixed)


def test_autocast_means_in_pytorch_what_its_lists_say() -> None:
    """In FP16, whose lists are CUDA's. What a pass's gradients are goes with what they are gradients of."""
    products = (
        "up/addmm", "down/addmm", "down/backward/mm", "down/backward/mm#1", "up/backward/mm", "up/backward/mm#1"
    )  # fmt: skip
    high = ("norm/native_layer_norm", "norm/backward/native_layer_norm_backward")
    sums = ("down/backward/sum", "up/backward/sum")
    assert _verdicts("autocast", "forward", "fp16") == {
        **dict.fromkeys(products, "allow f16"),
        **dict.fromkeys((*high, *sums), "deny f32"),
        **dict.fromkeys(("gelu", "backward/gelu_backward"), "infer f32"),  # a kernel computes them in FP32
    }


def test_a_policy_without_a_rule_for_what_a_program_has_is_warned_of() -> None:
    foreign = Policy(
        name="foreign",
        summary="knows one operator of another domain",
        rules=(rule("allowset", Category.ALLOW, "is known", ops=("com.microsoft:FusedMatMul",)),),
        findings=frozenset(),
        otherwise=Category.DENY,
        promotes_untroubled=False,
    )
    model, x = _perceptron()
    run = compiled(model, policy=foreign)
    said = "no product runs low: policy 'foreign' has no rule for what the graph has (addmm, mm)"
    with pytest.warns(UserWarning, match=f"^{re.escape(said)}$"):
        run(x).sum().backward()
    assert repr(account(run)).endswith(f"; {said}")


def test_account_says_why_no_product_runs_low() -> None:
    model, x = _perceptron()
    run = compiled(model, policy="off")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="no product runs low")
        run(x).sum().backward()
    assert repr(account(run)).endswith("; no product runs low (addmm, mm), by rule 'off': the policy changes nothing")
    torch._dynamo.reset()
    run = compiled(model)
    with torch.autocast("cpu", torch.bfloat16):
        run(x)
    assert repr(account(run)).endswith(
        "; products are bf16 as they came: by an autocast around the call, by casts, or by weights"
    )


def test_nothing_is_said_where_nothing_multiplies() -> None:
    run = compiled(torch.sin, policy="off")
    run(torch.randn(4, 4))
    (graph,) = account(run).graphs
    assert graph.no_conversion_reason is None
