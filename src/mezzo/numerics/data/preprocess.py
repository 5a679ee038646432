"""Preprocessing of images and arrays, as one line of text: "resize=256,crop=224,scale=1/255".

Steps are in a fixed order, whatever their order in the text: resize or letterbox, crop, color,
scale, mean, std, layout. mean and std are in units after scale, as torchvision's Normalize has
them; other tools state them before it (OpenVINO's mean_values, in 0..255), which is scale=1.
Presets: torchvision's ImageClassification, OpenAI's CLIP, TensorFlow's and Keras' Inception
("tf" mode), Ultralytics' LetterBox.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.name_matching import aside, did_you_mean

Array = npt.NDArray[Any]

PRESETS: Mapping[str, str] = MappingProxyType(
    {
        "imagenet": (
            "resize=256,crop=224,scale=1/255,mean=0.485,0.456,0.406,std=0.229,0.224,0.225"
        ),
        "clip": (
            "resize=224,crop=224,bicubic,scale=1/255,mean=0.48145466,0.4578275,0.40821073,"
            "std=0.26862954,0.26130258,0.27577711"
        ),
        "inception": "resize=299x299,scale=1/255,mean=0.5,std=0.5",
        "yolo": "letterbox=640,scale=1/255",
    }
)
_STEPS = (
    "resize=N or HxW, letterbox=N or HxW, crop=N or HxW, scale=1/255, mean=..., std=..., nchw,"
    " nhwc, rgb, bgr, gray, bicubic"
)
_COLORS = ("rgb", "bgr", "gray")
_LAYOUTS = ("nchw", "nhwc")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?(/\d+\.?\d*)?", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d{1,5})(?:x(\d{1,5}))?", re.ASCII)
_LONGEST = 1000
_LARGEST_SIDE = 16384
_MOST_CHANNELS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocess:
    """Steps from an image to a model's input.

    `resize`, `letterbox` and `crop` are (height, width); a resize to (256, None) makes the shorter
    side 256 and keeps proportions. An image is then `scale` * pixel, minus `mean`, over `std`, one
    number per channel or one for all. `layout`: None for that of the model's input.
    """

    resize: tuple[int, int | None] | None = None
    letterbox: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    color: str | None = None
    is_bicubic: bool = False
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: str | None = None

    @property
    def changes_values(self) -> bool:
        """Whether pixels become floats."""
        return self.scale != 1.0 or bool(self.mean) or bool(self.std)

    @property
    def channels(self) -> int:
        """The number of channels of its images."""
        return 1 if self.color == "gray" else 3

    @property
    def needs_images(self) -> bool:
        """Whether it has steps that arrays do not get."""
        return any((self.resize, self.letterbox, self.crop, self.color, self.is_bicubic))

    def convert(self, pixels: Array, channel_axis: int) -> Array:
        """Scale and shift numbers, as FP32."""
        shape = [1] * pixels.ndim
        values = pixels.astype(np.float32)
        if self.scale != 1.0:
            values *= np.float32(self.scale)
        for numbers, change in ((self.mean, np.subtract), (self.std, np.divide)):
            if numbers:
                shape[channel_axis] = len(numbers)
                change(values, np.array(numbers, np.float32).reshape(shape), out=values)
        return values

    def check_channels(self, where: str, channels: int) -> None:
        """Raises InputError: mean or std have another number of channels than the images."""
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (0, 1, channels):
                raise InputError(
                    f"{where}: {option('preprocess')} has {len(numbers)} numbers for {name}, and"
                    f" there are {channels} channels; give {channels} numbers, or one for all"
                )


def read_preprocess(text: str) -> Preprocess:
    """Read a line of steps. A preset's name means its steps; other steps replace them.

    Raises InputError: a step or a number is wrong, or a step is there twice.
    """
    if len(text) > _LONGEST:
        raise _fault(text[:40] + "...", f"it has more than {_LONGEST} characters")
    presets = [word for word in text.split(",") if word.strip().lower() in PRESETS]
    if len(presets) > 1:
        raise _fault(text, f"{presets[0]!r} and {presets[1]!r} are both presets; keep one")
    chosen = Preprocess()
    for preset in presets:
        chosen = _read(text, PRESETS[preset.strip().lower()], Preprocess())
    own = ",".join(word for word in text.split(",") if word not in presets)
    return _checked(text, chosen) if presets and not own else _read(text, own, chosen)


def _read(whole: str, text: str, before: Preprocess) -> Preprocess:
    """`before` with the steps of a text without presets."""
    values: dict[str, Any] = {}
    for name, numbers in _split(whole, text):
        for key, value in _read_step(whole, name, numbers).items():
            if key in values:
                raise _fault(whole, f"{name!r} is there twice, or next to one that excludes it")
            values[key] = value
    if values.get("letterbox"):
        values.setdefault("resize", None)
    elif values.get("resize"):
        values.setdefault("letterbox", None)
    return _checked(whole, replace(before, **values))


def _split(whole: str, text: str) -> Sequence[tuple[str, list[str]]]:
    """Steps with their values: a word that begins like a number continues the step before it."""
    steps: list[tuple[str, list[str]]] = []
    for part in text.split(","):
        word = part.strip().lower()
        name, equals, value = (piece.strip() for piece in word.partition("="))
        if not word:
            raise _fault(whole, "a step is empty")
        if word[0].isdigit() or word[0] in "+-.":
            if not steps or not steps[-1][1]:
                raise _fault(whole, f"{word!r} belongs to no step")
            steps[-1][1].append(word)
        else:
            steps.append((name, [value] if equals else []))
    return steps


def _read_step(whole: str, name: str, values: list[str]) -> dict[str, Any]:
    """The fields that a step sets."""
    is_single = len(values) == 1
    match name:
        case "resize" | "letterbox" | "crop" if is_single:
            height, width = _read_size(whole, values[0])
            if name == "resize":
                return {name: (height, width)}
            return {name: (height, height if width is None else width)}
        case "scale" if is_single:
            return {name: _read_number(whole, values[0])}
        case "mean" | "std" if values and len(values) <= _MOST_CHANNELS:
            return {name: tuple(_read_number(whole, value) for value in values)}
        case "layout" if is_single and values[0] in _LAYOUTS:
            return {name: values[0]}
        case "color" if is_single and values[0] in _COLORS:
            return {name: values[0]}
        case _ if not values and name in _LAYOUTS:
            return {"layout": name}
        case _ if not values and name in _COLORS:
            return {"color": name}
        case "bicubic" if not values:
            return {"is_bicubic": True}
    names = [*(each.name for each in fields(Preprocess)), *PRESETS, *_COLORS, *_LAYOUTS, "bicubic"]
    if name in names:
        raise _fault(whole, f"step {name!r} has {', '.join(values) or 'no value'}")
    raise InputError(
        f"{option('preprocess')} is {whole!r}: there is no step"
        f" {name!r}{aside(did_you_mean(name, names, 1))}; steps are {_STEPS}; presets are"
        f" {', '.join(PRESETS)}"
    )


def _read_size(whole: str, text: str) -> tuple[int, int | None]:
    size = _SIZE.fullmatch(text)
    if size is None:
        raise _fault(whole, f"{text!r} is no size")
    height, width = int(size[1]), None if size[2] is None else int(size[2])
    if not all(1 <= side <= _LARGEST_SIDE for side in (height, width or height)):
        raise _fault(whole, f"{text!r} is no size from 1 to {_LARGEST_SIDE}")
    return height, width


def _read_number(whole: str, text: str) -> float:
    if not _NUMBER.fullmatch(text) or len(text) > 40:
        raise _fault(whole, f"{text!r} is no number")
    over, slash, under = text.partition("/")
    divisor = float(under) if slash else 1.0
    number = float(over) / divisor if divisor else math.inf
    if not math.isfinite(np.float32(number)):
        raise _fault(whole, f"{text!r} is no finite number")
    return number


def _checked(whole: str, chosen: Preprocess) -> Preprocess:
    if chosen.resize and chosen.letterbox:
        raise _fault(whole, "'resize' and 'letterbox' exclude each other")
    if chosen.scale == 0.0 or not all(np.float32(number) for number in chosen.std):
        raise _fault(whole, "scale and std are never 0")
    return chosen


def _fault(whole: str, what: str) -> InputError:
    return InputError(
        f"{option('preprocess')} is {whole!r}: {what}; write it as"
        f" 'resize=256,crop=224,scale=1/255', or a preset: {', '.join(PRESETS)}"
    )
