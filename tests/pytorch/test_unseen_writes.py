"""Writes into weights that change no version are seen by what they leave: `.data` in place, and NumPy."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import Tensor, nn

from mezzo.torch.weights.weight_layouts import LowCopy
from mezzo.torch.weights.weights import SHADOWS, Feed


def _weight(*shape: int) -> nn.Parameter:
    torch.manual_seed(0)
    return nn.Parameter(torch.randn(*shape))


def _merge(weight: Tensor) -> None:
    column, row = torch.randn(weight.shape[0], 2), torch.randn(2, weight.shape[1])
    weight.data.add_(column @ row, alpha=0.01)


_WRITES: dict[str, Callable[[Tensor], object]] = {
    "scaled": lambda weight: weight.data.mul_(0.999),
    "averaged": lambda weight: weight.data.lerp_(torch.randn(weight.shape), 0.001),
    "merged": _merge,
    "clipped": lambda weight: weight.data.clamp_(-2.5, 2.5),  # a hundredth of the numbers
    "zeroed": lambda weight: weight.detach().numpy().fill(0),
    "every second column": lambda weight: weight.data[:, ::2].zero_(),
    "half of the rows": lambda weight: weight.data[24:].zero_(),
    "not a number": lambda weight: weight.data.fill_(float("nan")),
}


@pytest.mark.parametrize("written", _WRITES.values(), ids=_WRITES.keys())
def test_write_that_changes_no_version_is_seen_at_the_next_call(written: Callable[[Tensor], object]) -> None:
    weights = [_weight(48, 64), _weight(33, 17), _weight(5, 7)]
    feed = Feed([(place, 3 + place, LowCopy(torch.bfloat16)) for place in range(3)], 3, torch.bfloat16)
    feed.behind(weights)
    versions = [weight._version for weight in weights]
    written(weights[0])
    assert [weight._version for weight in weights] == versions
    for weight, low in zip(weights, feed.behind(weights)[3:], strict=True):
        assert torch.equal(low.view(torch.int16), weight.detach().bfloat16().view(torch.int16))


def test_weights_that_nobody_writes_keep_their_copies() -> None:
    weights = [_weight(48, 64), nn.Parameter(torch.full((9, 9), float("nan"))), _weight(16, 16)]
    weights[2] = nn.Parameter(weights[2].detach().T)
    feed = Feed([(place, 3 + place, LowCopy(torch.bfloat16)) for place in range(3)], 3, torch.bfloat16)
    first = feed.behind(weights)[3:]
    assert all(one is other for one, other in zip(first, feed.behind(weights)[3:], strict=True))


def test_another_graph_that_comes_later_sees_a_write_before_it() -> None:
    """The sample is that of the copy, not that of the first call."""
    weight, recipe = _weight(40, 40), LowCopy(torch.bfloat16)
    Feed([(0, 1, recipe)], 1, torch.bfloat16).behind([weight])
    weight.data.mul_(2)
    later = Feed([(0, 1, recipe)], 1, torch.bfloat16)
    for _ in range(2):
        assert torch.equal(later.behind([weight])[1], weight.detach().bfloat16())


def test_copies_hold_no_memory_of_weights_that_are_gone() -> None:
    weight = _weight(64, 64)
    storage = torch.multiprocessing.reductions.StorageWeakRef(weight.untyped_storage())
    feed = Feed([(0, 1, LowCopy(torch.bfloat16))], 1, torch.bfloat16)
    feed.behind([weight])
    feed.behind([weight])
    held = len(SHADOWS)
    del weight
    assert storage.expired() and len(SHADOWS) == held - 1
