"""Low copies of masters: how they are laid out for those who read them."""

import re

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from torch import nn
from torch._inductor.utils import fresh_cache, run_fw_bw_and_get_code

import mezzo.torch
from mezzo.torch.onednn.kernels import is_laid_out_last
from mezzo.torch.weights.weights import SHADOWS


class _Pictures(nn.Module):
    """Weights of images that convolutions read, directly and not, and those of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(4, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.turned = nn.ConvTranspose2d(8, 8, 3, padding=1)
        self.one_by_one = nn.Conv2d(8, 8, 1)
        self.read_twice = nn.Conv2d(8, 6, 3, padding=1)
        self.sequence = nn.Conv1d(6, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one_by_one(self.turned(self.grouped(self.plain(x).relu()).relu()).relu())
        x = self.read_twice(x) + self.read_twice.weight.square().sum((1, 2, 3))[:, None, None]
        return self.sequence(x.flatten(2))


def test_low_copies_that_convolutions_of_images_read_have_channels_last() -> None:
    model = _Pictures()
    run = mezzo.torch.compile(model, weight_update="fp32", weight_grad_reduce="bf16")
    optimizer = mezzo.torch.compile_update(torch.optim.AdamW(model.parameters(), lr=0.01))
    x = torch.randn(2, 4, 8, 8)
    for number in range(4):  # from the third on the update has written them
        optimizer.zero_grad()
        if number == 0:
            with fresh_cache():  # of what is found in it nobody writes code
                _, codes = run_fw_bw_and_get_code(lambda: run(x))
        else:
            run(x).sum().backward()
        copies = zip(model.named_parameters(), SHADOWS.low_copies(list(model.parameters())), strict=True)
        lows = {name: (one, low) for (name, one), several in copies for _, low in several}
        assert {name: is_laid_out_last(low) for name, (_, low) in lows.items() if low.dim() > 1} == {
            "plain.weight": True,
            "grouped.weight": True,
            "turned.weight": True,
            "one_by_one.weight": False,  # it has them first as well
            "read_twice.weight": False,
            "sequence.weight": False,
        }, number
        for name, (one, low) in lows.items():
            assert torch.equal(low, one.detach().bfloat16()), (name, number)
        optimizer.step()
    assert not any(is_laid_out_last(one) for one in model.parameters())
    # What the forward lays out anew is the weight that others read too, and no other weight.
    made = re.findall(r"empty_strided_cpu\(\((\d+), (\d+), 3, 3\)", codes[0])
    assert set(made) == {("6", "8")}, codes[0]
