"""INT8 in compiled modules: which kernels run, frozen or not, and that weights which change are quantized again."""

import copy
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import EMULATES_BF16, IN_PAIRS, generate_no_code
from torch import nn
from torch.nn import functional as F

import mezzo.torch
from mezzo.contracts.calibrator import Grid
from mezzo.formats.dtypes import DType
from mezzo.quantize.arithmetic.weights import weight_parameters
from mezzo.torch.compiler import scales
from mezzo.torch.compiler.backend import tell_once
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.int8_kernels import INT8_SCALES, convolves_int8, multiplies_int8

pytestmark = pytest.mark.skipif(
    not (multiplies_int8(IN_PAIRS) and convolves_int8(IN_PAIRS)), reason="oneDNN has no INT8 kernels on this machine"
)

Module = Callable[[], nn.Module]
# A step is 1/255 of a range of some eight standard deviations, in each of three products and their operands.
ERROR = 6 / 32 / 3


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Turned(nn.Module):
    """A matmul whose weight has the input's features first, as in GPT-2's Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 48) / 8), nn.Parameter(torch.randn(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], 48)


class Added(nn.Module):
    """A matmul whose addend is no bias, or that is scaled: oneDNN has no INT8 kernel of it."""

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self.first, self.weight, self.alpha = nn.Linear(64, 64), nn.Parameter(torch.randn(64, 64) / 8), alpha

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        addend = x if self.alpha == 1.0 else self.first.bias
        return torch.addmm(addend, x, self.weight, alpha=self.alpha)


class Twice(nn.Module):
    """A product that is called twice, with other ranges of its operand."""

    def __init__(self, product: nn.Module) -> None:
        super().__init__()
        self.product = product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.product(torch.relu(self.product(x)))
        return result


class Residual(nn.Module):
    """Sums of products and of what they read, before activations."""

    def __init__(self, make: Module, act: Any = F.relu) -> None:
        super().__init__()
        self.first, self.second, self.third, self.act = make(), make(), make(), act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.first(x))
        y = self.act(self.second(y) + y)
        result: torch.Tensor = self.act(self.third(y) + y)
        return result


class Tied(nn.Module):
    """An embedding whose table the head reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(100, 64), nn.Linear(64, 64), nn.Linear(64, 100, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.mix(self.table(x.mul(10).abs().long())))
        return result


class Sides(nn.Module):
    """Products by an operand that is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(64, 32), nn.Linear(64, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
        result: torch.Tensor = self.left(x) * self.right(x)
        return result


def rows(seed: int, *sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (4, 64)), generator=torch.Generator().manual_seed(seed))


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 16)).eval()


def image(act: Any) -> Module:
    return lambda: Residual(lambda: nn.Conv2d(8, 8, 3, padding=1, groups=2), act)


# A module, the sizes of its input, and how many of its products run in INT8.
MODULES: dict[str, tuple[Module, tuple[int, ...], int]] = {
    "linears": (layers, (4, 64), 3),
    "of sequences": (layers, (2, 3, 64), 3),
    "turned": (lambda: nn.Sequential(Turned(), nn.GELU("tanh"), nn.Linear(48, 8)), (2, 3, 64), 2),
    "twice": (lambda: Twice(nn.Linear(64, 64)), (4, 64), 2),
    "convolution twice": (lambda: Twice(nn.Conv2d(8, 8, 3)), (2, 8, 9, 7), 2),
    "sums": (lambda: Residual(lambda: nn.Linear(64, 64)), (2, 3, 64), 3),
    "sums of images": (image(F.relu), (2, 8, 9, 7), 3),
    "hardtanh": (image(F.relu6), (2, 8, 9, 7), 3),
    "sequences": (lambda: Residual(lambda: nn.Conv1d(8, 8, 3, padding=1)), (2, 8, 9), 3),
    "channels last": (lambda: image(F.silu)().to(memory_format=torch.channels_last), (2, 8, 9, 7), 3),
    "padding by name": (
        lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(8, 8, 3, stride=2, padding="valid")),
        (2, 8, 9, 7),
        1,
    ),
    "volumes": (lambda: nn.Sequential(nn.Conv3d(8, 8, 3), nn.ReLU(), nn.Conv3d(8, 8, 1)), (2, 8, 5, 4, 3), 0),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(8, 8, 3)), (2, 8, 9, 7), 1),
    "added": (lambda: Added(1.0), (4, 64), 1),
    "scaled": (lambda: Added(0.5), (4, 64), 1),
    "tied": (Tied, (4, 7), 2),
    "sides": (Sides, (2, 3, 64), 2),
}


def error(result: torch.Tensor, right: torch.Tensor) -> float:
    return float((result - right).norm() / right.norm())


def int8(module: nn.Module, *sizes: int, **options: Any) -> Any:
    data = [rows(seed, *sizes) for seed in range(8)]
    return mezzo.torch.compile(module.eval(), **{"to": "int8", "data": data, "correct": "none", **options})


def planned(run: Any) -> int:
    products = {"mm", "addmm", "convolution"}
    nodes = [node for plan in run.plans if plan is not None for node in plan.nodes if node.op in products]
    return sum(str(node.precision.compute) == "int8" for node in nodes)


@pytest.mark.parametrize("to", ["int8", "int8,bf16", "int8,fp16"])
@pytest.mark.parametrize("name", MODULES)
def test_planned_products_run_in_int8_frozen_or_not(name: str, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    make, sizes, count = MODULES[name]
    module, x = make(), rows(99, *sizes)
    runs = [int8(module, *sizes, to=to, freeze=is_frozen) for is_frozen in (True, False)]
    frozen, changing = (run(x) for run in runs)
    assert error(frozen, module(x)) < ERROR
    # What no INT8 kernel takes may sum in another order when it is packed: a few roundings of FP32.
    assert error(frozen, changing) <= 8 * 2**-24
    if to == "int8" or not EMULATES_BF16:
        assert frozen.stride() == changing.stride() == module(x).stride()
    for run in runs:
        assert account(run).graphs[0].int8_products == planned(run) <= count
    assert to != "int8" or planned(run) == count


class SetsItselfUp(nn.Module):
    """A module whose first call alone breaks its graph, as those of transformers that record outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.is_ready = nn.Linear(64, 64), nn.Linear(64, 64), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if not self.is_ready:
            torch._dynamo.graph_break()
            self.is_ready = True
        result: torch.Tensor = self.second(x)
        return result


def test_calibration_sees_the_graphs_of_later_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    run = int8(SetsItselfUp(), 4, 64)
    run(rows(99))
    assert [graph.int8_products for graph in account(run).graphs] == [2]


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("name", ["linears", "turned", "sums", "sums of images", "sequences", "channels last"])
def test_inductor_calls_the_kernels_itself(name: str, is_frozen: bool) -> None:
    make, sizes, count = MODULES[name]
    module, x = make(), rows(99, *sizes)
    run = int8(module, *sizes, freeze=is_frozen)
    result = run(x)
    assert error(result, module(x)) < ERROR
    assert result.stride() == module(x).stride()
    with torch.profiler.profile() as profile:
        run(x)
    calls = Counter(event.name for event in profile.events() if event.name.startswith(("onednn::", "mezzo::")))
    assert sum(calls.values()) == count
    assert not any(name.startswith("mezzo::") or "prepack" in name for name in calls)


class ReadAgain(nn.Module):
    """Sums of images whose addend is read by others, before the sum alone or after it too."""

    def __init__(self, *, is_after: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.third, self.is_after = nn.Conv2d(8, 8, 1), is_after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.first(x))
        before = torch.tanh(y)  # Inductor computes it where it is read
        z = self.third(F.relu(self.second(y) + y)) + before
        return z + y if self.is_after else z


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("is_after", [True, False])
def test_an_addend_is_overwritten_after_its_last_use_alone(is_after: bool, is_frozen: bool) -> None:
    sizes = (2, 8, 9, 7)
    module, x = ReadAgain(is_after=is_after), rows(99, *sizes)
    run = int8(module, *sizes, to="int8", freeze=is_frozen)
    assert error(run(x), module(x)) < ERROR
    assert torch.equal(run(x), run(x))


# -- weights that change ---------------------------------------------------------------------------------------------


def step(module: nn.Module, **options: Any) -> None:
    with torch.enable_grad():
        optimizer = torch.optim.SGD(module.parameters(), lr=0.3, **options)
        module(rows(5)).square().sum().backward()
        optimizer.step()


CHANGES: dict[str, Callable[[Any], object]] = {
    "in place": lambda module: module[0].weight.mul_(-0.5),
    "assigned": lambda module: setattr(module[0], "weight", nn.Parameter(torch.randn(96, 64) / 8)),
    "loaded": lambda module: module.load_state_dict({key: held / 2 for key, held in module.state_dict().items()}),
    "data": lambda module: setattr(module[0].weight, "data", torch.randn(96, 64) / 8),
    "data in place": lambda module: module[0].weight.data.mul_(-0.5),  # seen by a sample of its elements
    "step": step,
    "fused step": lambda module: step(module, fused=True),
    "not a number": lambda module: module[0].weight.fill_(float("nan")),
    "zero": lambda module: module[0].weight.zero_(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_weight_that_changes_is_quantized_again(
    change: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_no_code(monkeypatch)
    module, x = layers(), rows(99)
    run = int8(module)
    names, before = [*module.state_dict()], run(x)
    change(module)
    after = run(x)
    assert not torch.equal(before, after)
    anew = copy.deepcopy(run)(x)  # compiled again, with the same scales, or in floats
    assert torch.equal(after, anew) or anew.isnan().any()
    assert len(account(run).graphs) == 1 or change is CHANGES["assigned"]
    assert [*module.state_dict()] == names
    assert {str(weight.dtype) for weight in module.state_dict().values()} == {"torch.float32"}
    assert torch.equal(run(x), after) or after.isnan().any()


def test_weights_that_no_kernel_multiplies_any_more_run_in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that is compiled again, once training has diverged."""
    generate_no_code(monkeypatch)
    module = layers()
    run = int8(module)
    module[0].weight.fill_(float("nan"))
    again = copy.deepcopy(run)
    with pytest.warns(UserWarning, match="the plan from data no longer fits, so nothing runs in INT8: .*permute"):
        assert again(rows(99)).isnan().all()
    (plan,) = again.plans
    assert not any(node.precision.compute is DType.QUANTIZED8 for node in plan.nodes)
    assert [note for note in plan.notes if "the plan from data no longer fits" in note]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))], ids=["copy", "pickle"])
def test_copies_run_in_int8_with_weights_of_their_own(again: Callable[[Any], Any]) -> None:
    module, x = layers(), rows(99)
    run = int8(module)
    before = run(x)
    other = again(run)
    module[0].weight.zero_()
    assert torch.equal(other(x), before)
    assert not torch.equal(run(x), before)
    assert planned(other) == 3


def test_threads_share_a_quantized_weight() -> None:
    module, x = layers(), rows(99)
    run = int8(module)
    expected = run(x)
    module[0].weight.add_(0)  # quantized anew, by whoever comes first

    def call(_: int) -> torch.Tensor:
        with torch.no_grad():
            return run(x)  # type: ignore[no-any-return]

    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(result, expected) for result in pool.map(call, range(16)))


def test_sizes_that_are_free_share_a_packed_matrix() -> None:
    module = layers()
    run = int8(module, dynamic=True)
    for count in (3, 8, 1, 17):
        x = rows(99, count, 64)
        assert error(run(x), module(x)) < ERROR
    images = image(F.relu)()
    run = int8(images, 2, 8, 9, 7, dynamic=True)
    for sizes in ((2, 8, 9, 7), (3, 8, 5, 11)):
        assert error(run(rows(98, *sizes)), images(rows(98, *sizes))) < ERROR
    assert len(account(run).graphs) == 1


def test_graph_breaks_and_bodies_run_in_int8_where_weights_are_inputs() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(64, 64) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            torch._dynamo.graph_break()
            result: torch.Tensor = torch.cond(x.sum() > 0, self.second, torch.neg, (self.third(x),))
            return result

    module, x = Broken(), rows(99)
    run = int8(module)
    assert error(run(x), module(x)) < ERROR
    assert [graph.int8_products for graph in account(run).graphs] == [1, 1]
    module.third.weight.mul_(-1)
    assert error(run(x), module(x)) < ERROR


def test_training_and_weights_whose_changes_are_not_seen_keep_floats() -> None:
    module, x = layers(), rows(99)
    run = int8(module)
    with torch.enable_grad():
        result = run(x)
        result.sum().backward()
    assert torch.allclose(result, module(x), atol=1e-5)
    with torch.inference_mode():
        made = layers()
        inferring = int8(made)
        assert torch.allclose(inferring(x), made(x), atol=1e-5)
    wrapped = int8(layers(), options={"cpp_wrapper": True})
    wrapped_result = wrapped(x)
    assert wrapped_result.shape == (4, 16)
    for compiled in (run, inferring, wrapped):
        assert planned(compiled) == 0


def test_what_fails_its_self_test_stays_in_floats_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    monkeypatch.setattr(scales, "multiplies_int8", lambda in_pairs: False)
    module = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(120, 8))
    run = int8(module, 2, 8, 9, 7)
    assert error(run(rows(99, 2, 8, 9, 7)), module(rows(99, 2, 8, 9, 7))) < ERROR
    nodes = {node.op: node for node in run.plans[0].nodes}
    assert planned(run) == account(run).graphs[0].int8_products > 0  # convolutions
    assert str(nodes["addmm"].precision.compute) != "int8"
    assert "oneDNN's INT8 matmuls fail their self-test on this machine" in nodes["addmm"].because
    volumes = int8(MODULES["volumes"][0](), 2, 8, 5, 4, 3)
    volumes(rows(99, 2, 8, 5, 4, 3))
    (node, _) = (node for node in volumes.plans[0].nodes if node.op == "convolution")
    assert "oneDNN's INT8 convolutions are of sequences and images" in node.because


@pytest.mark.parametrize("in_pairs", [False, True])
def test_scales_of_weights_are_those_of_the_planner(in_pairs: bool) -> None:
    grid = Grid(dtype=DType.INT8, is_symmetric=True, is_narrow=True)
    for weight in (torch.randn(7, 33), torch.randn(5, 4, 3, 3) * torch.logspace(-30, 30, 5).view(-1, 1, 1, 1)):
        planned = weight_parameters(weight.numpy(), grid, 0, in_pairs)
        assert INT8_SCALES(weight, in_pairs).tolist() == list(planned.scales)
    assert INT8_SCALES(torch.zeros(2, 3), in_pairs).tolist() == [1, 1]


class Peaked(nn.Module):
    """Products whose weights and inputs are near the ends of their ranges: sums of pairs are the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.line, self.out = nn.Conv2d(6, 8, 3, padding=1), nn.Linear(64, 48), nn.Linear(48, 9)
        for weight in (self.turn.weight, self.line.weight, self.out.weight):
            weight.data = 1 - weight.detach() ** 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.turn(x)).flatten(2)
        result: torch.Tensor = self.out(F.relu(self.line(x)))
        return result


@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("asked", ["auto", "yes"])
def test_the_largest_sums_are_right(asked: str, is_frozen: bool) -> None:
    model, x = Peaked().eval(), 1 - 0.2 * torch.rand(4, 6, 8, 8)
    compiled = mezzo.torch.compile(model, to="int8", data=[(x,)], freeze=is_frozen, reduce_range=asked)
    answer, exact = compiled(x), model(x)
    assert [graph.int8_products for graph in account(compiled).graphs] == [3]
    # A step is 1/127 of a weight and 1/255 of an input, in each of three products.
    assert (answer - exact).norm() <= 3 * (1 / 127 + 1 / 255) * exact.norm()


@pytest.mark.parametrize(("features", "is_told"), [("avx2", True), ("avx2 avx512_bf16", False)])
def test_emulated_floats_are_told(
    features: str, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags : {features}\n")
    monkeypatch.setattr("mezzo.common.machine.CPUINFO", tmp_path / "cpuinfo")
    tell_once.cache_clear()
    mezzo.torch.compile(nn.Linear(8, 8))(torch.randn(2, 8))
    told = [str(each.message) for each in recwarn if "emulates" in str(each.message)]
    wanted = (
        "this CPU has no amx_bf16 or avx512_bf16: PyTorch emulates matmuls and convolutions in bf16, many times slower"
        " than in FP32; in inference to='int8' gains here"
    )
    assert told == ([wanted] if is_told else [])
    torch._dynamo.reset()
    mezzo.torch.compile(nn.ReLU())(torch.randn(2, 8))
    assert len([each for each in recwarn if "emulates" in str(each.message)]) == len(told)
