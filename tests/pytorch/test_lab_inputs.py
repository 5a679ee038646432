"""What programs take, and what is said of feeds that do not fit."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import ml_dtypes
import torch
from lab_programs import opened

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Part


class Embedded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)

    def forward(self, tokens, mask, scale):
        hidden = self.table(tokens) * mask.unsqueeze(-1).to(torch.float32)
        return hidden.sum(1) * scale


@pytest.fixture(scope="module")
def lab():
    batch = torch.export.Dim("batch")
    shapes = {"tokens": {0: batch}, "mask": {0: batch}, "scale": None}
    args = torch.zeros(2, 6, dtype=torch.int64), torch.ones(2, 6, dtype=torch.int64), torch.ones(8)
    return opened(Embedded(), *args, dynamic_shapes=shapes).lab


GOOD: dict[str, np.ndarray] = {
    "tokens": np.zeros((3, 6), np.int64),
    "mask": np.ones((3, 6), np.int64),
    "scale": np.ones(8, np.float32),
}


def test_slots_say_what_reads_each_input(lab):
    found = {slot.name: (slot.dtype, slot.part, slot.below, slot.lengths[1:]) for slot in lab.inputs.slots}
    assert found == {
        "tokens": (DType.INT64, Part.INDEX, 50, (6,)),
        "mask": (DType.INT64, Part.MASK, None, (6,)),
        "scale": (DType.FLOAT32, Part.DATA, None, ()),
    }
    assert all(isinstance(slot.lengths[0], str) for slot in lab.inputs.slots if slot.name != "scale")


def test_feeds_may_be_of_any_kind_that_fits(lab):
    kinds = {
        "arrays": GOOD,
        "tensors": {name: torch.from_numpy(feed) for name, feed in GOOD.items()},
        "lists": {name: feed.tolist() for name, feed in GOOD.items()},
        "narrower": {"tokens": GOOD["tokens"].astype(np.int16), "mask": GOOD["mask"].astype(np.uint8),
                     "scale": GOOD["scale"].astype(ml_dtypes.bfloat16)},
        "turned": {"tokens": np.zeros((6, 3), np.int64).T, "mask": GOOD["mask"][::-1], "scale": GOOD["scale"][::-1]},
    }  # fmt: skip
    wanted = lab.native()(GOOD)["0"]
    for kind, feeds in kinds.items():
        lab.inputs.check(feeds)
        assert np.array_equal(lab.native()(feeds)["0"], wanted), kind


def test_what_is_fed_is_left_alone(lab):
    feeds = {name: feed.copy() for name, feed in GOOD.items()}
    answers = lab.native()(feeds)
    answers["0"][...] = 7
    assert all(np.array_equal(feeds[name], GOOD[name]) for name in GOOD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": ...}, r"found nothing for 'mask'; feed the program's inputs: 'tokens', 'mask', 'scale'"),
        ({"other": 1}, r"found 'other', which the program does not have; feed"),
        ({"tokens": np.zeros((3, 6))}, r"input 'tokens': found f64\[3,6\], wanted i64\[\w+,6\]; feed an array of i64"),
        ({"tokens": np.zeros((3, 7), int)}, r"found i64\[3,7\], wanted i64\[\w+,6\]; feed .* dimension 1 is 6 long"),
        ({"tokens": np.zeros(6, int)}, r"found i64\[6\], wanted i64\[\w+,6\]; feed an array of 2 dimensions"),
        ({"mask": np.zeros((4, 6), int)}, r"input 'mask': found i64\[4,6\].*; feed \w+ = 3 along dimension 0, as 'tok"),
        ({"scale": None}, r"input 'scale': found None, wanted f32\[8\]; feed an array"),
        ({"scale": ["a"] * 8}, r"input 'scale': found no array of numbers \(.*\), wanted f32\[8\]; feed an array"),
        ({"scale": np.ones(8, complex)}, r"input 'scale': found c128\[8\], wanted f32\[8\]; feed an array of f32"),
    ],
)
def test_feeds_that_do_not_fit_are_refused(lab, change, message):
    feeds = {name: feed for name, feed in {**GOOD, **change}.items() if feed is not ...}
    for ask in (lab.inputs.check, lab.native(), lab.emulated(None)):
        with pytest.raises(InputError, match=message):
            ask(feeds)


def test_integers_beyond_an_inputs_range_are_refused():
    class Small(torch.nn.Module):
        def forward(self, x):
            return x.to(torch.float32)

    lab = opened(Small(), torch.zeros(2, dtype=torch.int8)).lab
    with pytest.raises(InputError, match=r"input 'x': found 300, wanted i8\[2\]; feed numbers from -128 to 127"):
        lab.inputs.check({"x": np.array([1, 300])})


def test_a_fixed_length_is_told_where_all_inputs_fix_it():
    class Sum(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    alike = opened(Sum(), torch.zeros(4, 2), torch.zeros(4, 2)).lab.inputs
    assert (alike.fixed_length, alike.has_fixed_length) == (4, True)
    other = opened(Sum(), torch.zeros(4, 2), torch.zeros(1, 2)).lab.inputs
    assert (other.fixed_length, other.has_fixed_length) == (None, True)
    with pytest.raises(InputError, match="where that is the batch, as many samples as 4 divides"):
        alike.check({"x": np.zeros((3, 2), np.float32), "y": np.zeros((4, 2), np.float32)})


def test_hostile_numbers_go_through():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x + x

    lab = opened(Twice(), torch.zeros(6)).lab
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1e300, 1e-300])
    for run in (lab.native(), lab.emulated(None)):
        found = run({"x": x})["0"]
        assert np.array_equal(found, np.float32([np.nan, np.inf, -np.inf, 0, np.inf, 0]), equal_nan=True)
        assert np.signbit(found[3])


def test_a_buffer_that_is_written_starts_as_the_program_has_it():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.tensor([3.0]))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    lab = opened(Counting(), torch.ones(2)).lab
    assert lab.inputs.optional == {"count"}
    feeds = {"x": np.ones(2, np.float32)}
    for _ in range(2):
        answers = lab.native()(feeds)
        assert answers["0"].tolist() == [4.0, 4.0] and answers["count written"].tolist() == [4.0]
    assert lab.native()({**feeds, "count": np.array([9.0])})["0"].tolist() == [10.0, 10.0]
