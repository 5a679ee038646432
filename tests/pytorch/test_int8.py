"""INT8 in exported programs and compiled modules: one plan with BF16, by the planner that ONNX models have."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from random_modules import WIDTH, RandomModule
from torch import nn
from torch.export import ExportedProgram, export

import mezzo
import mezzo.torch
from mezzo.common.errors import InputError

# A step is 1/255 of a range of some eight standard deviations: 1/32 of the size of a typical number, and an error of a
# third of that at most, in each of three products and their operands.
ERROR = 6 / 32 / 3


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 16)).eval()


def rows(seed: int, count: int = 8) -> torch.Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(seed))


def batches() -> list[dict[str, Any]]:
    return [{"input": rows(seed).numpy()} for seed in range(12)]


def exported() -> ExportedProgram:
    return export(layers(), (rows(0),))


def error(answer: torch.Tensor, right: torch.Tensor) -> float:
    return float((answer - right).norm() / right.norm())


def precisions(plan: mezzo.Plan) -> list[str]:
    return [f"{node.name}: {node.precision.compute}" for node in plan.nodes if node.kind == "op"]


# -- exported programs -----------------------------------------------------------------------------------------------


def test_products_run_in_int8_and_the_rest_in_floats() -> None:
    converted = mezzo.convert(exported(), to="int8,bf16", target="torch-cpu", data=batches())
    assert precisions(converted.plan) == [
        "0/linear: int8",
        "1/relu: int8",
        "2/linear: int8",
        "3/gelu: f32",
        "4/linear: int8",
    ]
    calls = Counter(str(node.target) for node in converted.model.graph.nodes if node.op == "call_function")
    assert calls == {
        "quantized_decomposed.quantize_per_tensor.default": 3,
        "quantized_decomposed.dequantize_per_tensor.default": 3,
        "quantized_decomposed.dequantize_per_channel.default": 3,
        "aten.linear.default": 3,
        "aten.relu.default": 1,
        "aten.gelu.default": 1,
    }
    assert {str(tensor.dtype) for name, tensor in converted.model.state_dict.items() if name.endswith("weight")} == {
        "torch.int8"
    }
    assert 0.0 < error(converted.model.module()(rows(99)), layers()(rows(99))) < ERROR


def test_what_must_stay_in_floats_runs_in_bf16() -> None:
    options = {"to": "int8,bf16", "target": "torch-cpu", "exclude": ["2/linear"]}
    plan = mezzo.convert(exported(), data=batches(), **options).plan
    assert precisions(plan)[2].startswith("2/linear: f32")
    attention = export(nn.MultiheadAttention(64, 4, batch_first=True).eval(), (rows(0)[None],) * 3)
    names = [node.name for node in attention.graph.find_nodes(op="placeholder")][-3:]
    data = [dict.fromkeys(names, rows(seed)[None].numpy()) for seed in range(12)]
    found = Counter(
        line.rpartition(" ")[2] for line in precisions(mezzo.convert(attention, to="int8,bf16", data=data).plan)
    )
    assert found["int8"] >= 2  # the projections
    assert found["bf16"] >= 1  # attention itself


def test_the_emulated_error_is_that_of_the_result() -> None:
    converted = mezzo.convert(exported(), to="int8", target="torch-cpu", data=batches())
    unseen = rows(99, 256)
    verdict = mezzo.compare(
        exported(), converted.model, [{"input": unseen[at : at + 8].numpy()} for at in range(0, 256, 8)]
    )
    found = torch.cat([converted.model.module()(unseen[at : at + 8]) for at in range(0, 256, 8)])
    assert verdict.verdict.error is not None
    # The same operators run in both, so they differ by rounding in FP32 alone.
    assert verdict.verdict.error.estimate == pytest.approx(error(found, layers()(unseen)), rel=0.02)


@pytest.mark.parametrize("seed", range(6))
def test_random_modules_answer_within_their_steps(seed: int) -> None:
    def given(number: int) -> torch.Tensor:
        return torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(number))

    program = export(RandomModule(seed).eval(), (given(0),))
    name = program.graph.find_nodes(op="placeholder")[-1].name
    data = [{name: given(number).numpy()} for number in range(8)]
    result = mezzo.convert(program, to="int8,bf16", target="torch-cpu", data=data)
    assert result.measured is not None
    assert result.measured.comparison is not None
    verdict = result.measured.comparison.verdict
    for answer, right in zip(result.model.module()(given(99)), RandomModule(seed).eval()(given(99)), strict=True):
        if answer.is_floating_point() and verdict.is_same:
            assert error(answer, right) < 0.25  # what is judged right on data is right on other data of its kind


def test_a_result_is_saved_loaded_and_goes_to_onnx(tmp_path: Path) -> None:
    converted = mezzo.convert(exported(), tmp_path / "int8.pt2", to="int8", target="torch-cpu", data=batches())
    again = torch.export.load(tmp_path / "int8.pt2").module()
    assert torch.equal(again(rows(5)), converted.model.module()(rows(5)))


class Scaled(nn.Module):
    """Layers whose result is scaled by a number, in a tuple or not, as models of transformers give it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = layers()

    def forward(
        self, x: torch.Tensor, scale: float = 1.0, *, mask: torch.Tensor | None = None, tuples: bool = True
    ) -> Any:
        result = self.layers(x) * scale if mask is None else self.layers(x) * mask
        return (result,) if tuples else result


def test_data_of_an_export_may_have_the_numbers_that_are_constants() -> None:
    module, fixed = Scaled(), {"mask": None, "tuples": False}
    right = module(rows(99), 2.0, **fixed)
    for args, batches in (
        ((rows(0), 2.0), [{"x": rows(seed), "scale": 2.0, **fixed} for seed in range(8)]),
        (
            (
                rows(0),
                2.0,
            ),
            [{"x": rows(seed)} for seed in range(8)],
        ),
    ):
        program = mezzo.torch.export(module, args, fixed, to="int8", data=batches)
        assert 0.0 < error(program.module()(rows(99), 2.0, **fixed), right) < ERROR
    positional = mezzo.torch.export(module, (rows(0), 2.0), to="int8", data=[(rows(seed), 2.0) for seed in range(8)])
    assert 0.0 < error(positional.module()(rows(99), 2.0)[0], right) < ERROR
    for other in (3.0, None, "2.0"):
        with pytest.raises(
            InputError, match=f"data has 'scale' {other!r}, and the program, which has it as a constant, 2.0"
        ):
            mezzo.torch.export(module, (rows(0), 2.0), to="int8", data=[(rows(0), other)])


def test_a_plan_is_replayed_without_data() -> None:
    first = mezzo.convert(exported(), to="int8,bf16", target="torch-cpu", data=batches())
    again = mezzo.convert(exported(), plan=first.plan)
    assert again.plan.edits == first.plan.edits
    assert torch.equal(again.model.module()(rows(5)), first.model.module()(rows(5)))


def test_budgets_and_sensitivities_know_int8() -> None:
    tuned = mezzo.tune(exported(), to="int8,bf16", target="torch-cpu", data=batches(), max_error=0.013)
    counts = Counter(line.rpartition(" ")[2] for line in precisions(tuned.plan))
    assert 0 < counts["int8"] < 4  # of five: it has room for some
    found, right = (torch.cat([run(rows(seed)) for seed in range(99, 131)]) for run in (tuned.model.module(), layers()))
    assert error(found, right) <= 0.013  # on unseen data
    sensitivity = mezzo.sensitivity(exported(), to="int8", target="torch-cpu", data=batches())
    assert len(sensitivity.units) == 3


# -- compiled modules ------------------------------------------------------------------------------------------------


def kernels(run: Any, *args: torch.Tensor) -> Counter[str]:
    with torch.profiler.profile() as profile:
        run(*args)
    return Counter(event.name for event in profile.events() if event.name.startswith("onednn::"))


def test_a_compiled_module_runs_onednn_kernels_of_int8() -> None:
    module = layers()
    compiled = mezzo.torch.compile(module, to="int8,bf16", freeze=True, data=[rows(seed) for seed in range(12)])
    assert 0.0 < error(compiled(rows(99)), module(rows(99))) < ERROR
    assert kernels(compiled, rows(99)) == {"onednn::qlinear_pointwise": 3}
    (plan,) = compiled.plans
    assert plan is not None
    assert [line for line in precisions(plan) if "permute" not in line] == [
        "0/addmm: int8",
        "1/relu: int8",
        "2/addmm: int8",
        "3/gelu: f32",
        "4/addmm: int8",
    ]
    emulated = mezzo.torch.compare(module, compiled, [rows(99)], layers="operators")
    assert emulated.outputs[0].error < ERROR
    assert max(layer.error for layer in emulated.layers) < ERROR


def test_scales_are_of_all_sizes_of_a_graph() -> None:
    module = layers()
    data = [rows(seed, count) for seed, count in enumerate((8, 3, 8, 5))]
    compiled = mezzo.torch.compile(module, to="int8", freeze=True, data=data)
    for count in (8, 17):
        assert 0.0 < error(compiled(rows(99, count)), module(rows(99, count))) < ERROR


@pytest.mark.parametrize("is_frozen", [True, False])
def test_graphs_that_the_data_never_came_to_stay_in_floats_and_say_so(is_frozen: bool) -> None:
    class TwoPaths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = layers(), layers()

        def forward(self, x: torch.Tensor, word: str = "first") -> torch.Tensor:
            return self.first(x) if word == "first" else self.second(x)

    module = TwoPaths().eval()
    compiled = mezzo.torch.compile(module, to="int8", freeze=is_frozen, data=[rows(seed) for seed in range(6)])
    compiled(rows(99))
    assert torch.allclose(compiled(rows(99), "second"), module(rows(99), "second"), atol=1e-5)
    first, second = compiled.plans
    notes = [[note for note in plan.notes if "nothing of it runs in INT8" in note] for plan in (first, second)]
    assert notes == [[], ["the plan from data has none of this graph, so nothing of it runs in INT8"]]
    assert [Counter(line.rpartition(" ")[2] for line in precisions(plan))["int8"] for plan in (first, second)] == [7, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "int8", "freeze": True}, "to has int8, whose scales come from data; give data="),
        (
            {"to": "bf16", "data": [torch.zeros(1, 64)]},
            "data gives scales of INT8, or holds max_error, and to has no int8",
        ),
        ({"to": "int8", "freeze": True, "data": []}, "data holds no batch; give one at least"),
        ({"to": "int8", "freeze": True, "data": torch.zeros(1, 64)}, "data is a Tensor, which is one batch"),
    ],
)
def test_what_is_missing_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mezzo.torch.compile(layers(), **options)
