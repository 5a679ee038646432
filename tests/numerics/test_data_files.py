"""Data in files as people have them: which arrays they become, what is said about them, and what is refused."""

import io
import os
from itertools import pairwise

import numpy as np
import pytest

from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.datasets import open_data
from mezzo.numerics.data.readers import csv_files

F32, I64, TEXT = DType.FLOAT32, DType.INT64, DType.STRING


def types(**lengths):
    return {name: Slot(name=name, dtype=F32, lengths=tuple(each)) for name, each in lengths.items()}


X = types(x=("N", 2))


def opened(sources, inputs=("x",), preprocess=None, **options):
    data = open_data(DataFiles(sources, preprocess), inputs, **{"types": X, **options})
    batches = [
        (batch.origin, {name: np.asarray(feed).tolist() for name, feed in {**batch.feeds, **batch.labels}.items()})
        for batch in data
    ]
    return batches, list(data.notes)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_bare_array_is_for_the_only_input(here):
    np.save("calib.npy", np.array([[1, 2], [3, 4]]))
    assert opened("calib.npy") == ([("calib.npy", {"x": [[1, 2], [3, 4]]})], [])
    parts, _ = opened("calib.npy", batch_size=1)
    assert parts == [("calib.npy[0:1]", {"x": [[1, 2]]}), ("calib.npy[1:2]", {"x": [[3, 4]]})]


def test_an_array_of_another_name_is_for_the_only_input_and_is_said(here):
    np.savez("calib.npz", np.array([[1, 2]]))
    assert opened("calib.npz") == (
        [("calib.npz", {"x": [[1, 2]]})],
        ["array 'arr_0' is taken for input 'x'"],
    )
    np.savez("two.npz", np.array([[1, 2]]), y=np.array([7]))
    assert opened("two.npz", labels=["y"])[0] == [("two.npz", {"x": [[1, 2]], "y": [7]})]
    with pytest.raises(InputError, match="found nothing for 'x', 't' and 'arr_0'"):
        opened("calib.npz", labels=["t"])  # the array may be the label


def test_each_input_has_a_file_by_name(here):
    np.save("a.npy", np.array([[1, 2], [3, 4]]))
    np.savez("b.npz", anything=np.array([5, 6]))
    both = {"inputs": ("x", "m"), "types": types(x=("N", 2), m=("N",))}
    batches, notes = opened(["x=a.npy", "m=b.npz"], **both)
    assert (batches, notes) == ([("a.npy, b.npz", {"x": [[1, 2], [3, 4]], "m": [5, 6]})], [])
    assert opened(["x=a.npy", "m=b.npz"], batch_size=1, **both)[0][1] == (
        "a.npy, b.npz[1:2]",
        {"x": [[3, 4]], "m": [6]},
    )
    with pytest.raises(
        InputError, match=r"a\.npy: holds one array, and the model wants 'x', 'm'; give a file for each"
    ):
        opened("a.npy", **both)
    with pytest.raises(InputError, match=r"data: found nothing for 'm'; the model wants 'x', 'm'"):
        opened("x=a.npy", **both)
    with pytest.raises(InputError, match=r"write NAME=b\.npz, or leave the names out"):
        opened(["x=a.npy", "b.npz"], **both)


def test_a_folder_of_arrays_called_as_the_inputs_is_one_batch(here):
    os.mkdir("feeds")
    np.save("feeds/x.npy", np.array([[1, 2]]))
    np.save("feeds/m.npy", np.array([5]))
    both = {"inputs": ("x", "m"), "types": types(x=("N", 2), m=("N",))}
    assert opened("feeds", **both)[0] == [("m.npy, x.npy", {"x": [[1, 2]], "m": [5]})]


def test_patterns_and_several_sources_follow_each_other_each_file_once(here):
    os.mkdir("calib")
    for number in range(3):
        np.savez(f"calib/{number}.npz", x=np.full((1, 2), number))
    batches, notes = opened(["calib/[12].npz", "calib/0.npz", "./calib/1.npz"])
    assert [origin for origin, _ in batches] == ["1.npz", "2.npz", "0.npz"]
    assert notes == ["'calib/1.npz' is named twice and read once"]
    os.rename("calib/2.npz", "calib/[2].npz")  # a name is a name before it is a pattern
    assert [origin for origin, _ in opened("calib/[2].npz")[0]] == ["[2].npz"]


def test_files_of_equal_content_are_said(here):
    for name in ("a", "b", "c"):
        np.save(f"{name}.npy", np.ones((1, 2)))
    assert opened("*.npy")[1] == ["'a.npy' and 'b.npy' hold the same, and 1 more are copies"]


def test_one_sample_gets_its_batch_axis_where_there_is_no_doubt(here):
    np.save("one.npy", np.array([1, 2]))
    assert opened("one.npy", batch_size=1) == ([("one.npy", {"x": [[1, 2]]})], ["a batch axis is added to 'x'"])
    for doubtful in (("N", "L"), (4, 2), ("N", 3), ("N", 2, 1)):  # any length, another batch, length or rank
        assert opened("one.npy", types=types(x=doubtful)) == ([("one.npy", {"x": [1, 2]})], [])


def test_a_fixed_batch_leaves_out_what_does_not_fill_it_and_says_so(here):
    np.save("calib.npy", np.arange(10).reshape(5, 2))
    batches, notes = opened("calib.npy", fixed_length=2)
    assert [origin for origin, _ in batches] == ["calib.npy[0:2]", "calib.npy[2:4]"]
    assert notes == [
        "samples run in batches of 2, the length that the model fixes",
        "samples left over after batches of 2 are left out",
    ]


def test_arrays_are_scaled_and_shifted_by_channel(here):
    np.savez("u8.npz", x=np.array([[[[0]], [[255]]]], np.uint8), m=np.array([3]))
    images = types(x=("N", 2, 1, 1), m=("N",))
    batches, _ = opened("u8.npz", ("x", "m"), "scale=1/255,mean=0,0.5,std=0.5", types=images)
    assert batches == [("u8.npz", {"x": [[[[0.0]], [[1.0]]]], "m": [3]})]
    with pytest.raises(InputError, match="preprocess has 3 numbers for mean, and there are 2 channels"):
        opened("u8.npz", ("x", "m"), "mean=1,2,3", types=images)
    with pytest.raises(InputError, match="resizes, crops or reorders images; give scale, mean and std alone"):
        opened("u8.npz", ("x", "m"), "imagenet", types=images)


def test_tables_have_columns_by_name_or_rows_for_the_only_input(here):
    (here / "named.csv").write_text("m;x\n1.5;2\n-3;4\n")
    vectors = {"inputs": ("x", "m"), "types": types(x=("N",), m=("N", 1))}
    assert opened("named.csv", **vectors)[0] == [("named.csv", {"x": [2, 4], "m": [[1.5], [-3.0]]})]
    (here / "rows.csv").write_text('\ufeffa,"b",y\n1,2,0\n\n3,4e-1,1\n5,6,1\n')
    batches, _ = opened("rows.csv", labels=["y"], batch_size=2)
    assert batches == [
        ("rows.csv[0:2]", {"x": [[1.0, 2.0], [3.0, 0.4]], "y": [0, 1]}),
        ("rows.csv[2:3]", {"x": [[5.0, 6.0]], "y": [1]}),
    ]
    (here / "plain.tsv").write_text("1\t2\n3\t4\n")
    assert opened("plain.tsv")[0] == [("plain.tsv", {"x": [[1, 2], [3, 4]]})]
    strings = {"x": Slot(name="x", dtype=TEXT, lengths=("N",))}
    (here / "words.csv").write_text("good\nbad\n")
    assert opened("words.csv", types=strings)[0] == [("words.csv", {"x": ["good", "bad"]})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no row"),
        ("a,b\n", "holds no row below its names"),
        ("a,b\n1,2\n3\n", "row 3 has 1 columns, and the first has 2"),
        ("a,b\n1,\n", "row 2, column 'b': is empty; fill it in"),
        ("1,2\n3,one\n", "column 2 holds text, and input 'x' takes numbers"),
        ("a,a\n1,2\n", "column 'a' is there more than once"),
        ('1,"2\n', r"cannot be read \(unexpected end of data\)"),
        ("1,2\0\n", "line 1 holds a zero byte"),
        (b"\xff\xfe1,2", "is not text in UTF-8"),
        (",".join(["1"] * 20_000), "a row has 20000 columns, and at most 16384 are read"),
        ('"' + "1" * 200_000, r"cannot be read \(field larger than field limit"),
    ],
)
def test_damaged_and_hostile_tables_are_one_line(here, text, message):
    (here / "t.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as raised:
        opened("t.csv")
    assert "\n" not in str(raised.value) and "t.csv" in str(raised.value)


def test_a_line_without_end_is_not_held(here, monkeypatch):
    monkeypatch.setattr("mezzo.numerics.data.readers.lines._LONGEST", 100)
    (here / "t.csv").write_text("1," * 200)
    with pytest.raises(InputError, match="line 1 has more than 100 characters; split it"):
        opened("t.csv")


def header(shape, descr="<f4"):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def pickled():
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array([{"a": 1}], object), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header((1 << 40,)) + b"1234", "the header says float32.1099511627776., 4398046511104 bytes, and"),
        (header((1,)) + b"12345678", "4 bytes, and the file holds 8"),
        (pickled(), "pickled Python objects, which are never loaded"),
        (header("__import__('os').getcwd()"), "cannot be read"),
        (b"", "cannot be read"),
        (b"\x89PNG\r\n", "is a picture, not an .npz file"),
    ],
)  # fmt: skip
def test_damaged_and_hostile_arrays_are_one_line(here, content, message):
    (here / "x.npy").write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        opened("x.npy")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "data names no file"),
        ("*.npz", "the pattern matches no file"),
        ("absent.npy", "absent.npy: no such file"),
        ("mixed", r"holds 1 \.npy files and 1 images; name one kind: 'mixed/\*\.npy'"),
        ("fifo.npy", "is a FIFO; name a file"),
        (["x=a.npy", "x=b.npy", "m=a.npy"], "different numbers of files: 'x' has 2, 'm' has 1"),
    ],
)
def test_sources_that_are_no_data_are_one_line(here, sources, message):
    np.save("a.npy", np.ones((1, 2)))
    np.save("b.npy", np.zeros((1, 2)))
    os.mkdir("mixed")
    for name in ("a.npy", "b.png"):
        (here / "mixed" / name).write_bytes(b"")
    os.mkfifo("fifo.npy")
    with pytest.raises(InputError, match=message):
        opened(sources, ("x", "m") if sources and sources[0] == "x=a.npy" else ("x",))


def test_content_is_told_apart_in_every_form(here):
    """What resume files compare: another number, file or preprocessing is other data."""

    def identity(sources, preprocess=None):
        data = open_data(DataFiles(sources, preprocess), ["x"], types=X)
        return data.name, data.content

    def write(number):
        np.save("a.npy", np.full((1, 2), number))
        np.savez("b.npz", x=np.full((1, 2), number))
        (here / "c.csv").write_text(f"{number},{number}\n")
        (here / "feeds.py").write_text(f"def batches():\n    return [{{'x': [[{number}, 2]]}}]\n")

    forms = ["a.npy", "b.npz", "c.csv", "x=a.npy", "?.npy", "feeds:batches"]
    write(1)
    before = [identity(form) for form in forms]
    assert [identity(form) for form in forms] == before
    assert len({name for name, _ in before}) == len(forms)
    write(22)
    after = [identity(form) for form in forms]
    assert all(old[0] == new[0] and old[1] != new[1] for old, new in zip(before, after, strict=True))
    names = [identity("a.npy", steps)[0] for steps in (None, "scale=2", "scale=3")]
    assert all(first != second for first, second in pairwise(sorted(names)))


def test_a_table_is_read_in_bounded_runs(here, monkeypatch):
    (here / "t.csv").write_text("1,2\n" * 2500)
    lengths = [batch.samples for batch in open_data(DataFiles("t.csv"), ["x"], types=X)]
    assert lengths == [csv_files.USUAL, csv_files.USUAL, 2500 - 2 * csv_files.USUAL]
