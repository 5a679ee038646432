"""Trains the networks on which INT8 is judged and exports them in FP32: five on scikit-learn's digits, one on text.

    pip install torch onnxscript scikit-learn
    python benchmarks/int8_training.py --cache out/int8
    python benchmarks/int8_training.py --cache out/int8 --only vit --retrain

Nothing is downloaded: scikit-learn ships the digits, every Python the text (`language_model_training.py`). The digits
are enlarged to 32 pixels and trained on with small shifts, so that layers have the work and the ranges of networks of
photographs. Leaves for each NAME in the folder: NAME.onnx, its batch free; NAME.calibration.npz, in the order in which
batches are taken; NAME.held_out.npz, seen by neither training nor calibration, with the labels; NAME.json, how it was
trained. Seeds are fixed; the text model trains by the clock.

    cnn          four convolutions with Relu, then a linear layer
    residual     a residual network, BatchNormalization left in the file
    preact       one whose norms come before the convolutions, so that sums are normalized first, norms left too
    depthwise    inverted residuals with depthwise convolutions and Relu6, norms folded by the exporter
    vit          a vision transformer over patches of eight pixels
    language     a transformer over bytes, causal, with rotary positions
"""

import argparse
import json
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import language_model_training as language
import numpy as np

OPSET = 18
SEED = 11
SIZE = 32  # pixels of an enlarged digit
CALIBRATION, HELD_OUT = 320, 577  # of 1,797 digits; the rest trains
BATCH = 50
_FOLDED = 1_000_000  # numbers of the largest constant that is computed ahead
SHIFT = 3  # pixels, at most
EPOCHS: Mapping[str, int] = {"cnn": 12, "residual": 12, "preact": 12, "depthwise": 16, "vit": 60}
RATES: Mapping[str, float] = {"cnn": 1e-3, "residual": 2e-3, "preact": 2e-3, "depthwise": 3e-3, "vit": 1e-3}


@dataclass(frozen=True, slots=True)
class Digits:
    """Images [N, 1, 32, 32] in 0 to 1, standardized, and labels of the three parts."""

    training: tuple[np.ndarray, np.ndarray]
    calibration: tuple[np.ndarray, np.ndarray]
    held_out: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How a network was trained."""

    name: str
    torch: str
    parameters: int
    epochs: int
    training_samples: int
    held_out_samples: int
    top1: float
    time_s: float


def read_digits() -> Digits:
    """Read, enlarge by linear interpolation, standardize, shuffle by a seed and split."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    small = images.reshape(-1, 8, 8).astype(np.float32) / 16
    places = (np.arange(SIZE) + 0.5) * 8 / SIZE - 0.5
    weights = np.maximum(0, 1 - np.abs(np.clip(places, 0, 7)[:, None] - np.arange(8))).astype(np.float32)
    large = np.einsum("ri,nij,cj->nrc", weights, small, weights)[:, None]
    large = ((large - large.mean()) / large.std()).astype(np.float32)
    order = np.random.default_rng(SEED).permutation(len(large))
    held, calibration, training = np.split(order, [HELD_OUT, HELD_OUT + CALIBRATION])
    return Digits(*((large[part], labels[part].astype(np.int64)) for part in (training, calibration, held)))


def make_network(name: str) -> Any:
    """Make a network with fresh, seeded weights."""
    import torch

    torch.manual_seed(SEED)
    return _MAKERS[name]()


def _mean_of_places() -> Any:
    from torch import Tensor, nn

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=(2, 3))

    return Mean()


def _cnn() -> Any:
    from torch import nn

    def conv(inner: int, outer: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inner, outer, 3, stride, padding=1), nn.ReLU()]

    return nn.Sequential(
        *conv(1, 32, 1), *conv(32, 64, 2), *conv(64, 96, 2), *conv(96, 128, 2),
        nn.Flatten(), nn.Linear(128 * 16, 10),
    )  # fmt: skip


def _residual() -> Any:
    from torch import Tensor, nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
            self.norm1 = nn.BatchNorm2d(outer)
            self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
            self.norm2 = nn.BatchNorm2d(outer)
            self.short = nn.Identity()
            if inner != outer:
                self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
            return F.relu(self.short(x) + hidden)

    stem = [nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2)]
    shapes = ((24, 24, 1), (24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1))
    blocks = [Block(*shape) for shape in shapes]
    return nn.Sequential(*stem, *blocks, _mean_of_places(), nn.Linear(96, 10))


def _preact() -> Any:
    from torch import Tensor, nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.BatchNorm2d(inner), nn.BatchNorm2d(outer)
            self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
            self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
            self.short = nn.Conv2d(inner, outer, 1, stride, bias=False) if inner != outer else None

        def forward(self, x: Tensor) -> Tensor:
            ready = F.relu(self.norm1(x))
            hidden = self.conv2(F.relu(self.norm2(self.conv1(ready))))
            return hidden + (x if self.short is None else self.short(ready))

    shapes = ((24, 24, 1), (24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1))
    blocks = [Block(*shape) for shape in shapes]
    stem = [nn.Conv2d(1, 24, 3, padding=1, bias=False), nn.MaxPool2d(2)]
    return nn.Sequential(*stem, *blocks, nn.BatchNorm2d(96), nn.ReLU(), _mean_of_places(), nn.Linear(96, 10))


def _depthwise() -> Any:
    from torch import Tensor, nn

    def conv(inner: int, outer: int, size: int, stride: int, groups: int) -> list[nn.Module]:
        options = {"stride": stride, "padding": size // 2, "groups": groups, "bias": False}
        return [nn.Conv2d(inner, outer, size, **options), nn.BatchNorm2d(outer)]

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            wide = 4 * inner
            self.layers = nn.Sequential(
                *conv(inner, wide, 1, 1, 1), nn.ReLU6(), *conv(wide, wide, 3, stride, wide), nn.ReLU6(),
                *conv(wide, outer, 1, 1, 1),
            )  # fmt: skip
            self.is_residual = inner == outer and stride == 1

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layers(x) if self.is_residual else self.layers(x)

    stem = [*conv(1, 24, 3, 2, 1), nn.ReLU6()]
    shapes = ((24, 24, 1), (24, 40, 2), (40, 40, 1), (40, 40, 1), (40, 64, 2), (64, 64, 1))
    blocks = [Block(*shape) for shape in shapes]
    head = [*conv(64, 256, 1, 1, 1), nn.ReLU6(), _mean_of_places(), nn.Linear(256, 10)]
    return nn.Sequential(*stem, *blocks, *head)


def _vit() -> Any:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F

    width, heads, layers, patch = 128, 4, 5, 8

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
            self.out = nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.norm1(x)
            split = (hidden.shape[0], hidden.shape[1], heads, width // heads)
            q, k, v = (f(hidden).view(split).transpose(1, 2) for f in (self.query, self.key, self.value))
            scores = torch.softmax(q @ k.transpose(-1, -2) * (width // heads) ** -0.5, dim=-1)
            x = x + self.out((scores @ v).transpose(1, 2).reshape(hidden.shape))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class ViT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(1, width, patch, patch)
            self.positions = nn.Parameter(0.02 * torch.randn(1, (SIZE // patch) ** 2, width))
            self.layers = nn.Sequential(*(Layer() for _ in range(layers)))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 10)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
            return self.head(self.norm(self.layers(tokens)).mean(dim=1))

    return ViT()


_MAKERS: Mapping[str, Callable[[], Any]] = {
    "cnn": _cnn, "residual": _residual, "preact": _preact, "depthwise": _depthwise, "vit": _vit,
}  # fmt: skip
_KEEPS_NORMS = frozenset({"residual", "preact"})
NAMES = (*_MAKERS, "language")


def train(name: str, digits: Digits, say: Callable[[str], None]) -> tuple[Any, Record]:
    """Train with shifted digits and a rate that falls to zero."""
    import torch
    from torch.nn import functional as F

    begin = time.perf_counter()
    network = make_network(name)
    images, labels = (torch.from_numpy(part) for part in digits.training)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATES[name], weight_decay=0.02)
    steps = EPOCHS[name] * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATES[name], total_steps=steps)
    rng = np.random.default_rng(SEED)
    for _ in range(EPOCHS[name]):
        order = rng.permutation(len(images))
        network.train()
        for start in range(0, len(images) // BATCH * BATCH, BATCH):
            chosen = order[start : start + BATCH]
            down, right = (int(shift) for shift in rng.integers(-SHIFT, SHIFT + 1, 2))
            optimizer.zero_grad()
            loss = F.cross_entropy(network(torch.roll(images[chosen], (down, right), (2, 3))), labels[chosen])
            loss.backward()
            optimizer.step()
            schedule.step()
    network.eval()
    with torch.no_grad():
        answers = network(torch.from_numpy(digits.held_out[0])).argmax(dim=1).numpy()
    record = Record(
        name=name,
        torch=torch.__version__,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        epochs=EPOCHS[name],
        training_samples=len(images),
        held_out_samples=HELD_OUT,
        top1=float((answers == digits.held_out[1]).mean()),
        time_s=time.perf_counter() - begin,
    )
    say(f"{name}: {record.parameters:,} parameters, top-1 {record.top1:.2%}, {record.time_s:.0f} s")
    return network, record


def export(network: Any, path: Path, *, folds_norms: bool) -> None:
    """Write a network of images as ONNX, with its norms folded into convolutions or as they are."""
    import torch
    from onnxscript import optimizer

    example = torch.zeros(2, 1, SIZE, SIZE)
    program = torch.onnx.export(
        network, (example,), input_names=["image"], output_names=["logits"], opset_version=OPSET, dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},), optimize=folds_norms, verbose=False,
    )  # fmt: skip
    assert program is not None, "the exporter returns what it writes"
    if not folds_norms:
        optimizer.fold_constants(program.model, output_size_limit=_FOLDED)
        optimizer.remove_unused_nodes(program.model)
    program.save(str(path), external_data=False)


def make_digits(name: str, cache: Path, say: Callable[[str], None]) -> None:
    """Train and export a network of digits, its data beside it."""
    digits = read_digits()
    network, record = train(name, digits, say)
    export(network, cache / f"{name}.onnx", folds_norms=name not in _KEEPS_NORMS)
    np.savez(cache / f"{name}.calibration.npz", image=digits.calibration[0])
    np.savez(cache / f"{name}.held_out.npz", image=digits.held_out[0], labels=digits.held_out[1])
    (cache / f"{name}.json").write_text(json.dumps(asdict(record), indent=1), encoding="utf-8")


def make_language(cache: Path, minutes: float, shape: language.Shape, say: Callable[[str], None]) -> None:
    """Train and export the language model, and file what it leaves as the others' is filed."""
    folder = cache / "language"
    language.make(folder, minutes, say, shape)
    with np.load(folder / "tuning.npz") as tuning:
        np.savez(cache / "language.calibration.npz", tokens=tuning["tokens"])
    with np.load(folder / "held_out.npz") as held_out:
        np.savez(cache / "language.held_out.npz", tokens=held_out["tokens"], labels=held_out["targets"])
    (cache / "language.onnx").write_bytes((folder / "model.onnx").read_bytes())
    (cache / "language.json").write_bytes((folder / "training.json").read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8"), help="folder of models and data")
    parser.add_argument("--only", nargs="*", choices=NAMES, default=[])
    parser.add_argument("--retrain", action="store_true", help="train although the cache has a model")
    parser.add_argument("--minutes", type=float, default=7, help="how long the language model trains")
    parser.add_argument("--layers", type=int, default=language.Shape().layers, help="of the language model")
    parser.add_argument("--width", type=int, default=language.Shape().width, help="of the language model")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    random.seed(SEED)
    given.cache.mkdir(parents=True, exist_ok=True)

    def say(line: str) -> None:
        print(line, flush=True)

    for name in given.only or NAMES:
        if (given.cache / f"{name}.json").exists() and not given.retrain:
            continue
        if name == "language":
            shape = language.Shape(given.layers, given.width)
            make_language(given.cache, given.minutes, shape, say)
        else:
            make_digits(name, given.cache, say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
