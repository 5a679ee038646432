"""Exports the same networks by two exporters, with fixed and open shapes: the models of the INT8 matrix.

    python benchmarks/exporters.py --cache out/exporters       # with a Python that has torch, torchvision, transformers
    python benchmarks/int8_peers.py --cache out/exporters --batches 5 --only nncf 'ort-*'      # a Python that has nncf
    python benchmarks/int8_peers.py --cache out/exporters --batches 5 --only mezzo-int8-{openvino,onnxruntime} \\
        mezzo-int8+bf16-openvino
    python benchmarks/int8_speed.py --cache out/exporters --batch 1 --json out/matrix.json     # the table

Files are called NETWORK.EXPORTER.SHAPES.onnx, `ts` is TorchScript at opset 17, `dynamo` torch.onnx.export(dynamo=True)
at its own; weights are random. Beside each lie five drawn samples to calibrate on and eight to judge on, in links to
one file for each network.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_PARTS = {"calibration": 5, "held_out": 8}  # samples


def networks(torch: Any) -> Iterator[tuple[str, Any, tuple[Any, ...], list[str], dict[int, str]]]:
    """Name, module, one sample, names of its inputs and of their open axes."""
    import torchvision
    import transformers

    def tokens(length: int) -> tuple[Any, Any]:
        return torch.randint(0, 30000, (1, length)), torch.ones(1, length, dtype=torch.long)

    image, text, words = torch.randn(1, 3, 224, 224), {0: "batch", 1: "sequence"}, ["input_ids", "attention_mask"]
    yield "mobilenet", torchvision.models.mobilenet_v2(), (image,), ["image"], {0: "batch"}
    yield "resnet", torchvision.models.resnet50(), (image,), ["image"], {0: "batch"}
    bert = transformers.BertModel(transformers.BertConfig(num_hidden_layers=6, attn_implementation="eager"))
    yield "bert", bert, tokens(128), words, text
    padded = transformers.MobileNetV2Model(transformers.MobileNetV2Config())  # pads as TensorFlow does
    yield "mobilenetpad", padded, (image,), ["image"], {0: "batch"}
    vit = transformers.ViTModel(transformers.ViTConfig(num_hidden_layers=6, attn_implementation="eager"))
    yield "vit", vit, (image,), ["image"], {0: "batch"}
    config = transformers.GPT2Config(n_layer=4, attn_implementation="eager", use_cache=False)
    yield "gpt2", transformers.GPT2LMHeadModel(config), tokens(64), words, text  # TorchScript cannot make the mask


def export(cache: Path, chosen: list[str]) -> None:
    """Write each network as each exporter writes it; what one cannot write is told."""
    import torch

    cache.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, module, sample, inputs, axes in networks(torch):
        if chosen and name not in chosen:
            continue
        draw(torch, cache, name, dict(zip(inputs, sample, strict=True)))
        wrapped = _wrapped(torch, module, len(sample)).eval()
        for shapes in ("fixed", "open"):
            is_open = shapes == "open"
            old = {"dynamic_axes": dict.fromkeys((*inputs, "out"), axes)} if is_open else {}
            new = (
                {"dynamic_shapes": tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for _ in inputs)}
                if is_open
                else {}
            )
            pair = tuple(torch.cat([s, s]) for s in sample) if is_open else sample  # one sample would be specialised
            ways = (
                ("ts", sample, {"dynamo": False, "opset_version": 17} | old),
                ("dynamo", pair, {"dynamo": True, "external_data": False} | new),
            )
            for exporter, args, how in ways:
                path = cache / f"{name}.{exporter}.{shapes}.onnx"
                try:
                    torch.onnx.export(wrapped, args, path, input_names=inputs, output_names=["out"], **how)
                except Exception as error:  # noqa: BLE001  exporters raise what they like
                    print(f"{path.name}: {type(error).__name__}")
                    continue
                link_data(cache, path.stem)


def draw(torch: Any, cache: Path, name: str, sample: dict[str, Any]) -> None:
    """Write the network's samples."""
    for part, count in _PARTS.items():
        arrays = {key: _drawn(torch, key, (count, *tensor.shape[1:])).numpy() for key, tensor in sample.items()}
        np.savez(cache / f"{name}.{part}.npz", **arrays)


def _drawn(torch: Any, name: str, shape: tuple[int, ...]) -> Any:
    if name == "input_ids":
        return torch.randint(0, 30000, shape)
    return torch.ones(shape, dtype=torch.long) if name == "attention_mask" else torch.randn(shape)


def link_data(cache: Path, stem: str) -> None:
    """Let an export find the samples of its network."""
    for part in _PARTS:
        place = cache / f"{stem}.{part}.npz"
        place.unlink(missing_ok=True)
        os.link(cache / f"{stem.partition('.')[0]}.{part}.npz", place)


def _wrapped(torch: Any, module: Any, inputs: int) -> Any:
    class Wrapped(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = module

    def first(answer: Any) -> Any:
        return answer if isinstance(answer, torch.Tensor) else answer[-1 if "pooler_output" in answer else 0]

    class One(Wrapped):
        def forward(self, a: Any) -> Any:
            return first(self.module(a))

    class Two(Wrapped):
        def forward(self, a: Any, b: Any) -> Any:
            return first(self.module(input_ids=a, attention_mask=b))

    return (One if inputs == 1 else Two)()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/exporters"))
    parser.add_argument("--only", nargs="*", default=[], metavar="NETWORK")
    asked = parser.parse_args()
    export(asked.cache, asked.only)


if __name__ == "__main__":
    main()
