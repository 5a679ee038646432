"""Networks of usual widths with random weights for `torch_speed.py`, and a batch of inputs of each."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

WIDTH, HEADS = 768, 12
TOKENS, VOCABULARY = 128, 2000
_MELS, _FRAMES = 80, 500
_SEED = 3
_STAGES = {"resnet-50": (3, 4, 6, 3), "convnext": (3, 3, 9, 3), "swin": (2, 2, 6, 2)}

Feeds = dict[str, torch.Tensor]


class First(torch.nn.Module):
    """A network of which the first output is taken, in FP32: so every candidate gives the same type."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, feeds: Mapping[str, torch.Tensor]) -> torch.Tensor:
        made: torch.Tensor = self.inner(**feeds, return_dict=False)[0]
        return made.double() if made.dtype is torch.float64 else made.float()


def _stages(name: str, layers: int) -> list[int]:
    """Blocks of each stage, none more than `layers`."""
    return [min(blocks, layers) for blocks in _STAGES[name]]


def _bert(layers: int) -> torch.nn.Module:
    config = transformers.BertConfig(vocab_size=VOCABULARY, num_hidden_layers=layers)
    return transformers.BertModel(config, add_pooling_layer=False)


def _gpt2(layers: int) -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, n_layer=layers, use_cache=False))


def _llama(layers: int) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=3 * WIDTH, num_hidden_layers=layers,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 3, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def _vit(layers: int) -> torch.nn.Module:
    return transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=layers), add_pooling_layer=False)


def _resnet(layers: int) -> torch.nn.Module:
    return transformers.ResNetForImageClassification(
        transformers.ResNetConfig(depths=_stages("resnet-50", layers), num_labels=1000)
    )


def _convnext(layers: int) -> torch.nn.Module:
    return transformers.ConvNextModel(transformers.ConvNextConfig(depths=_stages("convnext", layers)))


def _swin(layers: int) -> torch.nn.Module:
    return transformers.SwinModel(transformers.SwinConfig(depths=_stages("swin", layers)))


def _whisper(layers: int) -> torch.nn.Module:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        d_model=WIDTH, encoder_layers=layers, encoder_attention_heads=HEADS, encoder_ffn_dim=4 * WIDTH,
        num_mel_bins=_MELS, max_source_positions=_FRAMES // 2,
    )  # fmt: skip
    return WhisperEncoder(config)


def _t5(layers: int) -> torch.nn.Module:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_ff=4 * WIDTH, num_layers=layers, num_heads=HEADS, use_cache=False
    )
    return transformers.T5Model(config)


class _Residual(torch.nn.Module):
    """Two convolutions with group norms, added to what they read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            *_normed(torch.nn.Conv2d(width, width, 3, padding=1)), *_normed(torch.nn.Conv2d(width, width, 3, padding=1))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = x + self.layers(x)
        return made


def _normed(layer: torch.nn.Module) -> tuple[torch.nn.Module, ...]:
    """A convolution with a group norm and a ReLU behind it: batch norms over few numbers say little of gradients."""
    return layer, torch.nn.GroupNorm(8, layer.out_channels), torch.nn.ReLU()


class _Images(torch.nn.Module):
    """Layers on images, called as networks of transformers are."""

    def __init__(self, *layers: torch.nn.Module) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, pixel_values: torch.Tensor, return_dict: bool = False) -> tuple[torch.Tensor]:
        return (self.layers(pixel_values),)


def _small_residual(layers: int) -> torch.nn.Module:
    stages: list[torch.nn.Module] = [*_normed(torch.nn.Conv2d(3, 32, 3, padding=1))]
    for width in (32, 64):
        stages += [*(_Residual(width) for _ in range(layers)), *_normed(torch.nn.Conv2d(width, 2 * width, 3, 2, 1))]
    return _Images(*stages, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10))


def _small_decoder(layers: int) -> torch.nn.Module:
    """Down by convolutions, up again by transposed ones."""
    widths = [32 << level for level in range(layers)]
    down = [_normed(torch.nn.Conv2d(one, 2 * one, 4, 2, 1)) for one in widths]
    up = [_normed(torch.nn.ConvTranspose2d(2 * one, one, 4, 2, 1)) for one in reversed(widths)]
    inner = [each for level in (*down, *up) for each in level]
    return _Images(*_normed(torch.nn.Conv2d(3, 32, 3, padding=1)), *inner, torch.nn.ConvTranspose2d(32, 3, 4, 2, 1))


def _small_image(batch: int, generator: torch.Generator) -> Feeds:
    return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=generator)}


def _text(batch: int, generator: torch.Generator) -> Feeds:
    ids = torch.randint(3, VOCABULARY, (batch, TOKENS), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _texts(batch: int, generator: torch.Generator) -> Feeds:
    feeds = _text(batch, generator)
    return {**feeds, "decoder_input_ids": feeds["input_ids"][:, : TOKENS // 4].contiguous()}


def _image(batch: int, generator: torch.Generator) -> Feeds:
    return {"pixel_values": torch.randn(batch, 3, 224, 224, generator=generator)}


def _sound(batch: int, generator: torch.Generator) -> Feeds:
    return {"input_features": torch.randn(batch, _MELS, _FRAMES, generator=generator)}


NETWORKS: dict[str, tuple[Callable[[int], torch.nn.Module], Callable[[int, torch.Generator], Feeds]]] = {
    "bert": (_bert, _text),
    "gpt2": (_gpt2, _text),
    "llama": (_llama, _text),
    "vit": (_vit, _image),
    "resnet-50": (_resnet, _image),
    "convnext": (_convnext, _image),
    "swin": (_swin, _image),
    "whisper-encoder": (_whisper, _sound),
    "t5": (_t5, _texts),
}
# Small ones, for what few networks have.
SMALL: dict[str, tuple[Callable[[int], torch.nn.Module], Callable[[int, torch.Generator], Feeds]]] = {
    "small-residual": (_small_residual, _small_image),
    "small-decoder": (_small_decoder, _small_image),
}
CONVOLUTIONAL = frozenset({"resnet-50", "convnext"})


def build(name: str, layers: int, batch: int) -> tuple[torch.nn.Module, Feeds]:
    """A network and its inputs, the same in every process."""
    make, feed = {**NETWORKS, **SMALL}[name]
    torch.manual_seed(_SEED)
    network = First(make(layers)).eval().requires_grad_(False)
    return network, feed(batch, torch.Generator().manual_seed(_SEED))


def without_dropout(network: torch.nn.Module) -> None:
    """Let a network drop nothing in training mode, neither numbers nor layers."""
    for module in network.modules():
        for held in (module, getattr(module, "config", None)):
            for name, number in list(vars(held).items()) if held is not None else ():
                if isinstance(number, float) and (name == "p" or "drop" in name):
                    setattr(held, name, 0.0)


def converted(feeds: Feeds, **to: Any) -> Feeds:
    """Inputs as `Tensor.to` makes them: a type is for floats alone, a memory format for images."""
    made = {}
    for name, held in feeds.items():
        own = {key: value for key, value in to.items() if key == "device" or held.is_floating_point()}
        if held.dim() != 4:
            own.pop("memory_format", None)
        made[name] = held.to(**own)
    return made
