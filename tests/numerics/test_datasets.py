"""Data streams from .npz files, folders and dicts; what does not fit, and what is hostile, is one line."""

import io
import pickle
import struct
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

from mezzo.common.errors import InputError
from mezzo.evaluate.model_data import open_model_data
from mezzo.numerics.data import npz, replay
from mezzo.numerics.data.datasets import open_data
from mezzo.numerics.data.npz import NpzFile
from mezzo.onnx.opening import open_model


def spelled(data, inputs=("x",), **options):
    return [
        (batch.origin, batch.samples, {name: np.asarray(feed).tolist() for name, feed in batch.feeds.items()})
        for batch in open_data(data, inputs, **options)
    ]


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_npz_file_is_one_batch(tmp_path):
    file = save(tmp_path / "calib.npz", x=np.array([[1.0], [2.0]]))
    assert spelled(file) == [("calib.npz", 2, {"x": [[1.0], [2.0]]})]


def test_folder_is_read_in_the_order_of_names(tmp_path):
    for name in ("b", "a"):
        save(tmp_path / f"{name}.npz", x=np.array([ord(name)]))
    (tmp_path / "readme.txt").write_text("not data")
    assert [origin for origin, _, _ in spelled(tmp_path)] == ["a.npz", "b.npz"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_batch_size_splits_the_first_axis_and_keeps_scalars(tmp_path, order):
    file = save(tmp_path / "c.npz", x=np.asarray(np.arange(10).reshape(5, 2), order=order), s=np.float32(7))
    assert spelled(file, ("x", "s"), batch_size=2) == [
        ("c.npz[0:2]", 2, {"x": [[0, 1], [2, 3]], "s": 7.0}),
        ("c.npz[2:4]", 2, {"x": [[4, 5], [6, 7]], "s": 7.0}),
        ("c.npz[4:5]", 1, {"x": [[8, 9]], "s": 7.0}),
    ]


def test_lengths_that_differ_cannot_be_split(tmp_path):
    file = save(tmp_path / "c.npz", x=np.zeros(4), m=np.zeros(3))
    with pytest.raises(InputError, match=r"first axes differ in length: 'x' 4, 'm' 3"):
        spelled(file, ("x", "m"), batch_size=2)
    assert spelled(file, ("x", "m"))[0][1] == 1  # no common length: one sample


@pytest.mark.parametrize("make", [list, lambda dicts: lambda: iter(dicts)], ids=["list", "callable"])
def test_dicts_can_be_read_again(make):
    data = open_data(make([{"x": [1.0, 2.0]}, {"x": np.zeros((3, 1))}]), ["x"])
    for _ in range(2):
        assert [(batch.origin, batch.samples) for batch in data] == [("batch 0", 2), ("batch 1", 3)]


def test_one_dict_is_one_batch():
    assert spelled({"x": np.zeros(2)}) == [("batch 0", 2, {"x": [0.0, 0.0]})]


def test_one_shot_iterators_are_read_once_and_kept():
    read = []

    def batches():
        for number in (1, 2, 3):
            read.append(number)
            yield {"x": np.full(number, number), "s": None}

    data = open_data(batches(), ["x"], optional=["s"], others=True)
    next(iter(data))
    assert read == [1]  # a pass that ends early reads no more
    passes = [[batch.feeds["x"].tolist() for batch in data] for _ in range(2)]
    assert passes == [[[1], [2, 2], [3, 3, 3]]] * 2 and read == [1, 2, 3]


def test_only_one_batch_is_held():
    made = []

    def batches():
        for number in range(3):
            made.append(number)
            yield {"x": np.zeros(1)}

    stream = iter(open_data(batches, ["x"]))
    next(stream)
    assert made == [0]


def test_dicts_are_split_too():
    found = spelled([{"x": [1, 2, 3], "s": 1.5}], ("x", "s"), batch_size=2)
    assert found == [("batch 0[0:2]", 2, {"x": [1, 2], "s": 1.5}), ("batch 0[2:3]", 1, {"x": [3], "s": 1.5})]


def test_labels_are_apart_from_feeds_and_may_be_inputs_too(tmp_path):
    file = save(tmp_path / "c.npz", x=np.arange(3), y=np.arange(3))
    (batch,) = open_data(file, ["x"], labels=["y", "x"])
    assert (list(batch.feeds), list(batch.labels)) == (["x"], ["y", "x"])


def test_names_with_slashes_are_names(tmp_path):
    file = save(tmp_path / "c.npz", **{"../a/b:0": np.zeros(1)})
    assert spelled(file, ("../a/b:0",)) == [("c.npz", 1, {"../a/b:0": [0.0]})]
    assert sorted(path.name for path in tmp_path.parent.rglob("*b:0*")) == []


def test_models_without_inputs_take_empty_batches():
    assert spelled([{}], ()) == [("batch 0", 1, {})]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": 1}, r"c\.npz: found nothing for 'x', 't' and 'y', which the model does not have; the model wants 'x', "
                   r"'w' \(optional\), 't' \(label\); if 'y' is for the metric, name it as a label"),
        ({"x": 1}, "found nothing for 't'"),
        ({"x": 1, "t": 1, "z": 1}, "found 'z', which the model does not have"),
    ],
)  # fmt: skip
def test_wrong_names_say_which_and_where(tmp_path, arrays, message):
    file = save(tmp_path / "c.npz", **arrays)
    with pytest.raises(InputError, match=message):
        open_data(file, ["x", "w"], labels=["t"], optional=["w"])
    with pytest.raises(InputError, match=message.replace(r"c\.npz", "data, batch 0")):
        list(open_data([arrays], ["x", "w"], labels=["t"], optional=["w"]))


def test_a_wrong_name_in_the_last_file_shows_at_once(tmp_path):
    save(tmp_path / "a.npz", x=1)
    save(tmp_path / "b.npz", y=1, z=1)
    with pytest.raises(InputError, match=r"b\.npz: found nothing for 'x'"):
        open_data(tmp_path, ["x"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "data is a int; give an .npz file, a folder of them, or dicts"),
        ("absent.npz", "absent.npz: no such file; give an .npz file or a folder"),
        ([], "batches: found no batch; give at least one"),
        ([[1, 2]], "data, batch 0: found a list; give a dict of arrays"),
        (lambda: 3, "the data's callable gave a int"),
    ],
)
def test_what_is_no_data_is_said(data, message):
    with pytest.raises(InputError, match=message):
        list(open_data(data, ["x"]))


def test_an_empty_folder_and_a_batch_size_of_zero_are_said(tmp_path):
    with pytest.raises(InputError, match=r"found no \.npz file in this folder"):
        open_data(tmp_path, ["x"])
    with pytest.raises(InputError, match="batch_size is 0; give 1 or more"):
        open_data([{"x": 1}], ["x"], batch_size=0)


def member(array, allow_pickle=False):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


def header(shape, descr="<f4", order=False):
    text = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def write(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


class Bomb:
    def __reduce__(self):
        return (Path("pickle-was-loaded").touch, ())


HOSTILE = {
    "pickled": ([("x.npy", member(np.array([Bomb()], object), True))], "pickled Python objects, which are never"),
    "raw pickle": ([("x.npy", pickle.dumps(Bomb()))], "cannot be read"),
    "claims more": ([("x.npy", header((1 << 40,)) + b"1234")], "the header says float32.1099511627776., 4398046511104"),
    "claims less": ([("x.npy", header((1,)) + b"12345678")], "4 bytes, and the file holds 8"),
    "negative": ([("x.npy", header((-1,)))], r"its shape \(-1,\) is negative"),
    "huge empty": ([("x.npy", header((0, 1 << 80)))], "cannot be read"),
    "structured": ([("x.npy", header((1,), [("a", "<f4")]) + b"1234")], "of type .* cannot be fed"),
    "dates": ([("x.npy", header((1,), "<M8[s]") + b"12345678")], "cannot be fed; store bfloat16 as float32"),
    "no text": ([("x.npy", header((1,), "<U1") + b"\xff\xff\xff\xff")], "cannot be read"),
    "code": ([("x.npy", header("__import__('os').getcwd()"))], "cannot be read"),
    "not npy": ([("x.txt", b"hello")], "member 'x.txt' is no .npy array; write the file with numpy.savez"),
    "folder": ([("x/", b"")], "member 'x/' is no .npy array"),
    "twice": ([("x.npy", member(np.zeros(1)))] * 2, "array 'x' is there more than once; keep one"),
    "empty": ([("x.npy", b"")], "cannot be read"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("batch_size", [None, 1])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_one_line(tmp_path, monkeypatch, case, batch_size):
    monkeypatch.chdir(tmp_path)
    members, message = HOSTILE[case]
    file = write(tmp_path / "c.npz", members)
    with pytest.raises(InputError, match=message) as caught:
        spelled(file, batch_size=batch_size)
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)
    assert not Path("pickle-was-loaded").exists()


def test_every_truncation_is_one_line(tmp_path):
    whole = save(tmp_path / "whole.npz", x=np.arange(7.0)).read_bytes()
    file = tmp_path / "c.npz"
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"c\.npz"):
            spelled(file)


def test_changed_bytes_are_no_crash(tmp_path):
    whole = write(tmp_path / "whole.npz", [("x.npy", member(np.arange(7.0)))], zipfile.ZIP_DEFLATED).read_bytes()
    random = np.random.default_rng(5)
    file = tmp_path / "c.npz"
    refused = 0
    for _ in range(300):
        broken = bytearray(whole)
        broken[random.integers(len(whole))] = random.integers(256)
        file.write_bytes(broken)
        try:
            spelled(file)
        except InputError:
            refused += 1
    assert refused > 100


def test_a_bomb_is_refused_before_anything_is_allocated(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "SIZE_CAP_BYTES", 1000)
    file = write(tmp_path / "c.npz", [("x.npy", member(np.zeros(1000)))], zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="8000 bytes at once are more than 1000; split it into batches"):
        spelled(file)
    assert len(spelled(file, batch_size=100)) == 10  # batches stay below the cap


def test_a_directory_that_lies_about_what_deflate_can_do_is_refused(tmp_path):
    claimed = header((1 << 28,))
    file = write(tmp_path / "c.npz", [("x.npy", claimed + bytes(64))], zipfile.ZIP_DEFLATED)
    with NpzFile(file) as opened:
        opened._members["x"].file_size = len(claimed) + (4 << 28)
        with pytest.raises(InputError, match=r"1073741824 bytes, and the file holds 1073741824 in .* it is damaged"):
            opened.read("x")


def test_encrypted_members_are_said(tmp_path):
    file = save(tmp_path / "c.npz", x=np.zeros(1))
    content = bytearray(file.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        spelled(file)


def test_big_endian_numbers_come_as_the_machine_has_them(tmp_path):
    file = save(tmp_path / "c.npz", x=np.array([1.5, -2], ">f4"))
    (batch,) = open_data(file, ["x"])
    assert batch.feeds["x"].dtype == np.float32 and batch.feeds["x"].tolist() == [1.5, -2]


MODEL = """<ir_version: 10, opset_import: ["": 18]>
    g (float[N,2] x, float[1] w, optional(tensor(float)) o) => (float[N,2] y) <float[1] w = {2}> { y = Mul(x, w) }"""


def test_data_of_a_model_says_which_file_does_not_fit(tmp_path):
    model = onnx.parser.parse_model(MODEL.replace(", optional(tensor(float)) o", ""))
    save(tmp_path / "a.npz", x=np.zeros((1, 2)))
    save(tmp_path / "b.npz", x=np.zeros((1, 3)))
    data = iter(open_model_data(open_model(model), tmp_path))
    assert next(data).origin == "a.npz"
    with pytest.raises(InputError, match=r"b\.npz: input 'x': found f64\[1,3\], wanted f32\[N,2\]; feed"):
        next(data)


def test_what_is_optional_may_be_absent():
    model = onnx.parser.parse_model(MODEL.replace("optional(tensor(float)) o", "float[1] o"))
    elements = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    model.graph.input[2].type.CopyFrom(onnx.helper.make_optional_type_proto(elements))
    (batch,) = open_model_data(open_model(model), [{"x": np.zeros((1, 2))}])
    assert batch.feeds["o"] is None and "w" not in batch.feeds


def test_models_of_a_fixed_length_get_batches_of_it():
    model = onnx.parser.parse_model(MODEL.replace(", optional(tensor(float)) o", "").replace("N,", "2,"))
    origins = [batch.origin for batch in open_model_data(open_model(model), [{"x": np.zeros((4, 2))}])]
    assert origins == ["batch 0[0:2]", "batch 0[2:4]"]
    data = open_model_data(open_model(model), [{"x": np.zeros((5, 2))}])
    assert [batch.origin for batch in data] == ["batch 0[0:2]", "batch 0[2:4]"]
    assert data.notes == [
        "samples run in batches of 2, the length that the model fixes",
        "samples left over after batches of 2 are left out",
    ]
    with pytest.raises(InputError, match=r"batch 0: input 'x': found f64\[1,2\], wanted f32\[2,2\]"):
        list(open_model_data(open_model(model), [{"x": np.zeros((1, 2))}]))


class Tensor:
    """What a tensor of PyTorch shows of itself, on another device and with a gradient."""

    def __init__(self, array, dtype="torch.float32", is_here=False):
        self.array, self.dtype, self.is_here = np.asarray(array), dtype, is_here

    @property
    def shape(self):
        return self.array.shape

    def detach(self):
        return self

    def cpu(self):
        return Tensor(self.array, self.dtype, is_here=True)

    def float(self):
        return Tensor(self.array.astype(np.float32), is_here=self.is_here)

    def __array__(self, dtype=None, copy=None):
        assert self.is_here and self.dtype != "torch.bfloat16"
        return self.array


@pytest.mark.parametrize(
    ("item", "note"),
    [
        ({"x": np.ones((1, 2))}, []),
        (np.ones((1, 2)), []),
        (Tensor(np.ones((1, 2))), []),
        ((Tensor(np.ones((1, 2)), "torch.bfloat16"),), []),
        ([np.ones((1, 2)), np.zeros(1)], ["of each batch of 2 only 'x' is taken"]),
        (({"x": np.ones((1, 2))}, np.zeros(1)), ["of each batch only the dict is taken"]),
    ],
)
def test_batches_are_dicts_arrays_tensors_or_tuples(item, note):
    data = open_data(iter([item]), ["x"])
    (batch,) = data
    assert batch.feeds["x"].tolist() == [[1.0, 1.0]] and data.notes == note


def test_a_tuple_is_in_the_order_of_inputs_and_labels():
    arrays = tuple(np.full((1,), number) for number in range(3))
    (batch,) = open_data([arrays], ["a", "b"], labels=["t"])
    assert (batch.feeds["a"], batch.feeds["b"], batch.labels["t"]) == (0, 1, 2)
    with pytest.raises(
        InputError, match=r"found 2 arrays without names, and the model wants 'a', 'b', 't' .label.; give"
    ):
        list(open_data([arrays[:2]], ["a", "b"], labels=["t"]))
    with pytest.raises(InputError, match="found an array without a name, and the model wants 'a', 'b'"):
        list(open_data([np.ones(1)], ["a", "b"]))


class Shuffling:
    """A loader that gives other batches each time that it is iterated over."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([{"x": np.full((2, 2), self.passes)}])


def test_a_loader_is_read_once():
    loader = Shuffling()
    data = open_data(loader, ["x"], batch_size=1)
    assert [[batch.feeds["x"].tolist() for batch in data] for _ in range(2)] == [[[[1, 1]], [[1, 1]]]] * 2
    assert loader.passes == 1


@pytest.mark.parametrize("dtype", ["f4", "i8", "?", "U3", ml_dtypes.bfloat16])
def test_batches_past_the_memory_are_kept_in_a_file_bit_for_bit(monkeypatch, dtype):
    monkeypatch.setattr(replay, "_MOST_BYTES", 16)
    arrays = [np.arange(12).reshape(3, 4).T.astype(dtype), np.zeros((0, 2), dtype), np.array(1).astype(dtype)]
    data = open_data(iter([{"x": array} for array in arrays]), ["x"])
    for _ in range(2):
        for batch, array in zip(data, arrays, strict=True):
            feed = batch.feeds["x"]
            assert (feed.shape, feed.dtype, feed.tobytes()) == (array.shape, array.dtype, array.tobytes())


def test_bytes_of_images_are_asked_about():
    model = open_model(onnx.parser.parse_model(IMAGES))
    pixels = np.zeros((1, 3, 2, 2), np.uint8)
    with pytest.raises(
        InputError,
        match=r"batch 0: input 'x': found u8\[1,3,2,2\], numbers from 0 to 255, wanted f32\[N,3,2,2\] as the model was "
        r"trained on; give mezzo.DataFiles\(..., preprocess='scale=1/255'\), or .astype\(np.float32\)",
    ):
        list(open_model_data(model, pixels))
    assert len(list(open_model_data(model, pixels.astype(np.float32)))) == 1


IMAGES = """<ir_version: 10, opset_import: ["": 18]>
g (float[N,3,2,2] x) => (float[N,3,2,2] y) { y = Relu(x) }"""
