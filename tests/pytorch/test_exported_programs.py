"""Exported programs are converted: laws over random modules, and the cases that each rule was made for."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from random_modules import WIDTH, RandomModule
from torch import nn
from torch.export import Dim, ExportedProgram, export
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import mezzo
from mezzo.aten.program import TORCH_DTYPES
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType

SEEDS = range(24)
W = 8
KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16}
EPS = {"bf16": 2.0**-8, "fp16": 2.0**-11}
# Each of twelve steps rounds what it reads and makes, norms pass relative errors on, and products of two such steps add
# them: 24 roundings, where answers are not small by cancellation; doubled for what masks and maxima choose by them.
K = 48


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def exported(module: nn.Module, *args: torch.Tensor, **kwargs: object) -> ExportedProgram:
    return export(module.eval(), args, **kwargs)


def flat(answer: object) -> list[torch.Tensor]:
    return [answer] if isinstance(answer, torch.Tensor) else list(answer)


def data(seed: int) -> torch.Tensor:
    return torch.randn(2, 8, WIDTH, generator=torch.Generator().manual_seed(seed))


def precisions(plan: mezzo.Plan) -> dict[str, str]:
    """What each operator runs in, by name; numbers and weights apart."""
    return {node.name: str(node.precision.output) for node in plan.nodes if node.kind == "op"}


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_err_by_the_format_and_keep_their_types(seed: int, to: str) -> None:
    module = RandomModule(seed).eval()
    result = mezzo.convert(exported(module, data(seed)), to=to).model
    with sdpa_kernel(SDPBackend.MATH):  # flash attention is wrong with an FP32 mask beside FP64, on AVX2
        exact = RandomModule(seed).eval().double()(data(seed).double())
    for answer, right in zip(result.module()(data(seed)), exact, strict=True):
        assert answer.dtype is torch.float32
        size = max(float(right.norm()), 1e-3 * right.numel() ** 0.5)
        assert float((answer.double() - right).norm()) <= K * EPS[to] * size


@pytest.mark.parametrize("target", ["torch-cpu", "any"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_call_makes_what_the_graph_says(seed: int, target: str) -> None:
    result = mezzo.convert(exported(RandomModule(seed), data(seed)), to="bf16", target=target).model
    wrong = []

    class Watching(torch.fx.Interpreter):
        def run_node(self, node: torch.fx.Node) -> object:
            made = super().run_node(node)
            told = node.meta.get("val")
            if isinstance(made, torch.Tensor) and isinstance(told, torch.Tensor) and made.dtype is not told.dtype:
                wrong.append(f"{node.name} is {made.dtype}, and {told.dtype} is told")
            return made

    held = {**result.state_dict, **result.constants}
    weights = [held[spec.target] for spec in result.graph_signature.input_specs if spec.target is not None]
    Watching(result.graph_module).run(*weights, data(seed))
    assert wrong == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_conversion_leaves_its_source_and_says_the_same_again(seed: int) -> None:
    source = exported(RandomModule(seed), data(seed))
    before, weights = str(source.graph), {name: held.clone() for name, held in source.state_dict.items()}
    first, again = (mezzo.convert(source, to="bf16") for _ in range(2))
    assert str(source.graph) == before
    assert all(torch.equal(held, source.state_dict[name]) for name, held in weights.items())
    assert first.plan.nodes == again.plan.nodes
    assert str(first.model.graph) == str(again.model.graph)


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_a_plan_that_takes_nothing_low_changes_no_bit(seed: int) -> None:
    module = RandomModule(seed).eval()
    result = mezzo.convert(exported(module, data(seed)), to="bf16", policy="off").model
    assert all(map(torch.equal, flat(result.module()(data(seed))), flat(module(data(seed)))))


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_a_result_is_the_same_once_saved_and_loaded(seed: int, tmp_path: object) -> None:
    path = f"{tmp_path}/result.pt2"
    source = exported(RandomModule(seed), data(seed))
    in_memory = mezzo.convert(source, to="bf16")
    held = in_memory.model.module()(data(seed))
    written = mezzo.convert(source, path, to="bf16")
    assert str(written.path) == path
    assert written.summary == in_memory.summary, "the file's traces are no weights"
    assert all(map(torch.equal, flat(torch.export.load(path).module()(data(seed))), flat(held)))


@pytest.mark.parametrize("seed", SEEDS[:8])
def test_a_plan_is_replayed_on_the_program_it_was_made_of(seed: int, tmp_path: object) -> None:
    source = exported(RandomModule(seed), data(seed))
    first = mezzo.convert(source, to="bf16")
    mezzo.save_plan(first.plan, f"{tmp_path}/plan.json")
    again = mezzo.convert(source, plan=f"{tmp_path}/plan.json")
    assert str(again.model.graph) == str(first.model.graph)


class PastTheRange(nn.Module):
    """A layer between two others that reads more than FP16 holds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.second(self.first(x) * 1e5)
        result: torch.Tensor = self.third(torch.tanh(wide * 1e-5))
        return result


def test_what_leaves_the_range_of_fp16_runs_in_bf16(tmp_path: Path) -> None:
    source = exported(PastTheRange(), data(0))
    made = mezzo.convert(source, to="fp16,bf16", policy="aggressive")
    by_name = precisions(made.plan)
    assert (by_name["first/linear"], by_name["second/linear"]) == ("f16", "bf16")
    (right,), (answer,) = (flat(model.module()(data(0))) for model in (source, made.model))
    assert float((answer - right).norm()) <= K * EPS["bf16"] * float(right.norm())
    mezzo.save_plan(made.plan, tmp_path / "plan.json")
    assert str(mezzo.convert(source, plan=tmp_path / "plan.json").model.graph) == str(made.model.graph)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.gelu(self.up(self.norm(x))))


def test_products_run_low_and_all_else_computes_in_fp32() -> None:
    converted = mezzo.convert(exported(Mlp(), data(0)), to="bf16")
    assert precisions(converted.plan) == {
        "norm/layer_norm": "f32", "up/linear": "bf16", "gelu": "f32", "down/linear": "bf16", "add": "f32",
    }  # fmt: skip


def test_what_is_made_of_weights_alone_computes_in_fp32() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_scale = nn.Parameter(torch.tensor([2.3]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ x.transpose(1, 2) * self.log_scale.exp()

    plan = mezzo.convert(exported(Scaled(), data(0)), to="bf16").plan
    assert precisions(plan) == {"matmul": "bf16", "transpose": "bf16", "exp": "f32", "mul": "f32"}


def test_names_last_when_sizes_are_symbols() -> None:
    fixed = mezzo.convert(exported(Mlp(), data(0)), to="bf16").plan
    free = mezzo.convert(exported(Mlp(), data(0), dynamic_shapes={"x": {0: Dim("b", max=64)}}), to="bf16")
    assert fixed.nodes == free.plan.nodes
    assert fixed.fingerprint == free.plan.fingerprint
    assert free.model.module()(torch.zeros(5, 8, WIDTH)).shape == (5, 8, WIDTH)


def test_weights_are_stored_low_once_and_go_on_being_shared() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(30, WIDTH)
            self.one, self.two = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
            self.head = nn.Linear(WIDTH, 30, bias=False)
            self.two.weight = self.one.weight
            self.head.weight = self.table.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.two(self.one(self.table(ids))))

    result = mezzo.convert(exported(Tied(), torch.arange(6)), to="bf16").model
    held = result.state_dict
    assert held["one.weight"].dtype is torch.bfloat16
    assert held["one.weight"] is held["two.weight"]
    low = [name for name, one in held.items() if one.dtype is torch.bfloat16 and one.shape == (30, WIDTH)]
    assert len({held[name].data_ptr() for name in low}) == 1
    assert held["table.weight"].dtype is torch.float32 or "table.weight" in low
    result.module()(torch.arange(6))


def test_a_buffer_that_is_written_keeps_its_type() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            self.register_buffer("seen", torch.zeros(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made = self.linear(x)
            self.seen.add_(made.mean((0, 1)))
            return made + self.seen

    module = Counting()
    result = mezzo.convert(exported(module, data(0)), to="bf16").model.module()
    first, second = result(data(0)), result(data(0))
    assert result.seen.dtype is torch.float32
    assert not torch.equal(first, second)


def test_an_operator_that_nobody_knows_stays_as_it_is() -> None:
    @torch.library.custom_op("mezzo_tests::only_fp32", mutates_args=())
    def only_fp32(x: torch.Tensor) -> torch.Tensor:
        assert x.dtype is torch.float32, "a kernel of one type"
        return x.sin()

    only_fp32.register_fake(torch.empty_like)

    class Custom(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(only_fp32(self.linear(x)))

    converted = mezzo.convert(exported(Custom(), data(0)), to="bf16")
    assert precisions(converted.plan) == {"linear/linear": "bf16", "only_fp32": "f32", "linear/linear#1": "bf16"}
    converted.model.module()(data(0))


def test_a_row_that_is_masked_as_a_whole_has_the_answer_it_had() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            heads = x.view(2, 8, 4, 4).transpose(1, 2)
            bias = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
            return functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)

    mask = torch.zeros(2, 1, 8, 8, dtype=torch.bool)
    right = Masked()(data(0), mask)
    result = mezzo.convert(exported(Masked(), data(0), mask), to="bf16").model.module()(data(0), mask)
    # All keys weigh the same: one rounding of what is averaged, and one of the average.
    assert float((result - right).abs().max()) <= 2 * EPS["bf16"] * float(right.abs().max())


def test_a_program_that_was_low_already_keeps_what_it_has() -> None:
    source = exported(Mlp().bfloat16(), data(0).bfloat16())
    result = mezzo.convert(source, to="bf16")
    assert torch.equal(result.model.module()(data(0).bfloat16()), source.module()(data(0).bfloat16()))
    assert result.summary.casts == 0


def test_types_of_pytorch_are_known() -> None:
    known = {kind for kind in TORCH_DTYPES if kind.is_floating_point}
    assert known >= {torch.float64, torch.float32, torch.float16, torch.bfloat16}
    assert {DType.FLOAT32, DType.BFLOAT16} <= set(TORCH_DTYPES.values())


def test_a_saved_program_is_not_unpickled(tmp_path: object) -> None:
    path = f"{tmp_path}/program.pt2"
    torch.export.save(exported(Mlp(), data(0)), path)
    with pytest.raises(InputError) as caught:
        mezzo.convert(path)
    assert str(caught.value) == (
        f"{path!r} is a saved program of PyTorch's, which unpickles what it reads; if you trust the file, load it "
        "in Python with torch.export.load, and convert what that gives"
    )


def test_a_result_has_the_ending_of_such_files(tmp_path: object) -> None:
    with pytest.raises(InputError, match=r"does not end in \.pt2, as PyTorch's programs do; name it so"):
        mezzo.convert(exported(Mlp(), data(0)), f"{tmp_path}/model.onnx")


def test_a_conversion_of_the_program_is_left_as_it_is() -> None:
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            self.low = nn.Linear(WIDTH, WIDTH).bfloat16()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(self.low(self.linear(x).bfloat16()).float())

    for to in KINDS:
        converted = mezzo.convert(exported(Casting(), data(0)), to=to)
        assert [node.because for node in converted.plan.nodes if node.rule == "contract"] == []
        assert precisions(converted.plan)["linear/linear"] == {"bf16": "bf16", "fp16": "f16"}[to]
        converted.model.module()(data(0))


class Counting(nn.Module):
    """Writes a buffer, and returns a sum, a count and nothing beside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.held = nn.Linear(WIDTH, WIDTH), nn.Buffer(torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> object:
        self.held.add_(x.mean((0, 1)))
        y = self.linear(x)
        return {"sum": y.sum(), "count": mask.sum(), "none": None}


def test_ports_are_inputs_and_outputs_in_their_types() -> None:
    from mezzo.aten.opening import open_model

    program = exported(Counting(), data(0), torch.ones(3, dtype=torch.bool))
    model = open_model(program, progress=None)
    ports = [(port.name, port.is_input, str(port.dtype)) for port in model.ports()]
    inputs = [("held", True, "f32"), ("x", True, "f32"), ("mask", True, "bool")]
    assert ports == [*inputs, ("held written", False, "f32"), ("0", False, "f32"), ("1", False, "i64")]
    made = mezzo.convert(program, to="bf16", io={"x": "bf16"}).model
    low = [(port.name, str(port.dtype)) for port in open_model(made, progress=None).ports()]
    assert low[1] == ("x", "bf16") and low[-2:] == [("0", "f32"), ("1", "i64")]


@pytest.mark.parametrize("options", [{}, {"target": "torch-cuda"}, {"target": "onnxruntime-cpu", "data": "random"}])
@pytest.mark.parametrize("to", ["fp8", "fp8,bf16", "int4"])
def test_formats_that_programs_cannot_have_are_told_with_what_to_do(to: str, options: dict[str, str]) -> None:
    said = f"to is '{to}', and a model in ATen is converted to fp16, bf16 or int8 alone; choose one of these, or for "
    with pytest.raises(InputError, match=f"^{said}others export the module to ONNX and convert that$"):
        mezzo.convert(exported(nn.Linear(8, 8), torch.zeros(2, 8)), to=to, **options)  # type: ignore[arg-type]


def test_a_conversion_hands_no_warning_of_pytorchs_own_copies_on() -> None:
    program = exported(nn.Linear(8, 8), torch.zeros(2, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        mezzo.convert(program, to="bf16")


def test_explain_takes_plans_alone_and_says_so() -> None:
    program = exported(nn.Linear(8, 8), torch.zeros(2, 8))
    result = mezzo.convert(program, to="bf16")
    assert mezzo.explain(mezzo.plan(program, to="bf16"), "linear")[0].name == "linear"
    for wrong in (program, result):
        said = f"{type(wrong).__name__} is no plan, and a plan is explained; results have one as .plan, and 'mezzo.plan"
        with pytest.raises(InputError, match=said):
            mezzo.explain(wrong, "linear")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("count", [2, 3, 5])
def test_calls_that_make_more_or_fewer_results_are_asked_about_apart(count: int) -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(W, W)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum((self.linear(one) for one in self.linear(x).unbind(0)), torch.zeros(W))  # type: ignore[return-value]

    plan = mezzo.convert(exported(Split(), torch.zeros(count, W)), to="bf16", policy="aggressive").plan
    assert [str(node.precision.output) for node in plan.nodes if node.op == "unbind"] == ["bf16"]


def test_lists_are_for_what_loads_programs_and_programs_are_no_plans(tmp_path: Path) -> None:
    program = export(nn.Sequential(nn.Linear(W, W), nn.Softmax(-1)).eval(), (torch.randn(2, W),))
    converted = mezzo.convert_lists(program, target_dtype="bfloat16")
    assert dict(converted.plan.settings)["target"] == "torch-cpu"
    with pytest.raises(InputError, match="ExportedProgram is no plan"):
        mezzo.save_plan(program, tmp_path / "plan.json")
