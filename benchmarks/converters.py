"""Converters behind one face: mezzo and the tools people use today. Each is imported only when it is used."""

import glob
import importlib.util
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import onnx


@dataclass(frozen=True, slots=True)
class Settings:
    """What a conversion is asked for. Peers know no policies and no strategies and ignore both."""

    to: str = "fp16"
    policy: str = "balanced"
    strategy: str | None = None
    fuse: str | None = None

    def __str__(self) -> str:
        return f"{self.to} {self.policy}" + (f" {self.strategy}" if self.strategy else "")


Convert = Callable[[onnx.ModelProto, Settings], onnx.ModelProto]


def _convert_with_mezzo(model: onnx.ModelProto, settings: Settings, **options: Any) -> onnx.ModelProto:
    import mezzo

    chosen = {"strategy": settings.strategy, "fuse": settings.fuse}
    options |= {name: word for name, word in chosen.items() if word is not None}
    result = mezzo.convert(model, to=settings.to, policy=settings.policy, **options).model
    assert isinstance(result, onnx.ModelProto), "a ModelProto converts to a ModelProto"
    return result


def _convert_with_onnxconverter_common(model: onnx.ModelProto, settings: Settings) -> onnx.ModelProto:
    _demand_fp16("onnxconverter-common", settings)
    from onnxconverter_common import float16

    return float16.convert_float_to_float16(_copy(model), keep_io_types=True)  # type: ignore[no-any-return]  # untyped


def _convert_with_onnxruntime(model: onnx.ModelProto, settings: Settings) -> onnx.ModelProto:
    _demand_fp16("onnxruntime's float16 tool", settings)
    from onnxruntime.transformers.float16 import convert_float_to_float16

    return convert_float_to_float16(_copy(model), keep_io_types=True)  # type: ignore[no-any-return]  # untyped


def _convert_with_autocast(model: onnx.ModelProto, settings: Settings) -> onnx.ModelProto:
    from modelopt.onnx.autocast import convert_to_mixed_precision

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        return convert_to_mixed_precision(  # type: ignore[no-any-return]  # untyped
            onnx_path=str(path), low_precision_type=settings.to, keep_io_types=True
        )


def _keep(model: onnx.ModelProto, settings: Settings) -> onnx.ModelProto:
    return _copy(model)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def _demand_fp16(name: str, settings: Settings) -> None:
    if settings.to != "fp16":
        raise ValueError(f"{name} converts to fp16 only, not to {settings.to!r}")


@dataclass(frozen=True, slots=True)
class Converter:
    """A converter: the module that must be importable, and the distribution whose version is reported."""

    name: str
    module: str
    distribution: str
    convert: Convert

    @property
    def is_installed(self) -> bool:
        try:
            return importlib.util.find_spec(self.module) is not None
        except ModuleNotFoundError:  # a parent package is missing
            return False

    @property
    def version(self) -> str:
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return "unknown"


# "identity" converts nothing: it shows what the judge itself thinks of the originals.
CONVERTERS = {
    row.name: row
    for row in (
        Converter("mezzo", "mezzo", "mezzo", _convert_with_mezzo),
        Converter(
            "onnxconverter-common", "onnxconverter_common", "onnxconverter-common", _convert_with_onnxconverter_common
        ),
        Converter("onnxruntime-float16", "onnxruntime.transformers", "onnxruntime", _convert_with_onnxruntime),
        Converter("modelopt-autocast", "modelopt.onnx.autocast", "nvidia-modelopt", _convert_with_autocast),
        Converter("identity", "onnx", "onnx", _keep),
    )
}


def convert_with_fixed_nodes(
    model: onnx.ModelProto, settings: Settings, high: list[str], low: list[str]
) -> onnx.ModelProto:
    """Convert with mezzo, the nodes of `high` kept in FP32 and those of `low` asked into the low type, by name."""
    # mezzo's patterns are globs, and exporters write brackets into names.
    patterns = {"exclude": [glob.escape(name) for name in high], "include": [glob.escape(name) for name in low]}
    return _convert_with_mezzo(model, settings, **{option: names for option, names in patterns.items() if names})
