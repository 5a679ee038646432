"""Preprocessing as text: what each line means, what is refused, and the numbers that it makes."""

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.numerics.data.preprocess import PRESETS, Preprocess, read_preprocess

IMAGENET = Preprocess(
    resize=(256, None), crop=(224, 224), scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("imagenet", IMAGENET),
        (PRESETS["imagenet"], IMAGENET),
        (
            "crop=240, imagenet ,BGR",
            Preprocess(
                resize=(256, None), crop=(240, 240), color="bgr", scale=1 / 255, mean=IMAGENET.mean, std=IMAGENET.std
            ),
        ),
        ("yolo,letterbox=320x640", Preprocess(letterbox=(320, 640), scale=1 / 255)),
        ("yolo,resize=8", Preprocess(resize=(8, None), scale=1 / 255)),
        ("resize=2x3,gray,layout=nhwc,mean=.5", Preprocess(resize=(2, 3), color="gray", layout="nhwc", mean=(0.5,))),
        ("color=rgb,nchw,bicubic,std=1e2,-3", Preprocess(color="rgb", layout="nchw", is_bicubic=True, std=(100, -3))),
    ],
)
def test_a_line_is_its_steps_whatever_their_order(text, steps):
    assert read_preprocess(text) == steps


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_a_line_of_its_own(preset):
    assert read_preprocess(preset) == read_preprocess(PRESETS[preset])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "a step is empty"),
        ("scale=1/255,", "a step is empty"),
        ("scale=1/0", "'1/0' is no finite number"),
        ("scale=1e999", "no finite number"),
        ("scale=__import__('os')", "is no number"),
        ("scale=nan", "is no number"),
        ("scale=0", "scale and std are never 0"),
        ("std=1e-60", "scale and std are never 0"),
        ("scale=1,scale=2", "'scale' is there twice"),
        ("rgb,bgr", "'bgr' is there twice, or next to one that excludes it"),
        ("resize=8,letterbox=8", "exclude each other"),
        ("imagenet,clip", "'imagenet' and 'clip' are both presets"),
        ("0.5,scale=1", "'0.5' belongs to no step"),
        ("resize=0", "'0' is no size from 1 to 16384"),
        ("resize=99999", "'99999' is no size from 1 to 16384"),
        ("resize=8x", "'8x' is no size"),
        ("resize=8,9", "step 'resize' has 8, 9"),
        ("crop", "step 'crop' has no value"),
        ("layout=chw", "step 'layout' has chw"),
        ("resice=8", "there is no step 'resice' .did you mean 'resize'"),
        ("mean=" + ",".join(["1"] * 65), "step 'mean' has"),
        ("x" * 2000, "more than 1000 characters"),
    ],
)
def test_what_is_no_step_is_said(text, fault):
    with pytest.raises(InputError, match=f"preprocess is .*{fault}") as raised:
        read_preprocess(text)
    assert "\n" not in str(raised.value)


def test_pixels_are_scaled_before_mean_and_deviation():
    pixels = np.array([[[[0, 255]], [[51, 102]]]], np.uint8)
    chosen = read_preprocess("scale=1/255,mean=0.2,0.4,std=0.5,2")
    expected = np.array([[[[-0.4, 1.6]], [[-0.1, 0.0]]]], np.float32)
    converted = chosen.convert(pixels, channel_axis=1)
    assert converted.dtype == np.float32
    # Three operations on numbers below 2, each rounded once.
    np.testing.assert_allclose(converted, expected, atol=6 * np.finfo(np.float32).eps)
    last = chosen.convert(np.moveaxis(pixels, 1, -1), channel_axis=-1)
    assert np.array_equal(np.moveaxis(last, -1, 1), converted)
