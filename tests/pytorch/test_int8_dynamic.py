"""INT8 matmuls in PyTorch that find ranges of rows at run time: plans, kernels, and numbers of every kind."""

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import EMULATES_BF16, IN_PAIRS, generate_no_code
from random_modules import WIDTH, RandomModule
from torch import fx, nn
from torch._inductor import config as inductor_config
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional as F

import mezzo
import mezzo.torch
from mezzo.aten.edit.quantizing import DEQUANTIZE_TENSOR, QUANTIZE_TENSOR
from mezzo.common.errors import InputError
from mezzo.torch.compiler import passes, scales
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn import int8_kernels
from mezzo.torch.onednn.int8_epilogues import fuse_int8
from mezzo.torch.onednn.int8_kernels import multiplies_int8
from mezzo.torch.operators import STORED

needs_kernels = pytest.mark.skipif(not multiplies_int8(IN_PAIRS), reason="oneDNN has no INT8 matmuls on this machine")
is_frozen = pytest.mark.parametrize("is_frozen", [True, False])
# A step is 1/255 of a range of some eight standard deviations, in each of three products and their operands.
ERROR = 6 / 32 / 3


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 16)).eval()


class Block(nn.Module):
    """A transformer's block: three matmuls read the same values, and two are added to others."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y = F.scaled_dot_product_attention(self.query(y), self.key(y), self.value(y))
        x = x + self.out(y)
        result: torch.Tensor = x + self.down(F.gelu(self.up(x)))
        return result


class Turned(nn.Module):
    """A matmul whose weight has the input's features first, as in GPT-2's Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 48) / 8), nn.Parameter(torch.randn(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], 48)


class Tied(nn.Module):
    """An embedding whose table the head reads too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(100, 64), nn.Linear(64, 64), nn.Linear(64, 100, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.mix(self.table(x.mul(10).abs().long())))
        return result


def rows(seed: int, *sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (4, 64)), generator=torch.Generator().manual_seed(seed))


def error(result: torch.Tensor, right: torch.Tensor) -> float:
    return float((result.double() - right).norm() / right.double().norm())


def dynamic(module: nn.Module, **options: Any) -> Any:
    return mezzo.torch.compile(module.eval(), **{"to": "int8", "calibrator": "none", **options})


def converted(program: ExportedProgram, **options: Any) -> Any:
    return mezzo.convert(program, **{"to": "int8", "target": "torch-cpu", "calibrator": "none", **options})


def in_int8(plan: mezzo.Plan | None) -> list[str]:
    assert plan is not None
    return [node.name for node in plan.nodes if node.kind == "op" and str(node.precision.compute) == "int8"]


def called(graph: fx.Graph) -> Counter[object]:
    return Counter(node.target for node in graph.nodes if node.op == "call_function")


# -- exported programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["int8", "int8,bf16"])
def test_an_exported_program_finds_ranges_as_it_runs(to: str, tmp_path: Path) -> None:
    module = layers()
    result = converted(export(module, (rows(0),)), to=to)
    assert in_int8(result.plan) == [*result.plan.dynamic] == ["0/linear", "2/linear", "4/linear"]
    calls = called(result.model.graph)
    assert calls[QUANTIZE_TENSOR] == calls[DEQUANTIZE_TENSOR] == 3
    weights = [tensor for name, tensor in result.model.state_dict.items() if name.endswith("weight")]
    assert {weight.dtype for weight in weights} == {torch.int8}
    for scale in (1.0, 1e4):  # no range is that of other data
        assert 0.0 < error(result.model.module()(scale * rows(9)), module(scale * rows(9))) < ERROR
    torch.export.save(result.model, tmp_path / "int8.pt2")
    assert torch.equal(torch.export.load(tmp_path / "int8.pt2").module()(rows(9)), result.model.module()(rows(9)))


def test_the_emulated_error_is_that_of_the_result() -> None:
    module = layers()
    program, unseen = export(module, (rows(0),)), rows(99, 64, 64)
    result = converted(program)
    feeds = [{"input": unseen[at : at + 4].numpy()} for at in range(0, 64, 4)]
    found = mezzo.compare(program, result.model, feeds).verdict.error
    outputs = torch.cat([result.model.module()(unseen[at : at + 4]) for at in range(0, 64, 4)])
    assert found is not None
    # The same operators run in both, so they differ by rounding in FP32 alone.
    assert found.estimate == pytest.approx(error(outputs, module(unseen)), rel=0.02)


def test_a_plan_is_replayed_and_searches_know_such_products() -> None:
    program = export(layers(), (rows(0),))
    first = converted(program, to="int8,bf16")
    again = mezzo.convert(program, plan=first.plan)
    assert again.plan.edits == first.plan.edits
    assert torch.equal(again.model.module()(rows(5)), first.model.module()(rows(5)))
    data = [{"input": rows(seed).numpy()} for seed in range(12)]
    options = {"target": "torch-cpu", "calibrator": "none", "data": data}
    assert len(mezzo.sensitivity(program, to="int8", **options).units) == 3
    tuned = mezzo.tune(program, to="int8,bf16", max_error=0.012, **options)
    assert 0 < len(in_int8(tuned.plan)) < 3
    report = mezzo.quantize_report(program, data, target="torch-cpu")
    assert "none" in [row.calibrator for row in report.rows]


def test_what_no_kernel_runs_so_stays_in_floats_and_says_why() -> None:
    module = nn.Sequential(nn.Conv1d(4, 4, 3), nn.Flatten(), nn.Linear(8, 4)).eval()
    plan = converted(export(module, (rows(0, 2, 4, 4),))).plan
    because = {node.name: node.because for node in plan.nodes}
    assert in_int8(plan) == ["2/linear"]
    assert because["2/linear"].endswith("; the range of what it reads is found as it runs")
    assert because["0/conv1d"].startswith("torch-cpu has no kernel of it that finds ranges as it runs")


@needs_kernels
def test_inductor_runs_a_converted_program_in_the_same_kernels() -> None:
    module, x = layers(), rows(9).abs() + 3.0
    run = converted(export(module, (x,))).model.module()
    with inductor_config.patch(freezing=True):
        compiled = torch.compile(run)
        assert error(compiled(x), run(x)) < 1e-5
        assert kernels(compiled, x) == {"onednn::qlinear_pointwise": 3}


def test_attention_reads_and_makes_floats() -> None:
    plan = converted(export(Block().eval(), (rows(0, 2, 5, 64),))).plan
    assert len(in_int8(plan)) == 6
    assert all(name.endswith("/linear") for name in in_int8(plan))


# -- compiled modules ------------------------------------------------------------------------------------------------


def kernels(run: Any, *args: torch.Tensor) -> Counter[str]:
    with torch.profiler.profile() as profile:
        run(*args)
    names = ("onednn::", "mezzo::", "aten::addmm", "aten::mm")
    return Counter(event.name for event in profile.events() if event.name.startswith(names))


# A module, the sizes of its input, and how many of its products run in INT8.
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "linears": (layers, (4, 64), 3),
    "of sequences": (layers, (2, 3, 64), 3),
    "turned": (lambda: nn.Sequential(Turned(), nn.GELU("tanh"), nn.Linear(48, 8)), (2, 3, 64), 2),
    "attention": (Block, (2, 3, 64), 6),
    "tied": (Tied, (4, 7), 2),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(280, 8)), (2, 8, 9, 7), 1),
}


@needs_kernels
@pytest.mark.parametrize("to", ["int8", "int8,bf16", "int8,fp16"])
@pytest.mark.parametrize("name", MODULES)
def test_products_run_in_int8_frozen_or_not(name: str, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    make, sizes, count = MODULES[name]
    module, x = make().eval(), rows(99, *sizes)
    runs = [dynamic(module, to=to, freeze=freeze) for freeze in (True, False)]
    frozen, changing = (run(x) for run in runs)
    assert error(frozen, module(x)) < ERROR
    assert error(frozen, changing) <= 8 * 2**-24
    if to == "int8" or not EMULATES_BF16:
        assert frozen.stride() == changing.stride() == module(x).stride()
    for run in runs:
        assert account(run).graphs[0].int8_products == len(run.plans[0].dynamic) <= count
        assert to != "int8" or len(run.plans[0].dynamic) == count


@needs_kernels
@is_frozen
@pytest.mark.parametrize("name", ["linears", "turned", "attention"])
def test_inductor_calls_the_kernels_itself(name: str, is_frozen: bool) -> None:
    make, sizes, count = MODULES[name]
    module, x = make().eval(), rows(99, *sizes)
    run = dynamic(module, freeze=is_frozen)
    assert error(run(x), module(x)) < ERROR
    assert {key: number for key, number in kernels(run, x).items() if "aten" not in key} == {
        "onednn::qlinear_pointwise": count
    }


@needs_kernels
def test_the_compiled_answer_is_that_of_the_program() -> None:
    """Weights of the largest sums among them: where kernels add in pairs, none saturates."""
    module, x = layers(), rows(99).abs()
    module[0].weight[:8] = module[0].weight[:8].sign()
    program = converted(export(module, (x,))).model.module()
    assert error(dynamic(module)(x), program(x)) < 1e-6  # the same integers, in FP32 sums of another order


@needs_kernels
def test_what_reads_the_same_values_shares_their_range(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    calls: list[Counter[object]] = []

    def fuse(graph: fx.Graph) -> None:
        fuse_int8(graph)
        graph.eliminate_dead_code()
        calls.append(called(graph))

    monkeypatch.setattr(passes, "fuse_int8", fuse)
    dynamic(Block())(rows(99, 2, 3, 64))
    # Where rows are stored, their range and their integers do not compute them twice.
    assert [calls[0][target] for target in (int8_kernels.INT8_LINEAR, QUANTIZE_TENSOR, STORED)] == [6, 4, 4]
    shared = called(converted(export(Block().eval(), (rows(0, 2, 3, 64),))).model.graph)
    assert shared[QUANTIZE_TENSOR] == 4


def test_every_graph_runs_in_int8_and_plans_say_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)

    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            torch._dynamo.graph_break()
            result: torch.Tensor = self.second(x)
            return result

    module, x = Broken(), rows(99)
    run = dynamic(module, to="int8,bf16")
    before = run(x)
    assert [plan.dynamic for plan in run.plans] == [("first/addmm",), ("second/addmm",)]
    explained = str(mezzo.torch.explain(run, "first/addmm"))
    assert "the range of what it reads is found as it runs" in " ".join(explained.split())
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    for freeze in (True, False):
        torch._dynamo.reset()
        again = mezzo.torch.compile(module, plan=tmp_path / "plan.json", freeze=freeze)
        assert error(again(x), before) <= 8 * 2**-24
        assert [plan.dynamic for plan in again.plans] == [plan.dynamic for plan in run.plans]


@needs_kernels
def test_a_comparison_emulates_the_plan() -> None:
    module, x = layers(), rows(99)
    run = dynamic(module)
    found = mezzo.torch.compare(module, run, [x], layers="operators")
    assert found.outputs[0].error == pytest.approx(error(run(x), module(x)), rel=1e-3)
    assert 0.0 < max(layer.error for layer in found.layers) < ERROR


@needs_kernels
def test_a_budget_is_held_by_such_products(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    module = layers()
    data = [rows(seed) for seed in range(12)]
    run = dynamic(module, data=data, max_error=0.011)
    assert error(run(rows(99, 64, 64)), module(rows(99, 64, 64))) < 0.0125
    assert 0 < account(run).graphs[0].int8_products < 3


@pytest.mark.parametrize("seed", range(6))
def test_random_modules_answer_within_their_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    module, x = RandomModule(seed).eval(), rows(seed, 2, 8, WIDTH)
    program = converted(export(module, (x,))).model.module()
    answers = zip(dynamic(module)(x), program(x), module(x), strict=True)
    for compiled, exported, right in answers:
        if right.is_floating_point() and right.norm() > 1e-3:  # others are differences of equals
            assert error(compiled, right) < 0.25
            assert error(compiled, exported) < 0.1  # ties may round to either of two neighbours


def in_steps(x: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """FP64 numbers as U8 holds them in a range with 0."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = (high - low) / 255
    zero = (-low / scale).round()
    return ((x / scale).round() + zero).clamp(0, 255).sub(zero) * scale


@needs_kernels
@pytest.mark.parametrize("change", [lambda x: x, lambda x: x.abs() + 1.0, lambda x: -x.abs()], ids=["", "+", "-"])
@pytest.mark.parametrize("sizes", [(5, 64), (2, 3, 64)], ids=str)
@pytest.mark.parametrize("make", [Turned, lambda: nn.Linear(64, 48), lambda: nn.Linear(64, 48, bias=False)])
def test_the_numbers_are_those_of_rows_in_u8_by_channels_in_s8(
    make: Callable[[], nn.Module],
    sizes: tuple[int, ...],
    change: Callable[[torch.Tensor], torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generate_no_code(monkeypatch)
    module, x = make().eval(), change(rows(7, *sizes))
    program = converted(export(module, (x,)))
    run, fixed = dynamic(module), dynamic(module, freeze=True)
    weight = module.weight.double()
    weight = weight.T if isinstance(module, Turned) else weight
    (scales,) = (torch.tensor(how.scales).double() for _, how in program.plan.quantized if how.axis is not None)
    weight = (weight / scales[:, None]).round().clamp(-127, 127) * scales[:, None]
    numbers = in_steps(x.double(), x.double().amin(-1, keepdim=True), x.double().amax(-1, keepdim=True))
    bias = 0.0 if module.bias is None else module.bias.double()
    for answer in (program.model.module()(x), run(x), fixed(x)):
        assert error(answer, numbers @ weight.T + bias) < 32 * 2**-24  # FP32 sums of 64, of numbers that cancel


@needs_kernels
@is_frozen
def test_no_row_depends_on_another(is_frozen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a hundred times the others' size, as the first tokens of language models have them."""
    generate_no_code(monkeypatch)
    module, x = layers(), rows(99, 2, 8, 64)
    x[:, 0] *= 100.0
    program = converted(export(module, (x,))).model.module()
    run = dynamic(module, freeze=is_frozen)
    for answer in (run(x), program(x)):
        for result, right in zip(answer.flatten(0, 1), module(x).flatten(0, 1), strict=True):
            assert error(result, right) < ERROR
        assert error(answer[1:], run(x[1:])) <= 8 * 2**-24  # sums of another order


# -- weights that change ---------------------------------------------------------------------------------------------


def test_a_weight_that_changes_is_quantized_again(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    module, x = layers(), rows(99)
    run = dynamic(module)
    before = run(x)
    module[0].weight.mul_(-0.5)
    assert not torch.equal(run(x), before)
    assert error(run(x), module(x)) < ERROR
    other = copy.deepcopy(run)
    module.load_state_dict({key: held / 2 for key, held in module.state_dict().items()})
    assert error(run(x), module(x)) < ERROR
    assert not torch.equal(other(x), run(x))


# -- numbers of every kind, and sizes --------------------------------------------------------------------------------


def changed(x: torch.Tensor, number: float) -> torch.Tensor:
    return torch.where(torch.arange(x.numel()).view(x.shape) == 3, number, x)


FINITE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all positive": lambda x: x.abs() + 3.0,  # the range has 0 too
    "all negative": lambda x: -x.abs() - 3.0,
    "zero": torch.zeros_like,
    "tiny": lambda x: 1e-30 * x,
    "below normal numbers": lambda x: 1e-40 * x,
    "large": lambda x: 1e30 * x,
}


@needs_kernels
@is_frozen
def test_every_finite_range_has_steps(is_frozen: bool) -> None:
    module, x = layers(), rows(99)
    run, program = dynamic(module, freeze=is_frozen), converted(export(module, (x,))).model.module()
    for name, change in FINITE.items():
        for answer in (run(change(x)), program(change(x))):
            assert error(answer, module(change(x))) < ERROR, name
    for number in (float("nan"), float("inf"), -float("inf")):
        for answer in (run(changed(x, number)), program(changed(x, number))):
            assert not answer[0].isfinite().any()  # not some wrong number
            assert error(answer[1:], module(x)[1:]) < ERROR


@needs_kernels
def test_sizes_may_be_free_and_none_at_all() -> None:
    module = layers()
    run = dynamic(module, dynamic=True)
    for count in (3, 8, 1, 17, 0):
        x = rows(99, count, 64)
        assert run(x).shape == (count, 16)
        assert count == 0 or error(run(x), module(x)) < ERROR
    program = converted(export(module, (rows(0),), dynamic_shapes=({0: Dim("n")},))).model.module()
    assert error(program(rows(9, 7, 64)), module(rows(9, 7, 64))) < ERROR


@needs_kernels
def test_a_small_matmul_of_one_row_is_a_sum_of_products_in_floats() -> None:
    """Inductor writes it so; the matmul before it has a kernel."""
    module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 16)).eval()
    run, x = mezzo.torch.compile(module, to="int8", calibrator="none"), torch.randn(1, 64)
    assert 0.0 < float((run(x) - module(x)).norm() / module(x).norm()) < ERROR
    (graph,) = account(run).graphs
    assert (graph.int8_products, graph.note) == (1, None)


def test_sizes_that_only_data_tells_stay_in_floats() -> None:
    class Selected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(x[x[:, 0] > 0])
            return result

    module = Selected()
    run = dynamic(module, fullgraph=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for x in (rows(1), rows(2), -rows(3).abs()):
            assert torch.allclose(run(x), module(x), atol=1e-5)


# -- what is refused, and what is missing ----------------------------------------------------------------------------


def test_training_keeps_floats() -> None:
    module, x = layers(), rows(99)
    run = dynamic(module)
    with torch.enable_grad():
        result = run(x)
        result.sum().backward()
    assert torch.allclose(result, module(x), atol=1e-5)
    assert in_int8(run.plans[0]) == []


def test_what_fails_its_self_test_stays_in_floats_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    generate_no_code(monkeypatch)
    monkeypatch.setattr(scales, "multiplies_int8", lambda in_pairs: False)
    module, x = layers(), rows(99)
    run = dynamic(module)
    assert torch.allclose(run(x), module(x), atol=1e-5)
    assert {node.because for node in run.plans[0].nodes if node.op == "addmm"} == {
        "oneDNN's INT8 matmuls fail their self-test on this machine"
    }


def test_a_kernel_with_a_wrong_scale_fails_its_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    real = int8_kernels.INT8_LINEAR
    monkeypatch.setattr(int8_kernels, "INT8_LINEAR", lambda *given: real(*given[:6], given[6] * 1.01, *given[7:]))
    assert not int8_kernels._linear_holds(IN_PAIRS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "to has int8, whose scales come from data; .* or let ranges be found at run time, with calibrator='none'"),
        (
            {"calibrator": "none", "data": [torch.zeros(1, 64)]},
            "calibrator is 'none', which finds ranges at run time, and data gives scales; leave one of them out",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mezzo.torch.compile(layers(), to="int8", **options)


def test_a_backend_by_name_finds_ranges_or_says_so() -> None:
    module, x = layers(), rows(99)
    run: Any = torch.compile(module, backend="mezzo", options={"to": "int8", "calibrator": "none"})
    assert error(run(x), module(x)) < ERROR
    assert in_int8(account(run).plans[0])
    torch._dynamo.reset()
    with pytest.raises(InputError, match="to has int8, whose scales come from data, and a backend is given none"):
        torch.compile(module, backend="mezzo", options={"to": "int8"})(x)


def test_a_conversion_without_data_tells_of_ranges_at_run_time() -> None:
    with pytest.raises(InputError, match='or let ranges be found at run time, with calibrator="none"'):
        mezzo.convert(export(layers(), (rows(0),)), to="int8", target="torch-cpu")
