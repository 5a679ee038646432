"""What whole trainings train: the networks of `int8_training.py` with their data, drawn by seeds alike for every way.

A vision transformer, of two of its five layers, and a residual network on scikit-learn's digits, and a language model
over bytes, three layers 192 wide, on the sources of Python's standard library.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import int8_training as digits
import language_model_training as language
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

NETWORKS = ("vit", "residual", "language")
RATES: Mapping[str, float] = {"vit": 2e-3, "residual": 2e-3, "language": 2e-3}
_VIT_LAYERS = 2  # learn digits as well as five do, and compile in half the time
_LANGUAGE = language.Shape(layers=3, width=192)
_CONTEXT, _ROWS, _HELD_OUT_ROWS = 128, 8, 32
_WEIGHT_DECAY, _NORM = 0.02, 1.0
Batch = tuple[Tensor, Tensor]


class Score(NamedTuple):
    """How a network does on data that was not trained on: its loss, and the share of digits that it tells."""

    loss: float
    accuracy: float | None


class Task:
    """A network with its data."""

    def __init__(self, name: str) -> None:
        self.name = name
        if name == "language":
            text = language.read_text()
            self._text = text.training
            windows = language.cut(text.held_out, _HELD_OUT_ROWS, seed=1)
            self._held_out = tuple(torch.from_numpy(windows[key][:, :_CONTEXT]) for key in ("tokens", "targets"))
        else:
            data = digits.read_digits()
            self._images, self._labels = (torch.from_numpy(part) for part in data.training)
            self._held_out = tuple(torch.from_numpy(part) for part in data.held_out)

    def network(self, seed: int) -> Any:
        """A network with fresh weights."""
        network = language.make_model(_LANGUAGE) if self.name == "language" else digits.make_network(self.name)
        if self.name == "vit":
            network.layers = network.layers[:_VIT_LAYERS]
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(1 + 0.01 * torch.randn_like(weight))
        return network

    def batches(self, seed: int, steps: int) -> Iterator[Batch]:
        """What is trained on, step by step."""
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            if self.name == "language":
                places = rng.integers(0, len(self._text) - _CONTEXT - 1, _ROWS)
                rows = np.stack([self._text[place : place + _CONTEXT + 1] for place in places]).astype(np.int64)
                yield torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())
            else:
                chosen = rng.integers(0, len(self._images), digits.BATCH)
                down, right = (int(one) for one in rng.integers(-digits.SHIFT, digits.SHIFT + 1, 2))
                yield torch.roll(self._images[chosen], (down, right), (2, 3)), self._labels[chosen]

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy in nats, of text in bits."""
        nats = functional.cross_entropy(answers.float().flatten(0, -2), targets.flatten())
        return nats / math.log(2) if self.name == "language" else nats

    def score(self, network: Any) -> Score:
        """What a network has learned, evaluated in FP32."""
        inputs, targets = self._held_out
        network.eval()
        with torch.no_grad():
            answers = network(inputs)
        accuracy = None if self.name == "language" else float((answers.argmax(1) == targets).double().mean())
        return Score(float(self.loss(answers, targets)), accuracy)


class Steps:
    """Steps of AdamW whose rate rises and falls to zero, with gradients clipped."""

    def __init__(self, task: Task, network: Any, count: int) -> None:
        rate = RATES[task.name]
        self.optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=_WEIGHT_DECAY)
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, rate, total_steps=count)
        self._network = network

    def make(self, loss: Tensor) -> float:
        """Make a step down a loss, and give the loss. Gradients of the step before have to be gone."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._network.parameters(), _NORM)
        self.optimizer.step()
        self._schedule.step()
        self.optimizer.zero_grad()
        return float(loss.detach())
