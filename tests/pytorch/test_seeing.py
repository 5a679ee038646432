"""What mezzo.torch tells of a compiled model: reasons by module, errors beside FP64, and what it leaves alone."""

from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from driving import compiled as interpreted
from torch import nn

import mezzo.torch
from mezzo.errors import InputError
from mezzo.torch.backend import mezzo as backend


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        made = x + self.down(torch.relu(self.up(self.norm(x))))
        return {"made": made, "first": made.argmax(-1)}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def test_reasons_are_told_by_module_and_operator() -> None:
    compiled = interpreted(Block().eval())
    compiled(torch.randn(2, 8))
    told = repr(mezzo.torch.explain(compiled, "up")).splitlines()
    assert "up/addmm  addmm  bf16  linear: products and sums over a contracted axis gain most" in told
    (norm,) = repr(mezzo.torch.explain(compiled, "norm")).splitlines()
    assert norm.startswith("norm/native_layer_norm  native_layer_norm  f32  free-in-kernel: at no cost on torch-cpu")
    assert {chain[0].op for chain in mezzo.torch.explain(compiled, "op:addmm").chains} == {"addmm"}


def test_a_name_that_is_none_is_asked_back() -> None:
    compiled = interpreted(Block().eval())
    compiled(torch.randn(2, 8))
    with pytest.raises(InputError, match="no node, value, operator or module 'ups' computes floats"):
        mezzo.torch.explain(compiled, "ups")


def test_what_was_never_called_has_nothing_to_tell() -> None:
    with pytest.raises(InputError) as caught:
        mezzo.torch.explain(interpreted(Block().eval()), "up")
    assert str(caught.value) == "no graph of the model was planned: call it once first"


def test_errors_stand_beside_those_of_fp32() -> None:
    model = Block().eval()
    compared = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 8), (torch.randn(4, 8),)])
    (only,) = compared.outputs
    # Two products in BF16 on a residual: 4 roundings of 2^-9 at most, root mean square below.
    assert only.name == "made"
    assert 1e-4 < only.error < 4 * 2.0**-9
    assert only.eager < 1e-6
    assert compared.batches == 2
    assert "made  error" in repr(compared)


def test_a_model_is_as_far_from_itself_as_fp32_is() -> None:
    model = Block().eval()
    (only,) = mezzo.torch.compare(model, model, [torch.randn(4, 8)]).outputs
    assert only.error == only.eager


@pytest.mark.parametrize(
    ("data", "told"),
    [([], "data holds no batch; give one at least"), ([torch.zeros(0, 8)], None)],
    ids=["no batch", "an empty one"],
)
def test_data_that_shows_nothing(data: list[torch.Tensor], told: str | None) -> None:
    model = Block().eval()
    if told is None:
        assert mezzo.torch.compare(model, model, data).outputs[0].error == 0
        return
    with pytest.raises(InputError) as caught:
        mezzo.torch.compare(model, model, data)
    assert str(caught.value) == told


def test_another_model_is_not_compared() -> None:
    with pytest.raises(InputError, match="the compiled model answers output, and the model made"):
        mezzo.torch.compare(Block().eval(), nn.Linear(8, 8), [torch.randn(2, 8)])


def test_a_module_is_exported_low_and_its_regions_hold() -> None:
    class Kept(Block):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            with mezzo.torch.keep():
                x = self.up(x)
            return {"made": self.down(x)}

    exported = mezzo.torch.export(Kept().eval(), (torch.randn(2, 8),))
    assert exported.state_dict["up.weight"].dtype is torch.float32
    assert exported.state_dict["down.weight"].dtype is torch.bfloat16
    assert exported.module()(torch.randn(2, 8))["made"].dtype is torch.float32


def test_a_graph_that_may_have_a_backward_says_that_it_is_not_planned() -> None:
    compiled = interpreted(Block())
    with torch.enable_grad(), pytest.warns(UserWarning, match=r"not planned: it may have a backward.*torch\.no_grad"):
        compiled(torch.randn(2, 8))
    with pytest.raises(InputError, match="no graph of the model was planned: it may have a backward"):
        mezzo.torch.explain(compiled, "up")


def test_freezing_comes_too_late_for_a_backend() -> None:
    module = torch.fx.symbolic_trace(nn.ReLU())
    with pytest.raises(InputError) as caught:
        backend(module, [torch.zeros(2)], options={"freeze": True})
    assert str(caught.value) == (
        "option 'freeze' comes too late for a backend; use mezzo.torch.compile(model, freeze=True)"
    )
