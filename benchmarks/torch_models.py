"""Small PyTorch models of many architectures with random weights, each with its example inputs: for torch_answers.py.

Those of transformers are the ones that architectures.py exports, and a few more. Images are small, and weights random:
what is looked at is what a compiler makes of the operators.
"""

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import architectures as exported
import torch
from architectures import DECODER, TEXT, VISION, VOCABULARY, WIDTH, Architecture
from torch import nn

MORE = (
    Architecture("gpt-neo", "GPTNeoModel", "masked-text", (0, 0), {"vocab_size": VOCABULARY, "hidden_size": WIDTH}
                 | {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": 4}),
    Architecture("falcon", "FalconModel", "masked-text", (0, 0), TEXT),
    Architecture("mixtral", "MixtralModel", "masked-text", (0, 0),
                 DECODER | {"num_local_experts": 4, "intermediate_size": 40}),  # eager products of groups need 16 bytes
    Architecture("phi3", "Phi3Model", "masked-text", (0, 0), DECODER),
    Architecture("deit", "DeiTModel", "image", (0, 0), VISION),
)  # fmt: skip
# From the two libraries of image models: name and edge of the image.
TORCHVISION = {
    "resnet18": 96, "mobilenet_v2": 96, "mobilenet_v3_small": 96, "efficientnet_b0": 96, "densenet121": 96,
    "squeezenet1_0": 96, "shufflenet_v2_x0_5": 96, "regnet_y_400mf": 96, "vgg11_bn": 64, "googlenet": 96,
    "mnasnet0_5": 96, "swin_t": 96, "vit_b_32": 224,
}  # fmt: skip
TIMM = {
    "resnet26d": 96, "mixer_s32_224": 224, "deit_tiny_patch16_224": 224, "convnext_atto": 96, "ghostnet_050": 96,
    "levit_128s": 224, "edgenext_xx_small": 96, "poolformer_s12": 96,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Model:
    """A module in eval mode and the tensors it takes, in order."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


class Recurrent(nn.Module):
    """Tokens, two recurrent layers, logits."""

    def __init__(self, family: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = family(WIDTH, 48, 2, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layers(self.embed(ids))[0])
        return result


class UNet(nn.Module):
    """Down, up by a transposed convolution, and a skip connection between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.lower, self.inner, self.last = (
            nn.Sequential(nn.Conv2d(read, made, 3, padding=1), nn.GroupNorm(4, made), nn.SiLU())
            for read, made in ((3, 16), (16, 32), (32, 32), (32, 16))
        )
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.head = nn.Conv2d(16, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.first(image)
        lower = self.inner(self.lower(nn.functional.max_pool2d(first, 2)))
        result: torch.Tensor = self.head(self.last(torch.cat([first, self.up(lower)], 1)))
        return result


def list_models() -> dict[str, Callable[[], Model]]:
    """What makes each model, by name."""
    rows = {row.name: partial(_transformer, row) for row in (*exported.ARCHITECTURES, *MORE)}
    images = {f"tv-{name}": partial(_torchvision, name, edge) for name, edge in TORCHVISION.items()}
    more = {f"timm-{name}": partial(_timm, name, edge) for name, edge in TIMM.items()}
    own: dict[str, Callable[[], Model]] = {
        "lstm": partial(_recurrent, nn.LSTM),
        "gru": partial(_recurrent, nn.GRU),
        "unet": lambda: Model(UNet().eval(), _image(32)),
        "encoder": lambda: Model(nn.TransformerEncoder(_encoder_layer(), 2).eval(), _rows(1)),
        "transformer": lambda: Model(nn.Transformer(WIDTH, 4, 2, 2, 2 * WIDTH, batch_first=True).eval(), _rows(2)),
    }
    return {**rows, **images, **more, **own}


def _encoder_layer() -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True)


def _rows(count: int) -> tuple[torch.Tensor, ...]:
    """So many inputs of [batch, positions, width]."""
    return tuple(torch.randn(2, 12, WIDTH) for _ in range(count))


def load_libraries() -> None:
    """Import what models come from, once, so that processes that are forked need not."""
    define_nms()
    import timm
    import torchvision
    import transformers

    assert timm and torchvision and transformers, "modules are true"


def other_sizes(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Inputs with one more sample, and shorter where they are tokens: for shapes that are dynamic."""
    return tuple(_longer(tensor) for tensor in inputs)


def draw(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Other inputs of the same sizes: noise, and tokens in another order; masks stay."""
    return tuple(_drawn(tensor) for tensor in inputs)


def reference(module: nn.Module) -> nn.Module:
    """The same module in FP64. Experts are multiplied one by one, as PyTorch has no grouped product of FP64."""
    exact = copy.deepcopy(module).double()
    for one in exact.modules():
        config = getattr(one, "config", None)
        if getattr(config, "_experts_implementation", None) is not None:
            config._experts_implementation = "eager"  # type: ignore[union-attr]  # just read
    return exact


def shake(module: nn.Module) -> None:
    """Make of a fresh model what training would: batch norms get statistics, and weights that are all zero values.

    Fresh norms change nothing, and behind a zero head all answers are alike.
    """
    for one in module.modules():
        if isinstance(one, nn.Linear | nn.Conv2d) and not one.weight.any():
            nn.init.normal_(one.weight, std=0.02)
    for _, norm in _norms(module):
        assert norm.running_mean is not None and norm.running_var is not None, "batch norms of models keep statistics"
        norm.running_mean.normal_(0, 0.1)
        norm.running_var.uniform_(0.5, 1.5)


def _norms(module: nn.Module) -> Iterator[tuple[str, nn.BatchNorm2d]]:
    return ((name, one) for name, one in module.named_modules() if isinstance(one, nn.BatchNorm2d))


def _longer(tensor: torch.Tensor) -> torch.Tensor:
    whole = torch.cat([tensor, tensor[:1]])
    return whole[:, :-1] if not tensor.is_floating_point() else whole


def _drawn(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return torch.randn_like(tensor)
    is_mask = bool(((tensor == 0) | (tensor == 1)).all())
    return tensor if is_mask else tensor.flatten()[torch.randperm(tensor.numel())].view_as(tensor)


def _image(edge: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(2, 3, edge, edge),)


def _transformer(row: Architecture) -> Model:
    side = next((row.settings[key] for key in ("image_size",) if key in row.settings), 32)
    feeds = exported.make_feeds(row.feed, side)
    return Model(exported.make_module(row, list(feeds), "sdpa", None), tuple(feeds.values()))


def _torchvision(name: str, edge: int) -> Model:
    import torchvision

    more: dict[str, Any] = {"init_weights": True} if name == "googlenet" else {}
    return Model(torchvision.models.get_model(name, weights=None, **more).eval(), _image(edge))


def _timm(name: str, edge: int) -> Model:
    import timm

    return Model(timm.create_model(name, pretrained=False).eval(), _image(edge))


def _recurrent(family: type[nn.RNNBase]) -> Model:
    return Model(Recurrent(family).eval(), (torch.randint(0, VOCABULARY, (2, 12)),))


def define_nms() -> None:
    """Let torchvision load beside a PyTorch it was not built for: its own operators are missing there, none is run."""
    try:
        import torchvision  # noqa: F401  # whether it can be
    except ModuleNotFoundError:
        return
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        KEPT.append(library)


KEPT: list[torch.library.Library] = []  # what a library defines goes when it does
