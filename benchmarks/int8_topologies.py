"""Exports the networks on which the speed of INT8 is judged, with random weights, opset 18, FP32, their batch free.

    pip install torch torchvision timm transformers onnxscript
    python benchmarks/int8_topologies.py --cache out/int8-speed
    python benchmarks/int8_topologies.py --cache out/int8-speed --only resnet-50 bert

The convolutional networks of the reference's INT8 table, MobileNetV2, and BERT, GPT-2 and ViT of six layers as
`bf16_hint_models.py` makes them. Moving variances of a layer are the mean square of noise there, so that values keep
their size; moving means are nought: with means and variances of noise by channel a random network makes every error
larger layer by layer (after 53 convolutions everybody's INT8 erred by 0.15), which trained ones do not. Beside
NAME.onnx stand NAME.calibration.npz and NAME.held_out.npz: noise, or ids drawn at random. Their
errors say little of trained networks: `int8_training.py` makes those.
"""

import argparse
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bf16_hint_models as hint_models
import numpy as np

OPSET = 18
CALIBRATION, HELD_OUT = 10, 16  # samples
_CLASSES = 1000


@dataclass(frozen=True, slots=True)
class Topology:
    """How a network is made, and inputs of so many samples for it."""

    make: Callable[[], Any]
    feed: Callable[[Any, Any, int], dict[str, Any]]


def _images(size: int) -> Callable[[Any, Any, int], dict[str, Any]]:
    def feed(torch: Any, generator: Any, batch: int) -> dict[str, Any]:
        return {"image": torch.randn(batch, 3, size, size, generator=generator)}

    return feed


def _register_detection() -> Any:
    """Declare the two operators that torchvision's import asks for: its wheel holds them for CUDA builds of torch only.

    No network here uses them. Return the library, which has to be kept.
    """
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    if not hasattr(torch.ops.torchvision, "nms"):
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    return library


def _torchvision(name: str) -> Topology:
    def make() -> Any:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)

    return Topology(make, _images(224))


def _timm(name: str, size: int) -> Topology:
    def make() -> Any:
        import timm

        return timm.create_model(name, pretrained=False, exportable=True, num_classes=_CLASSES)

    return Topology(make, _images(size))


def _as_hinted(name: str) -> Topology:
    make, feed = hint_models.MODELS[name]

    def make_flat() -> Any:
        import torch
        import transformers

        inner = make(transformers)
        names = list(feed(torch, torch.Generator().manual_seed(7), 1))

        class Flat(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
                result: torch.Tensor = self.inner(
                    **dict(zip(names, tensors, strict=True)), return_dict=True
                ).to_tuple()[0]
                return result

        return Flat()

    return Topology(make_flat, feed)


def _inception_bn() -> Any:
    """Inception-BN. Source: Ioffe and Szegedy, "Batch Normalization", 2015, with the widths of MXNet's symbol."""
    import torch
    from torch import Tensor, nn

    def conv(inner: int, outer: int, size: int, stride: int = 1) -> nn.Sequential:
        layers = [nn.Conv2d(inner, outer, size, stride, size // 2, bias=False), nn.BatchNorm2d(outer), nn.ReLU()]
        return nn.Sequential(*layers)

    class Branches(nn.Module):
        def __init__(self, *branches: nn.Module) -> None:
            super().__init__()
            self.branches = nn.ModuleList(branches)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([branch(x) for branch in self.branches], dim=1)

    def keep(
        inner: int, one: int, three: Sequence[int], double: Sequence[int], pool: nn.Module, last: int
    ) -> nn.Module:
        return Branches(
            conv(inner, one, 1),
            nn.Sequential(conv(inner, three[0], 1), conv(three[0], three[1], 3)),
            nn.Sequential(conv(inner, double[0], 1), conv(double[0], double[1], 3), conv(double[1], double[1], 3)),
            nn.Sequential(pool, conv(inner, last, 1)),
        )

    def halve(inner: int, three: Sequence[int], double: Sequence[int]) -> nn.Module:
        return Branches(
            nn.Sequential(conv(inner, three[0], 1), conv(three[0], three[1], 3, 2)),
            nn.Sequential(conv(inner, double[0], 1), conv(double[0], double[1], 3), conv(double[1], double[1], 3, 2)),
            nn.MaxPool2d(3, 2, 1),
        )

    mean, most = nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1)
    return nn.Sequential(
        conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), conv(64, 64, 1), conv(64, 192, 3), nn.MaxPool2d(3, 2, 1),
        keep(192, 64, (64, 64), (64, 96), mean, 32), keep(256, 64, (64, 96), (64, 96), mean, 64),
        halve(320, (128, 160), (64, 96)),
        keep(576, 224, (64, 96), (96, 128), mean, 128), keep(576, 192, (96, 128), (96, 128), mean, 128),
        keep(576, 160, (128, 160), (128, 160), mean, 128), keep(608, 96, (128, 192), (160, 192), mean, 128),
        halve(608, (128, 192), (192, 256)),
        keep(1056, 352, (192, 320), (160, 224), mean, 128), keep(1024, 352, (192, 320), (192, 224), most, 128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, _CLASSES),
    )  # fmt: skip


TOPOLOGIES: Mapping[str, Topology] = {
    "resnet-50": _as_hinted("resnet-50"),
    "resnet-50-v2": _timm("resnetv2_50", 224),
    "vgg-16": _torchvision("vgg16"),
    "inception-bn": Topology(_inception_bn, _images(224)),
    "inception-v3": _timm("inception_v3", 299),
    "inception-v4": _timm("inception_v4", 299),
    "inception-resnet-v2": _timm("inception_resnet_v2", 299),
    "mobilenet-1.0": _timm("mobilenetv1_100", 224),
    "squeezenet": _torchvision("squeezenet1_0"),
    "mobilenet-v2": _as_hinted("mobilenet-v2"),
    "bert": _as_hinted("bert"),
    "gpt2": _as_hinted("gpt2"),
    "vit": _as_hinted("vit"),
}


def _settle(network: Any, feeds: Sequence[Any]) -> None:
    """Set the moving variances of a layer to the mean square of what some inputs bring there, layer after layer."""
    import torch

    def rescale(norm: Any, arguments: tuple[Any, ...]) -> None:
        values = arguments[0]
        norm.running_mean.zero_()
        norm.running_var.fill_(values.square().mean())

    norms = [module for module in network.modules() if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)]
    hooks = [norm.register_forward_pre_hook(rescale) for norm in norms]
    network(*feeds)
    for hook in hooks:
        hook.remove()


def export(name: str, cache: Path) -> None:
    """Write one network and its data."""
    import torch

    topology = TOPOLOGIES[name]
    torch.manual_seed(3)
    network = topology.make().eval()
    generator = torch.Generator().manual_seed(7)
    example, calibration, held_out = (topology.feed(torch, generator, n) for n in (4, CALIBRATION, HELD_OUT))
    axes = tuple({0: torch.export.Dim("batch")} for _ in example)
    with torch.no_grad():
        _settle(network, tuple(example.values()))
        torch.onnx.export(
            network, tuple(example.values()), str(cache / f"{name}.onnx"), input_names=list(example),
            output_names=["answer"], opset_version=OPSET, dynamo=True, external_data=False, optimize=True,
            dynamic_shapes=(axes,) if type(network).__name__ == "Flat" else axes, verbose=False,
        )  # fmt: skip
    for part, feeds in (("calibration", calibration), ("held_out", held_out)):
        np.savez(cache / f"{name}.{part}.npz", **{key: value.numpy() for key, value in feeds.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=Path("out/int8-speed"))
    parser.add_argument("--only", nargs="*", choices=TOPOLOGIES, default=[])
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    given.cache.mkdir(parents=True, exist_ok=True)
    detection = _register_detection()
    for name in given.only or TOPOLOGIES:
        if not (given.cache / f"{name}.held_out.npz").exists():
            export(name, given.cache)
            print(name, flush=True)
    del detection
    return 0


if __name__ == "__main__":
    sys.exit(main())
