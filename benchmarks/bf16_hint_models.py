"""Exports six networks of usual widths with random weights, whole, for `bf16_hint.py` and `cuda.py`.

    python benchmarks/bf16_hint_models.py --cache out/bf16-hint        # with a Python that has torch and transformers
    python benchmarks/bf16_hint_models.py --cache out/bf16-hint-script --script
    python benchmarks/bf16_hint_models.py --cache out/cuda --batch 16

ResNet-50 and MobileNetV2 as they are, of one image of 224 pixels; BERT, ViT, GPT-2 and Whisper's encoder of six layers
and 768 wide, of 128 tokens, one image, 128 tokens, and five seconds. Beside NAME.onnx stands NAME.npz with an input.
`--script` exports by TorchScript, which computes lengths from Shape in the model; `--dynamic` leaves batch and tokens
open there.
"""

import argparse
import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

OPSET = 18
LAYERS, WIDTH, HEADS = 6, 768, 12
TOKENS, VOCABULARY = 128, 2000
_SECONDS = 5
_MELS, _FRAMES_PER_SECOND = 80, 100


def _text(torch: Any, generator: Any, batch: int) -> dict[str, Any]:
    ids = torch.randint(3, VOCABULARY, (batch, TOKENS), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _image(torch: Any, generator: Any, batch: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, 224, 224, generator=generator)}


def _spectrogram(torch: Any, generator: Any, batch: int) -> dict[str, Any]:
    shape = (batch, _MELS, _SECONDS * _FRAMES_PER_SECOND)
    return {"input_features": torch.randn(*shape, generator=generator)}


def _bert(transformers: Any) -> Any:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS
    )
    return transformers.BertModel(config, add_pooling_layer=False)


def _vit(transformers: Any) -> Any:
    config = transformers.ViTConfig(hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS)
    return transformers.ViTModel(config, add_pooling_layer=False)


def _gpt2(transformers: Any) -> Any:
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, use_cache=False)
    return transformers.GPT2Model(config)


def _whisper(transformers: Any) -> Any:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = transformers.WhisperConfig(
        d_model=WIDTH, encoder_layers=LAYERS, encoder_attention_heads=HEADS, encoder_ffn_dim=4 * WIDTH,
        num_mel_bins=_MELS, max_source_positions=_SECONDS * _FRAMES_PER_SECOND // 2,
    )  # fmt: skip
    return WhisperEncoder(config)


MODELS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any, int], dict[str, Any]]]] = {
    "resnet-50": (lambda kit: kit.ResNetForImageClassification(kit.ResNetConfig()), _image),
    "bert": (_bert, _text),
    "mobilenet-v2": (lambda kit: kit.MobileNetV2ForImageClassification(kit.MobileNetV2Config(num_labels=1000)), _image),
    "vit": (_vit, _image),
    "gpt2": (_gpt2, _text),
    "whisper-encoder": (_whisper, _spectrogram),
}


def export(name: str, cache: Path, batch: int, *, by_script: bool, is_dynamic: bool) -> None:
    """Write one network and an input of `batch` samples."""
    import torch
    import transformers

    make, feed = MODELS[name]
    torch.manual_seed(3)
    inner = make(transformers).eval()
    feeds = feed(torch, torch.Generator().manual_seed(7), batch)

    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.inner(**dict(zip(feeds, tensors, strict=True)), return_dict=True).to_tuple()[0]
            return result

    path = cache / f"{name}.onnx"
    open_axes = {feed: {0: "batch", **({1: "tokens"} if value.ndim == 2 else {})} for feed, value in feeds.items()}
    with torch.no_grad():
        torch.onnx.export(
            Flat(), tuple(feeds.values()), str(path), input_names=list(feeds), opset_version=OPSET - by_script,
            dynamo=not by_script, external_data=False, optimize=True, verbose=False,
            dynamic_axes=open_axes if is_dynamic else None,
        )  # fmt: skip
    np.savez_compressed(path.with_suffix(".npz"), **{name: value.numpy() for name, value in feeds.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/bf16-hint"))
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS), default=[])
    parser.add_argument("--batch", type=int, default=1, help="samples of a call, fixed in the file")
    parser.add_argument("--script", action="store_true", help="by TorchScript")
    parser.add_argument("--dynamic", action="store_true", help="by TorchScript, with open batch and tokens")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    for name in arguments.only or MODELS:
        by_script = arguments.script or arguments.dynamic
        export(name, arguments.cache, arguments.batch, by_script=by_script, is_dynamic=arguments.dynamic)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
