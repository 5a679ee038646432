"""Values past FP16's range are stored times powers of two, in exported programs and in compiled modules."""

import random
from collections.abc import Iterator

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
import torch._inductor.lowering  # before its table of decompositions
from operator_calls import calls_of
from scaled_programs import answers, is_near_the_end, is_same, module_program, traced, with_random_scales
from torch import nn
from torch.export import ExportedProgram, export

import mezzo
import mezzo.torch
from mezzo.aten.opening import open_model
from mezzo.formats.dtypes import DType

EPS = 2.0**-11
# Three products and a norm, each rounding what it reads and makes.
K = 16


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


class Large(nn.Module):
    """A hidden layer whose values, near 300,000, FP16 cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.norm, self.head = (
            nn.Linear(64, 256),
            nn.Linear(256, 64),
            nn.LayerNorm(64),
            nn.Linear(64, 64),
        )
        self.up.weight.mul_(3e5)
        self.up.bias.mul_(3e5)
        self.down.weight.div_(3e5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x + self.down(torch.relu(self.up(x)))))


def data(seed: int = 1) -> torch.Tensor:
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(seed))


def exported() -> ExportedProgram:
    return export(Large().eval(), (data(),))


def error(answer: torch.Tensor, module: nn.Module, x: torch.Tensor) -> float:
    right = module(x)
    return float((answer - right).abs().max() / right.abs().max())


def scaled(plan: mezzo.Plan) -> dict[str, int]:
    return {each.value: each.exponent for each in plan.scaled}


# -- laws ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_scales_change_no_answer_of_an_operator_by_a_bit(step: int) -> None:
    different, count = [], 0
    for call in calls_of(2, tries=4)[::step]:
        if "empty" in str(call.func):
            continue  # it holds whatever memory holds
        rng = random.Random(str(call))
        program, operands = traced(call, rng)
        expected = answers(program, operands)
        if is_near_the_end([*operands, *expected]):
            continue
        changed, exponents = with_random_scales(program, rng)
        count += any(exponents.values())
        if not is_same(expected, answers(changed, operands)):
            different.append(f"{call} {exponents}")
    assert different == []
    assert count > 40


@pytest.mark.parametrize("seed", range(12))
def test_scales_change_no_answer_of_a_module_by_a_bit(seed: int) -> None:
    program, operands = module_program(seed)
    changed, exponents = with_random_scales(program, random.Random(seed))
    assert is_same(answers(program, operands), answers(changed, operands)), exponents


# -- exported programs -----------------------------------------------------------------------------------------------


def test_a_program_runs_low_with_a_value_that_fp16_cannot_hold() -> None:
    converted = mezzo.convert(exported(), to="fp16", target="torch-cpu")
    assert scaled(converted.plan) == {"up/linear": 6, "relu": 6}
    assert "'up/linear' may hold" in converted.plan.scaled[0].because
    assert error(converted.model.module()(data()), Large(), data()) < K * EPS
    state = converted.model.state_dict
    # The weights hold the power: they are stored in FP16, as large as before times 2^-6.
    assert {name: str(state[name].dtype) for name in ("up.weight", "up.bias", "down.weight")} == {
        "up.weight": "torch.float16",
        "up.bias": "torch.float16",
        "down.weight": "torch.float16",
    }
    assert torch.equal(state["up.weight"], (Large().up.weight * 2.0**-6).half())
    assert torch.equal(state["down.weight"], (Large().down.weight * 2.0**6).half())
    calls = {str(node.target) for node in converted.model.graph.nodes if node.op == "call_function"}
    assert "aten.mul.Tensor" not in calls


def test_protection_keeps_it_in_fp32() -> None:
    converted = mezzo.convert(exported(), to="fp16", target="torch-cpu", out_of_range="protect")
    assert converted.plan.scaled == ()
    assert str(converted.plan.by_name["up/linear"].precision.output) == "f32"
    assert error(converted.model.module()(data()), Large(), data()) < K * EPS


def test_ranges_of_data_decide() -> None:
    batches = [{"x": data(seed).numpy()} for seed in range(4)]
    converted = mezzo.convert(exported(), to="fp16", target="torch-cpu", data=batches)
    assert scaled(converted.plan) == {"up/linear": 6, "relu": 6}
    assert "holds" in converted.plan.scaled[0].because
    assert error(converted.model.module()(data(9)), Large(), data(9)) < K * EPS


def test_a_plan_with_scales_is_carried_out_again() -> None:
    first = mezzo.convert(exported(), to="fp16", target="torch-cpu")
    again = mezzo.convert(exported(), plan=first.plan)
    assert scaled(again.plan) == scaled(first.plan)
    assert str(again.model.graph) == str(first.model.graph)


def test_layers_are_compared_at_their_own_scale() -> None:
    converted = mezzo.convert(exported(), to="fp16", target="torch-cpu")
    compared = mezzo.compare(exported(), converted.model, data=[{"x": data().numpy()}], layers=True)
    errors = {layer.name: float(layer.relative_l2.estimate) for layer in compared.layers}
    assert errors.keys() >= {"up/linear", "relu"}
    assert max(errors.values()) < K * EPS


# -- compiled modules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freeze", [False, True])
def test_a_compiled_module_runs_low_with_it(freeze: bool) -> None:
    module = Large().eval()
    compiled = mezzo.torch.compile(module, to="fp16", freeze=freeze)
    assert error(compiled(data()), module, data()) < K * EPS
    (plan,) = compiled.plans
    assert plan is not None
    assert scaled(plan) == {"up/addmm": 6, "relu": 6}


def test_low_copies_of_scaled_weights_follow_the_weights() -> None:
    module = Large().eval()
    compiled = mezzo.torch.compile(module, to="fp16")
    compiled(data())
    module.up.weight.mul_(1.5)
    module.up.bias.add_(1e5)
    module.down.weight.mul_(0.25)
    assert error(compiled(data()), module, data()) < K * EPS


def test_a_weight_read_at_two_scales_is_right_in_both() -> None:
    class Tied(Large):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + (x * 1e-5) @ self.up.weight[:64].T * 1e-3 + x @ self.down.weight.T[:64] * 1e5

    module = Tied().eval()
    compiled = mezzo.torch.compile(module, to="fp16")
    assert error(compiled(data()), module, data()) < K * EPS


def test_training_is_left_as_it_was() -> None:
    module = Large().eval()
    with torch.enable_grad():
        compiled = mezzo.torch.compile(module, to="fp16")
        compiled(data()).sum().backward()
    (plan,) = compiled.plans
    assert plan is not None
    assert plan.scaled == ()
    assert module.up.weight.grad is not None


# -- operands that are left out --------------------------------------------------------------------------------------


def test_an_operand_that_is_left_out_keeps_its_place() -> None:
    program = open_model(export(nn.BatchNorm1d(4, affine=False).eval(), (torch.randn(2, 4),)), progress=None)
    graph = program.read(DType.FLOAT16).graph
    (norm,) = [node for node in graph.nodes if "batch_norm" in node.op]
    names = [None if value is None else graph.values[value].name for value in norm.inputs]
    assert names == ["input", None, None, "running_mean", "running_var"]
