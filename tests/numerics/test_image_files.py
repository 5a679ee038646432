"""Images as data, by Pillow: which numbers they become, and hostile files in one line."""

import struct
import sys
import zlib

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import open_data

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def opened(sources, preprocess=None, lengths=("N", 3, "H", "W"), dtype=DType.FLOAT32, **options):
    slot = Slot(name="x", dtype=dtype, lengths=lengths)
    return open_data(DataFiles(sources, preprocess), ["x"], types={"x": slot}, **options)


def arrays_of(data):
    return [(batch.origin, batch.feeds["x"]) for batch in data]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(name, pixels):
    Image.fromarray(np.asarray(pixels, np.uint8)).save(name)


COLORS = np.arange(24).reshape(2, 4, 3) * 10


def test_a_folder_is_one_batch_in_the_order_of_names(here):
    (here / "photos").mkdir()
    (here / "photos" / "labels.csv").write_text("not a picture")
    save("photos/b.png", COLORS)
    save("photos/a.bmp", 255 - COLORS)
    ((origin, batch),) = arrays_of(opened("photos", "scale=1/255"))
    scaled = np.stack([255 - COLORS, COLORS]).astype(np.float32) * np.float32(1 / 255)
    assert origin == "photos" and batch.dtype == np.float32
    assert np.array_equal(batch, scaled.transpose(0, 3, 1, 2))


def test_folders_of_classes_are_read_in_order(here):
    for name in ("b/1.png", "a/2.png", "a/1.png"):
        (here / "val" / name).parent.mkdir(parents=True, exist_ok=True)
        save(f"val/{name}", np.full((1, 1, 3), 10 * int(name[2]) + (name[0] == "b")))
    ((_, batch),) = arrays_of(opened("val", "scale=1"))
    assert batch[:, 0, 0, 0].tolist() == [10, 20, 11]


@pytest.mark.parametrize(
    ("preprocess", "lengths", "expected"),
    [
        ("scale=1,bgr", ("N", 3, 2, 4), COLORS[:, :, ::-1].transpose(2, 0, 1)),
        ("scale=1", (1, 2, 4, 3), COLORS),
        ("scale=1,nhwc", None, COLORS),
        ("scale=1,crop=2", ("N", 3, 2, 2), COLORS[:, 1:3].transpose(2, 0, 1)),
        ("mean=10", ("N", 3, 2, 4), COLORS.transpose(2, 0, 1) - 10),
    ],
)
def test_color_layout_and_crop(here, preprocess, lengths, expected):
    save("a.png", COLORS)
    ((_, batch),) = arrays_of(opened("a.png", preprocess, lengths))
    assert np.array_equal(batch[0], expected)


def test_a_u8_model_gets_pixels(here):
    save("a.png", COLORS)
    ((_, batch),) = arrays_of(opened("a.png", dtype=DType.UINT8))
    assert batch.dtype == np.uint8 and np.array_equal(batch[0], COLORS.transpose(2, 0, 1))


def test_sizes_are_those_of_torchvision_and_ultralytics(here):
    image = np.tile(np.array([200, 100, 50]), (30, 61, 1))
    save("a.png", image)
    ((_, resized),) = arrays_of(opened("a.png", "resize=15"))
    assert resized.shape == (1, 3, 15, 30)  # int(15 * 61 / 30), as torchvision
    ((_, exact),) = arrays_of(opened("a.png", "resize=16x20,bicubic"))
    assert exact.shape == (1, 3, 16, 20)
    ((_, boxed),) = arrays_of(opened("a.png", "letterbox=61"))
    rows = boxed[0, 0, :, 0]
    assert boxed.shape == (1, 3, 61, 61) and np.count_nonzero(rows == 200) == 30
    assert rows[:15].tolist() == [114] * 15  # (61 - 30) / 2 is 15.5, rounded down above, as Ultralytics


def test_images_of_several_sizes_run_one_by_one(here):
    save("a.png", np.zeros((2, 2, 3)))
    save("b.png", np.zeros((3, 2, 3)))
    sizes = [(origin, batch.shape) for origin, batch in arrays_of(opened("*.png", "scale=1"))]
    assert [shape for _, shape in sizes] == [(1, 3, 2, 2), (1, 3, 3, 2)]
    with pytest.raises(InputError, match=r"images differ in size and cannot be in one batch of 2; give .*resize=HxW"):
        arrays_of(opened("*.png", "scale=1", batch_size=2))


def test_a_float_model_asks_what_pixels_mean(here):
    save("a.png", COLORS)
    with pytest.raises(
        InputError,
        match=r"a\.png: images hold numbers from 0 to 255, and input 'x' is f32\[N,3,8,8\]; say how they become what "
        r"the model was trained on: preprocess=\"imagenet\", or preprocess=\"resize=8x8,scale=1/255\"",
    ):
        opened("a.png", lengths=("N", 3, 8, 8))
    with pytest.raises(InputError, match="makes floats, and input 'x' is u8"):
        opened("a.png", "scale=1/255", dtype=DType.UINT8)


@pytest.mark.parametrize(
    ("preprocess", "lengths", "message"),
    [
        ("scale=1", ("N", 3, 8, 8), r"found an image \[3,2,4\], wanted f32\[N,3,8,8\]; give preprocess=.resize=8x8."),
        ("resize=8x8", ("N", 1, 8, 8), "give preprocess=.resize=8x8,gray."),
        ("crop=3", ("N", 3, "H", "W"), "has 2x4 pixels to cut 3x3 from; give preprocess=.resize=.... too"),
        ("mean=1,2", ("N", 3, "H", "W"), "has 2 numbers for mean, and there are 3 channels"),
        ("scale=1", ("N", 8), r"input 'x' is f32\[N,8\], which has no batch, channels, height and width"),
    ],
)
def test_images_that_do_not_fit_are_said_at_once(here, preprocess, lengths, message):
    save("a.png", COLORS)
    with pytest.raises(InputError, match=message):
        opened("a.png", preprocess, lengths)


def png(width, height, depth=8):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    body = zlib.compress(b"\0" * (height * (1 + width * depth // 8))) if width < 100 else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (png(60_000, 60_000), "cannot be read .Image size .3600000000 pixels. exceeds limit"),
        (png(10_000, 10_000), "cannot be read .Image size .100000000 pixels. exceeds limit"),
        (png(1, 60_000), r"15360000x256 pixels are more than Pillow's limit"),
        (png(4, 4, depth=16), "more than 8 bits per channel .I;16.; store it as an array"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "it is in no format of images"),
        (b"", "it is in no format of images"),
    ],
)
def test_bombs_and_damaged_files_are_one_line(here, content, message):
    (here / "a.png").write_bytes(content)
    with pytest.raises(InputError, match=rf"a\.png: .*{message}") as raised:
        opened("a.png", "resize=256")
    assert "\n" not in str(raised.value)


def test_an_image_cut_short_is_said_when_it_is_decoded(here):
    save("a.png", np.random.default_rng(0).integers(0, 255, (40, 40, 3)))
    (here / "a.png").write_bytes((here / "a.png").read_bytes()[:900])
    with pytest.raises(InputError, match=r"a\.png: cannot be read .*; name images alone"):
        arrays_of(opened("a.png", "scale=1"))


def test_another_image_is_other_data(here):
    save("a.png", COLORS)
    first = opened("a.png", "scale=1").content
    save("a.png", COLORS + 1)
    assert opened("a.png", "scale=1").content != first


def test_without_pillow_the_command_to_install_it_is_said(here, monkeypatch):
    save("a.png", COLORS)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InputError, match=r'^images: pillow is not installed; pip install "?pillow'):
        opened("a.png", "imagenet")
