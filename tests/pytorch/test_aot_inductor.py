"""INT8 programs compiled ahead of time by AOTInductor: their kernels, answers, and inputs that stay as they are."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import nn
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch.export import Dim, ExportedProgram, export

import mezzo

WIDTH, ROWS = 64, 8
# The same integers are multiplied, and FP32 operations are done in another order, which turns the rounding of one
# activation in some thousands: a step of 1/255 of its range among the 64 or more of a sum, 1e-3 of a row of answers.
ERROR = 4e-3


def _has_compiler() -> bool:
    try:
        return bool(get_cpp_compiler())
    except InvalidCxxCompiler:
        return False


pytestmark = pytest.mark.skipif(not _has_compiler(), reason="needs a C++ compiler")


class Residual(nn.Module):
    """Convolutions with a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inner = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.outer = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.stem(x).relu()
        return (wide + self.outer(self.inner(wide).relu())).relu().mean((2, 3))


class Attention(nn.Module):
    """A block of a transformer, whose first residual sum reads the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.mixed(self.norm(x)).unflatten(-1, (3, 4, WIDTH // 4)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(*parts.unbind())
        x = x + self.out(heads.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.last(x))))


class Positions(nn.Module):
    """The result of a matmul and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.linear = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.positions = nn.Parameter(torch.randn(ROWS, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.hidden(x).relu()) + 2.0 * self.positions


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 16))


def draw(seed: int, *sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def convert(program: ExportedProgram, *sizes: int, **options: Any) -> ExportedProgram:
    name = program.graph_signature.user_inputs[0]
    if not options:
        options = {"data": [{name: draw(seed, *sizes).numpy()} for seed in range(8)]}
    model: ExportedProgram = mezzo.convert(program, to="int8", target="torch-cpu", **options).model  # type: ignore[assignment]
    return model


def compiled(program: ExportedProgram, folder: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    path = torch._inductor.aoti_compile_and_package(
        program, package_path=str(folder / "model.pt2"), inductor_configs={"freezing": True}
    )
    run: Callable[[torch.Tensor], torch.Tensor] = torch._inductor.aoti_load_package(path)
    return run


def kernels(folder: Path) -> int:
    """The calls of INT8 kernels in the generated code."""
    with ZipFile(folder / "model.pt2") as package:
        sources = [package.read(name).decode() for name in package.namelist() if name.endswith(".wrapper.cpp")]
    return sum(len(re.findall(r"aoti_torch_cpu__?q(?:linear|conv)\w*\(", source)) for source in sources)


def assert_near(answer: torch.Tensor, right: torch.Tensor) -> None:
    assert float((answer - right).norm() / right.norm()) < ERROR


@pytest.mark.parametrize(
    ("make", "sizes", "products", "options"),
    [
        (perceptron, (ROWS, WIDTH), 3, {}),
        (perceptron, (ROWS, WIDTH), 3, {"calibrator": "none"}),
        (Residual, (2, 3, 12, 12), 3, {}),
        (Attention, (2, ROWS, WIDTH), 4, {}),
    ],
    ids=["perceptron", "dynamic", "residual", "attention"],
)
def test_every_product_runs_in_a_kernel_of_int8_at_any_batch(
    make: Callable[[], nn.Module], sizes: tuple[int, ...], products: int, options: dict[str, Any], tmp_path: Path
) -> None:
    free = ({0: Dim("batch", min=2, max=64)},)
    program = convert(export(make().eval(), (draw(9, *sizes),), dynamic_shapes=free), *sizes, **options)
    run = compiled(program, tmp_path)
    for batch in (sizes[0], 5):
        x = draw(99, batch, *sizes[1:])
        before, right = x.clone(), program.module()(x)
        assert_near(run(x), right)
        assert torch.equal(x, before)
    assert kernels(tmp_path) == products


def test_a_constant_behind_a_matmul_stays_from_call_to_call(tmp_path: Path) -> None:
    x = draw(9, ROWS, WIDTH)
    program = convert(export(Positions().eval(), (x,)), ROWS, WIDTH)
    run, right = compiled(program, tmp_path), program.module()(x)
    for _ in range(3):
        assert_near(run(x), right)
