"""What mezzo.torch tells of a compiled model: reasons by module, errors beside FP64, and what it leaves alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from driving import Net, Tied
from driving import compiled as interpreted
from torch import nn

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.torch.compiler.backend import mezzo as backend
from mezzo.torch.compiler.compiled import backend_of as interpreted_backend
from mezzo.torch.inspect.accounts import NOTHING
from mezzo.torch.inspect.layers import LayerWatch

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>"


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


def test_reasons_are_told_by_module_and_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    compiled = interpreted(Block().eval())
    compiled(torch.randn(2, 8))
    product = repr(mezzo.torch.explain(compiled, "up/addmm")).splitlines()
    assert product[0] == "up/addmm  addmm  bf16  linear: matmuls and convolutions gain most"
    assert product[1].startswith("  test_seeing.py:") and "self.up(" in product[1] and len(product) == 2
    told = [line.split() for line in repr(mezzo.torch.explain(compiled, "up")).splitlines()]
    assert told[:3] == [
        ["up:", "2", "nodes,", "2", "in", "bf16"],
        ["up"],
        ["permute", "bf16", "follows", "addmm", told[2][-1]],
    ]
    assert told[2][-1].startswith("test_seeing.py:") and told[3][:3] == ["addmm", "bf16", "linear"]
    assert told[-1] == ["linear:", "matmuls", "and", "convolutions", "gain", "most"]
    assert {chain[0].op for chain in mezzo.torch.explain(compiled, "op:addmm").chains} == {"addmm"}


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_reasons_are_no_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleDict({f"a_rather_long_name_of_a_block_{n}": Block() for n in range(2)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.encoder.values():
                x = block(x)["made"]
            return x

    monkeypatch.setenv("COLUMNS", str(columns))
    compiled = interpreted(Deep().eval())
    compiled(torch.randn(2, 8))
    told = repr(mezzo.torch.explain(compiled, "encoder")).splitlines()
    assert max(map(len, told)) <= columns
    # Each module has one heading, and each rule is told once.
    headings = [line for line in told if line.startswith("encoder.")]
    assert len(headings) == len(set(headings)) == 8
    assert sum("matmuls and convolutions gain most" in line for line in told) == 1


def test_notebooks_show_reasons_and_errors_with_names_escaped() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(HOSTILE, nn.Linear(8, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = getattr(self, HOSTILE)(x)
            return made

    model = Named().eval()
    compiled = interpreted(model)
    compiled(torch.randn(2, 8))
    account = mezzo.torch.account(compiled)
    assert account.graphs[0].plan is not None
    shown = [
        mezzo.torch.explain(compiled, "op:addmm"),
        mezzo.torch.compare(model, compiled, [torch.randn(2, 8)]),
        account,
        account.graphs[0].plan,
    ]
    for one in shown:
        page = one._repr_html_()  # type: ignore[attr-defined]  # what notebooks look for
        assert "<table" in page and "<script" not in page and "<img" not in page
    assert "&lt;img" in shown[0]._repr_html_()  # type: ignore[attr-defined]


def test_a_name_that_is_none_is_asked_back() -> None:
    compiled = interpreted(Block().eval())
    compiled(torch.randn(2, 8))
    with pytest.raises(InputError, match="no node, value, operator or module 'ups' computes floats"):
        mezzo.torch.explain(compiled, "ups")


def test_what_was_never_called_has_nothing_to_tell() -> None:
    with pytest.raises(InputError) as caught:
        mezzo.torch.explain(interpreted(Block().eval()), "up")
    assert str(caught.value) == f"no graph of the model was planned: {NOTHING}"


def test_errors_stand_beside_those_of_fp32() -> None:
    model = Block().eval()
    compared = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 8), (torch.randn(4, 8),)])
    (only,) = compared.outputs
    # Two products in BF16 on a residual: 4 roundings of 2^-9 at most, root mean square below.
    assert only.name == "made"
    assert 1e-4 < only.error < 4 * 2.0**-9
    assert only.eager < 1e-6
    # The reference itself errs by 1e-7 of the answer, so the two errors agree to four digits.
    assert only.beside_fp32 == pytest.approx(only.error, rel=1e-3)
    assert compared.batches == 2


def test_layers_are_told_by_module_in_the_order_in_which_they_run() -> None:
    model = Block().eval()
    found = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 8)])
    assert [layer.module for layer in found.layers] == ["norm", "up", "down"]
    norm, up, down = found.layers
    assert dict(norm.precisions) == {"f32": 1} and dict(up.precisions) == {"bf16": 1}
    # The norm runs in FP32 on what came in: nothing but the other order of its sums is left.
    assert norm.error < 16 * 2.0**-24 and not norm.is_beyond_fp32
    # One rounding of each operand and one of the result, 2^-9 each at most.
    assert 2.0**-12 < up.error < 3 * 2.0**-9
    assert found.begins is up and found.grows in (up, down)
    assert up.line is not None and up.line.file.endswith("test_seeing.py") and "self.up" in (up.line.code or "")


def test_layers_of_one_graph_are_those_of_the_outputs() -> None:
    """Emulated layer by layer, the last layer is what comes out: there is no other code that generates kernels here."""
    model = Net().eval()
    found = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 32)], layers="operators")
    (only,) = found.outputs
    last = found.layers[-1]
    assert last.node == "down/addmm" and found.is_by_operator
    # The graph's BF16 kernel sums in another order than the emulation's FP32 kernel: far less than a rounding to BF16.
    assert last.error == pytest.approx(only.error, rel=0.05)
    assert all("permute" not in layer.node for layer in found.layers), "weights alone are no layers"


def test_a_layer_that_overflows_is_where_the_error_grows() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.huge, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.last(torch.tanh(self.huge(self.first(x)) * 1e-6))
            return made

    model = Large().eval()
    with torch.no_grad():
        model.huge.weight.fill_(6e4)
    found = mezzo.torch.compare(
        model, interpreted(model, to="fp16", fix_region={"huge": "fp16"}), [8 * torch.ones(4, 8)]
    )
    assert found.grows is not None and found.grows.module == "huge" and found.grows.error == float("inf")
    assert found.to_dict()["grows"] == [layer.module for layer in found.layers].index("huge")


def test_layers_go_on_behind_a_graph_break_and_the_model_stays_as_it_is() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.seen: torch.Tensor
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            self.seen.add_(x.mean(0))
            torch._dynamo.graph_break()
            made: torch.Tensor = self.second(x + self.seen)
            return made

    model = Broken().eval()
    compiled = interpreted(model, fullgraph=False)
    batches = [torch.randn(4, 8), torch.randn(4, 8), torch.randn(6, 8)]
    found = mezzo.torch.compare(model, compiled, batches)
    assert [layer.module for layer in found.layers] == ["first", "second"]
    assert found.begins is found.layers[0]
    # Outputs ran on the model itself, both in FP32 and compiled; the layers' lanes have buffers of their own.
    assert model.seen.abs().sum() > 0
    before = model.seen.clone()
    LayerWatch(model, interpreted_backend(compiled), is_by_operator=False).add(lambda twin: twin(batches[0]))
    assert torch.equal(model.seen, before)


def test_each_lane_has_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer that the FP64 lane has written is not what the planned lane reads, in whatever parts layers are held."""
    model = Tied().eval()
    ids = torch.randint(0, 50, (4, 8))
    whole = mezzo.torch.compare(model, interpreted(model, fullgraph=False), [ids, ids], layers="operators")
    monkeypatch.setattr("mezzo.torch.inspect.layers._ROOM_BYTES", 1)
    parts = mezzo.torch.compare(model, interpreted(model, fullgraph=False), [ids, ids], layers="operators")
    assert whole.layers == parts.layers and len(whole.layers) > 20


def test_what_was_not_compiled_by_mezzo_has_outputs_alone() -> None:
    model = Block().eval()
    found = mezzo.torch.compare(model, model, [torch.randn(4, 8)])
    assert found.layers == () and found.begins is None and found.grows is None
    assert found.notes == ("layers were not looked at: what was compared was not made by mezzo.torch.compile",)
    none = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 8)], layers="none")
    assert none.layers == () and none.notes == ()


def test_layers_are_a_known_word() -> None:
    model = Block().eval()
    with pytest.raises(InputError) as caught:
        mezzo.torch.compare(model, model, [torch.randn(4, 8)], layers="module")
    assert str(caught.value) == "layers is 'module'; choose one of modules, operators, none"


def test_comparing_again_and_again_leaves_room_for_what_the_user_compiles() -> None:
    """PyTorch stops to compile a function anew after eight times, and says nothing unless it is asked."""
    model = Block().eval()
    compiled = interpreted(model, fullgraph=False, dynamic=False)
    for _ in range(8):
        mezzo.torch.compare(model, compiled, [torch.randn(4, 8)])
    compiled(torch.randn(7, 8))
    assert len(mezzo.torch.account(compiled).graphs) == 2


@pytest.mark.parametrize("columns", [80, 100, 120])
def test_errors_print_as_a_table_no_wider_than_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    model = Block().eval()
    found = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 8)])
    told = str(found).splitlines()
    assert max(map(len, told)) <= columns
    assert "3 modules, as they ran" in told
    assert any("layers: emulated as planned, generated code may round" in line for line in told)
    assert any(line.startswith("the error begins at up (test_seeing.py:") for line in told)
    assert ("line" in "".join(line for line in told if line.startswith("module"))) == (columns >= 110)
    assert len(repr(found).splitlines()) == 3


def test_errors_are_kept_as_json(tmp_path: Path) -> None:
    model = Block().eval()
    found = mezzo.torch.compare(model, interpreted(model), [torch.randn(4, 8)])
    found.save(tmp_path / "errors.json")
    told = json.loads((tmp_path / "errors.json").read_text())
    assert told == found.to_dict()
    assert told["format"] == "mezzo-layer-errors/1" and told["layers_run"] == "emulated"
    assert [layer["module"] for layer in told["layers"]] == ["norm", "up", "down"] and told["begins"] == 1
    with pytest.raises(InputError, match=r"cannot write errors .*: .* is not a folder"):
        found.save(tmp_path / "none" / "errors.json")


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


def test_backward_nodes_stand_with_their_module_and_line() -> None:
    compiled = interpreted(Block())
    with torch.enable_grad():
        compiled(torch.randn(2, 8))["made"].sum().backward()
    told = mezzo.torch.explain(compiled, "up/backward/mm").nodes
    assert [(one.node.name, one.module) for one in told] == [("up/backward/mm", "up")]
    assert told[0].line is not None
    assert "backward" in repr(mezzo.torch.explain(compiled, "up"))


def test_freezing_comes_too_late_for_a_backend() -> None:
    module = torch.fx.symbolic_trace(nn.ReLU())
    call = backend(module, [torch.zeros(2)], options={"freeze": True})
    with pytest.raises(InputError) as caught:
        call(torch.zeros(2))
    assert str(caught.value) == (
        "option 'freeze' comes too late for a backend; use mezzo.torch.compile(model, freeze=True)"
    )
