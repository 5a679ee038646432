"""What models are fed to be timed: which axis counts samples, and what a batch of other lengths becomes."""

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import mezzo
from mezzo.common.errors import InputError
from mezzo.conversion.results import open_source
from mezzo.evaluate.timed_inputs import batch_axis, feed_all
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Length, Slot

TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (float[FIRST,4] x, float[OTHER] s) => (float[FIRST,4] y)
{
   [add] y = Add(x, s)
}
"""


def slot(name: str, *lengths: Length) -> Slot:
    return Slot(name=name, dtype=DType.FLOAT32, lengths=lengths)


@pytest.mark.parametrize(
    ("slots", "wanted"),
    [
        ([slot("x", "N", 3), slot("mask", "N", "L")], {"x", "mask"}),
        ([slot("ids", "N", "L"), slot("mask", "N", "L"), slot("table", "rows", 8)], {"ids", "mask"}),
        ([slot("x", None, 3), slot("s")], {"x"}),
        ([slot("x", 1, 3), slot("h", 4, "N")], set()),
        ([slot("x", 1, "L"), slot("c", "N", 2)], {"c"}),
        ([slot("ids", 1, "L"), slot("positions", "L")], set()),  # a length within a sample
        ([slot("ids", "N", "L"), slot("positions", "L"), slot("kinds", "L")], {"ids"}),
        ([Slot(name="x", dtype=None, lengths=None)], set()),
        ([], set()),
    ],
)
def test_samples_are_counted_by_the_name_that_most_inputs_begin_with(slots: list[Slot], wanted: set[str]) -> None:
    assert batch_axis(slots) == wanted


def model(folder: Path, first: str, other: str = "4", name: str = "a.onnx") -> Path:
    text = TEXT.replace("FIRST", first).replace("OTHER", other)
    onnx.save(onnx.parser.parse_model(text), folder / name)
    return folder / name


DATA = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "s": np.ones(4, np.float32)}


@pytest.mark.parametrize(("batch", "rows"), [(None, [0]), (2, [0, 1]), (5, [0, 1, 2, 0, 1])])
def test_batch_takes_the_first_samples_and_begins_again(tmp_path: Path, batch: int | None, rows: list[int]) -> None:
    opened = open_source(model(tmp_path, "N"), False, None)
    (fed,), source, notes = feed_all([opened], DATA, batch)
    assert fed["x"][:, 0].tolist() == [4.0 * row for row in rows] and fed["s"].tolist() == [1.0] * 4
    assert (source.samples, source.seed, list(notes)) == (len(rows), None, [])


def test_model_of_a_fixed_batch_is_fed_that(tmp_path: Path) -> None:
    opened = open_source(model(tmp_path, "3"), False, None)
    (fed,), _, _ = feed_all([opened], DATA, None)
    assert fed["x"].shape == (3, 4)


def test_fixed_batch_and_another_that_is_asked_for_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "b.onnx"
    onnx.save(onnx.parser.parse_model(TEXT.replace(", float[OTHER] s", "").replace("FIRST", "3")
                                      .replace("Add(x, s)", "Neg(x)")), path)  # fmt: skip
    with pytest.raises(InputError, match="runs 3 samples at a time and no other number; leave out batch_size, or exp"):
        mezzo.bench([path], batch_size=2)
    assert mezzo.bench([path], batch_size=3, runs=1, starts=1).files[0].inputs == {"x": "float32[3,4]"}


def test_what_data_holds_beside_is_left_out_and_what_a_file_lacks_is_told_with_its_name(tmp_path: Path) -> None:
    first, second = (open_source(model(tmp_path, "N", name=name), False, None) for name in ("a.onnx", "b.onnx"))
    fed, _, _ = feed_all([first, second], {**DATA, "label": np.zeros(3)}, None)
    assert [set(each) for each in fed] == [{"x", "s"}] * 2
    odd = tmp_path / "odd.onnx"
    onnx.save(onnx.parser.parse_model(TEXT.replace("x", "z").replace("FIRST", "N").replace("OTHER", "4")), odd)
    with pytest.raises(InputError, match=r"odd\.onnx.*found nothing for 'z'"):
        feed_all([first, open_source(odd, False, None)], DATA, None)


def test_batches_without_a_sample_are_passed_over(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x) => (float[N,4] y) { y = Neg(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "neg.onnx")
    opened = open_source(tmp_path / "neg.onnx", False, None)
    empty, full = {"x": DATA["x"][:0]}, {"x": DATA["x"]}
    (fed,), _, _ = feed_all([opened], [empty, full], 2)
    assert fed["x"].tolist() == DATA["x"][:2].tolist()
    with pytest.raises(InputError, match="holds no sample; give at least one"):
        feed_all([opened], [empty, empty], 2)
