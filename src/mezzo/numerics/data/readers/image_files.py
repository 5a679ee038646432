"""Images, decoded by Pillow one after the other, with its limits on their size.

Shapes are known from the images' headers, so that wrong sizes are reported before the first run.
"""

import io
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.packages import missing
from mezzo.common.safe_paths import read_file
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.array_fitting import is_float, spell_slot
from mezzo.numerics.data.expected_arrays import ExpectedArrays
from mezzo.numerics.data.preprocess import Preprocess
from mezzo.numerics.data.readers.parts import Arrays, Part, Reading, Run, digest_of

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# Pillow's decoders of pixels; others of its formats run programs or read further files.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_MOST_FILE_BYTES = 256 << 20
# Images at once, where no batch size is given.
_USUAL = 32
_USUAL_BYTES = 64 << 20
_GRAY_OF_LETTERBOX = 114  # Ultralytics' LetterBox
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
_IMAGE_RANK = 4


class _Size(NamedTuple):
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class _Decoder:
    """Reads images for an input. `is_last`: channels are the last axis; `is_float`: as FP32."""

    preprocess: Preprocess
    is_last: bool
    is_float: bool

    def shape(self, size: _Size) -> tuple[int, int, int]:
        """The shape of an image for the model, from its size."""
        channels = self.preprocess.channels
        height, width = size
        return (height, width, channels) if self.is_last else (channels, height, width)

    def read(self, path: Path) -> npt.NDArray[Any]:
        """One image, preprocessed. Raises InputError: it cannot be decoded."""
        color = self.preprocess.color
        with _opened(path) as image:
            placed = _resize(image.convert("L" if color == "gray" else "RGB"), self.preprocess)
        pixels: npt.NDArray[Any] = np.asarray(placed)
        pixels = pixels.reshape(*pixels.shape[:2], self.preprocess.channels)
        if color == "bgr":
            pixels = pixels[:, :, ::-1]
        if self.is_float:
            pixels = self.preprocess.convert(pixels, channel_axis=2)
        return np.ascontiguousarray(pixels if self.is_last else pixels.transpose(2, 0, 1))


def open_images(files: Sequence[Path], reading: Reading) -> Part:
    """Images for one input, in the order of the files.

    Raises InputError: Pillow is missing, an image is damaged or too large, or does not fit the
    input.
    """
    where = str(files[0]) if len(files) == 1 else str(files[0].parent)
    name, slot = _find_input(where, reading)
    decoder = _make_decoder(where, name, slot, reading.preprocess)
    digests, shapes = [], []
    for path in files:
        size, digest = _look_at(path, decoder.preprocess)
        digests.append(digest)
        shapes.append(decoder.shape(size))
        _check_shape(path, name, shapes[-1], slot)
    sizes = Counter(shapes)
    shape = shapes[0]
    sample_bytes = int(np.prod(shape)) * (4 if decoder.is_float else 1)
    usual = max(1, min(_USUAL, _USUAL_BYTES // sample_bytes))

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        dtype = np.float32 if decoder.is_float else np.uint8
        for start, end in runs:
            batch = np.empty((end - start, *shapes[start]), dtype)
            for position, path in enumerate(files[start:end]):
                batch[position] = decoder.read(path)
            yield {name: batch}

    return Part(
        where=where, origin=files[0].name if len(files) == 1 else files[0].parent.name,
        names=(name,), lengths={name: len(files)}, read=read,
        digest=digest_of(*digests), usual=usual, is_even=len(sizes) == 1,
    )  # fmt: skip


def _find_input(where: str, reading: Reading) -> tuple[str, Slot | None]:
    """The input that images are for: the one that the user names, the only one, or the only one of
    rank 4.
    """
    expected = reading.expected
    name = reading.name
    if name is None:
        inputs = expected.required
        ranks = {each: len(_lengths(expected, each)) for each in inputs}
        of_images = [each for each in inputs if ranks[each] == _IMAGE_RANK]
        candidates = inputs if len(inputs) == 1 else of_images
        if len(candidates) != 1:
            raise InputError(
                f"{where}: holds images, and the model wants {expected.describe()}; say which input"
                f" they are for: NAME={where}"
            )
        name = candidates[0]
    slot = expected.types.get(name)
    lengths = _lengths(expected, name)
    if slot is not None and slot.lengths is not None and len(lengths) != _IMAGE_RANK:
        raise InputError(
            f"{where}: holds images, and input {name!r} is {spell_slot(slot)}, which has no batch,"
            " channels, height and width; give arrays"
        )
    return name, slot


def _lengths(expected: ExpectedArrays, name: str) -> Sequence[object]:
    slot = expected.types.get(name)
    return () if slot is None or slot.lengths is None else slot.lengths


def _make_decoder(
    where: str, name: str, slot: Slot | None, preprocess: Preprocess | None
) -> _Decoder:
    as_floats = is_float(slot)
    if preprocess is None and as_floats:
        described = "floats" if slot is None else spell_slot(slot)
        raise InputError(
            f"{where}: images hold numbers from 0 to 255, and input {name!r} is {described}; say"
            f" how they become what the model was trained on: {setting('preprocess', 'imagenet')},"
            f" or {setting('preprocess', _size_words(slot) + 'scale=1/255')}"
        )
    chosen = preprocess or Preprocess()
    if chosen.changes_values and not as_floats:
        raise InputError(
            f"{where}: {option('preprocess')} makes floats, and input {name!r} is"
            f" {spell_slot(slot) if slot else 'unknown'}; leave out scale, mean and std"
        )
    chosen.check_channels(where, chosen.channels)
    return _Decoder(chosen, _has_channels_last(chosen, slot), as_floats)


def _has_channels_last(preprocess: Preprocess, slot: Slot | None) -> bool:
    """The layout that the text says, else the one that the input's shape shows, else NCHW."""
    if preprocess.layout is not None:
        return preprocess.layout == "nhwc"
    if slot is None or slot.lengths is None:
        return False
    channels = preprocess.channels
    return slot.lengths[1] != channels and slot.lengths[-1] == channels


def _size_words(slot: Slot | None) -> str:
    """The step that resizes to a model's fixed height and width: "resize=224x224,"."""
    numbers = [] if slot is None else [each for each in slot.lengths or () if isinstance(each, int)]
    sides = [number for number in numbers[-3:] if number > 4]
    return f"resize={sides[0]}x{sides[1]}," if len(sides) == 2 else ""


def _look_at(path: Path, preprocess: Preprocess) -> tuple[_Size, str]:
    """The size of an image after preprocessing, from its header, and a digest of the file."""
    content = _read(path)
    with _opened(path, content) as image:
        size = _Size(image.height, image.width)
    return _sizes(str(path), size, preprocess)[-1], digest_of(content)


def _sizes(where: str, size: _Size, preprocess: Preprocess) -> Sequence[_Size]:
    """The sizes of an image before, between and after the steps.

    Raises InputError: one is too large, or smaller than the crop.
    """
    sizes = [size]
    if preprocess.letterbox is not None:
        sizes.append(_Size(*preprocess.letterbox))
    elif preprocess.resize is not None:
        height, width = preprocess.resize
        if width is None:
            short, long = min(size), max(size)
            longer = int(height * long / short)
            sizes.append(
                _Size(height, longer) if size.height <= size.width else _Size(longer, height)
            )
        else:
            sizes.append(_Size(height, width))
    if preprocess.crop is not None:
        crop = _Size(*preprocess.crop)
        before = sizes[-1]
        if crop.height > before.height or crop.width > before.width:
            raise InputError(
                f"{where}: has {before.height}x{before.width} pixels to cut"
                f" {crop.height}x{crop.width} from; give {setting('preprocess', 'resize=...')} too"
            )
        sizes.append(crop)
    most = _pillow_image().MAX_IMAGE_PIXELS
    for height, width in sizes:
        if most is not None and height * width > most:
            raise InputError(
                f"{where}: {height}x{width} pixels are more than Pillow's limit of {most}; give a"
                " smaller image"
            )
    return sizes


def _resize(image: "Image", preprocess: Preprocess) -> "Image":
    """Resize or letterbox, then crop the center, as torchvision and Ultralytics do."""
    module = _pillow_image()
    method = module.Resampling.BICUBIC if preprocess.is_bicubic else module.Resampling.BILINEAR
    sizes = _sizes("", _Size(image.height, image.width), preprocess)
    if preprocess.letterbox is not None:
        height, width = preprocess.letterbox
        ratio = min(height / image.height, width / image.width)
        inner = max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
        gray = (_GRAY_OF_LETTERBOX,) * len(image.getbands())
        canvas = module.new(image.mode, (width, height), gray if len(gray) > 1 else gray[0])
        corner = round((width - inner[0]) / 2 - 0.1), round((height - inner[1]) / 2 - 0.1)
        canvas.paste(image.resize(inner, method), corner)
        image = canvas
    elif preprocess.resize is not None and (image.height, image.width) != sizes[1]:
        image = image.resize((sizes[1].width, sizes[1].height), method)
    if preprocess.crop is not None:
        height, width = preprocess.crop
        top, left = round((image.height - height) / 2), round((image.width - width) / 2)
        image = image.crop((left, top, left + width, top + height))
    return image


def _check_shape(path: Path, name: str, shape: Sequence[int], slot: Slot | None) -> None:
    """Raises InputError: an image has another height, width or number of channels than the
    input.
    """
    if slot is None or slot.lengths is None:
        return
    inner = slot.lengths[1:]
    if all(
        not isinstance(want, int) or want == have for want, have in zip(inner, shape, strict=True)
    ):
        return
    lengths = ",".join(map(str, shape))
    words = _size_words(slot).rstrip(",")
    sides = [side for side in inner if isinstance(side, int)]
    is_gray = 1 in (sides[:1] + sides[-1:]) and 3 in (shape[0], shape[-1])
    steps = (words or "resize=HxW") + (",gray" if is_gray else "")
    raise InputError(
        f"{path}: input {name!r}: found an image [{lengths}], wanted {spell_slot(slot)}; give"
        f" {setting('preprocess', steps)}"
    )


def _read(path: Path) -> bytes:
    """The bytes of an image. Raises InputError: it cannot be read, or is too large."""
    try:
        content = read_file(path, _MOST_FILE_BYTES)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name another file") from error
    if content is None:
        raise InputError(f"{path}: has more than {_MOST_FILE_BYTES} bytes; give a smaller image")
    return content


@contextmanager
def _opened(path: Path, content: bytes | None = None) -> "Iterator[Image]":
    """An image of a known format. Raises InputError: it is damaged, too large, or has more than 8
    bits per channel.
    """
    module = _pillow_image()
    try:
        with warnings.catch_warnings():
            # Pillow warns of images past its limit, and refuses those past twice the limit.
            warnings.simplefilter("error", module.DecompressionBombWarning)
            with module.open(io.BytesIO(content or _read(path)), formats=_FORMATS) as image:
                if image.mode in _DEEP_MODES:
                    raise InputError(
                        f"{path}: has more than 8 bits per channel ({image.mode}); store it as an"
                        " array: numpy.save('FILE.npy', array)"
                    )
                yield image
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds for damaged files
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if "cannot identify" in reason:
            reason = "it is in no format of images"
        raise InputError(f"{path}: cannot be read ({reason}); name images alone") from error


def _pillow_image() -> Any:
    """Pillow's module for images. Raises InputError: it is not installed."""
    try:
        import PIL.Image
    except ImportError as error:
        raise missing("pillow", "images") from error
    return PIL.Image
