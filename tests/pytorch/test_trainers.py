"""Lightning's and Accelerate's loops train what mezzo compiles just as a loop of one's own does."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import mezzo.torch

_EPOCHS, _CLIP, _RATE = 4, 0.5, 1e-2
_MASTERS: Mapping[str, object] = {"weight_update": "fp32", "weight_grad_reduce": "bf16"}
_WAYS = pytest.mark.parametrize("options", [{}, _MASTERS], ids=["weights cast", "masters"])
_ACCUMULATED = pytest.mark.parametrize("accumulated", [1, 2])
Weights = Mapping[str, torch.Tensor]


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))


def _data() -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x, wanted = torch.randn(64, 16, generator=generator), torch.randint(0, 4, (64,), generator=generator)
    return DataLoader(TensorDataset(x, wanted), batch_size=16)


def _optimizer(network: nn.Module, options: Mapping[str, object]) -> torch.optim.Optimizer:
    made = torch.optim.AdamW(network.parameters(), lr=_RATE)
    return mezzo.torch.compile_update(made) if options else made


def _by_hand(network: nn.Module, options: Mapping[str, object], accumulated: int) -> Weights:
    """The weights that a loop of one's own ends with."""
    run, optimizer = compiled(network, **options), _optimizer(network, options)
    for _ in range(_EPOCHS):
        for number, (x, wanted) in enumerate(_data(), 1):
            (nn.functional.cross_entropy(run(x), wanted) / accumulated).backward()
            if number % accumulated == 0:
                nn.utils.clip_grad_norm_(network.parameters(), _CLIP)
                optimizer.step()
                optimizer.zero_grad()
    return _weights(network)


def _weights(network: nn.Module) -> Weights:
    return {name: one.detach().clone() for name, one in network.named_parameters()}


def _check(found: Weights, right: Weights, before: Weights) -> None:
    """The same steps were made, bit for bit, and they were steps."""
    assert {name for name, one in right.items() if torch.equal(one, before[name])} == set()
    assert {name for name, one in found.items() if not torch.equal(one, right[name])} == set()


def _both(train: Callable[[nn.Module], object], options: Mapping[str, object], accumulated: int) -> None:
    network = _network()
    before, twin = _weights(network), copy.deepcopy(network)
    right = _by_hand(twin, options, accumulated)
    torch._dynamo.reset()
    train(network)
    _check(_weights(network), right, before)


@_WAYS
@_ACCUMULATED
def test_accelerate_makes_the_steps_of_a_loop_of_ones_own(options: Mapping[str, object], accumulated: int) -> None:
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate, of the extra 'trainers'")

    def train(network: nn.Module) -> None:
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
        run = compiled(network, **options)
        model, optimizer, data = accelerator.prepare(run, _optimizer(network, options), _data())
        for _ in range(_EPOCHS):
            for x, wanted in data:
                with accelerator.accumulate(model):
                    accelerator.backward(nn.functional.cross_entropy(model(x), wanted))
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), _CLIP)
                    optimizer.step()
                    optimizer.zero_grad()
        assert [graph.has_backward for graph in mezzo.torch.account(run).graphs] == [True]
        assert accelerator.unwrap_model(model, keep_torch_compile=False) is network

    _both(train, options, accumulated)


@_WAYS
@_ACCUMULATED
@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning_makes_the_steps_of_a_loop_of_ones_own(
    options: Mapping[str, object], accumulated: int, tmp_path: Any
) -> None:
    lightning = pytest.importorskip("lightning", reason="needs lightning, of the extra 'trainers'")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]  # imported above
        def __init__(self, network: nn.Module) -> None:
            super().__init__()
            self.net, self.compiled = network, [compiled(network, **options)]

        def training_step(self, batch: Any) -> Any:
            return nn.functional.cross_entropy(self.compiled[0](batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return _optimizer(self.net, options)

    def train(network: nn.Module) -> None:
        module = Module(network)
        trainer = lightning.Trainer(
            max_epochs=_EPOCHS,
            accelerator="cpu",
            accumulate_grad_batches=accumulated,
            gradient_clip_val=_CLIP,
            default_root_dir=tmp_path,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, _data())
        assert [graph.has_backward for graph in mezzo.torch.account(module.compiled[0]).graphs] == [True]
        assert [name for name in module.state_dict() if "_orig_mod" in name] == []

    _both(train, options, accumulated)


def test_an_autocast_around_the_step_leaves_nothing_to_plan() -> None:
    """What the precisions of both packages set, and their pages advise against."""
    with torch.autocast("cpu", torch.bfloat16):
        run = compiled(_network())
        run(torch.randn(4, 16)).sum().backward()
    (graph,) = mezzo.torch.account(run).graphs
    assert graph.snapshot is not None
    assert graph.snapshot.low_nodes == 0
