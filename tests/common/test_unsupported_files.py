"""What a file is that is no model: by what it holds, whatever it is called; hostile ones are looked at all the same."""

import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from mezzo.common.errors import ModelError
from mezzo.common.file_kinds import FileKind, detect_kind
from mezzo.common.unsupported_files import describe_folder, describe_unsupported
from mezzo.onnx.files.files import load


def _told(path: Path) -> FileKind:
    kind = detect_kind(path)
    assert kind is not None, path
    return kind


def _zip(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name in names:
            file.writestr(name, b"x")
    return path


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["a/data.pkl", "a/version"], "a checkpoint of PyTorch"),
        (["a/code/x.py", "a/data.pkl"], "a TorchScript program of PyTorch"),
        (["a/archive_format", "a/data/x"], "an exported program of PyTorch"),
        (["config.json", "model.weights.h5"], "a model of Keras"),
        (["MAR-INF/MANIFEST.json"], "an archive of TorchServe"),
        (["x.npy", "y.npy"], "an .npz file, arrays of numpy"),
        (["model.onnx", "tokenizer.json"], "a zip archive"),
    ],
)
@pytest.mark.parametrize("ending", [".onnx", ".pt", ".npz", ".txt", ""])
def test_archives_are_told_by_the_names_in_them_whatever_they_are_called(
    names: list[str], what: str, ending: str, tmp_path: Path
) -> None:
    assert _told(_zip(tmp_path / f"file{ending}", *names)).what == what


@pytest.mark.parametrize("ending", [".onnx", ".pt", ".json", ""])
def test_magic_bytes_win_over_the_ending(ending: str, tmp_path: Path) -> None:
    for begin, what in (
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (b"\0\0\0\0TFL3", "a model of TensorFlow Lite"),
        (b"\x89HDF\r\n\x1a\n", "a model of Keras in HDF5"),
        (b"\x93NUMPY\x01\0", "one array of numpy"),
        (b"\x1f\x8b\x08\0", "a packed file"),
        (b"<!DOCTYPE html>", "a web page"),
    ):
        path = tmp_path / f"file{ending}"
        path.write_bytes(begin + b"\0" * 32 if begin[0] != ord("<") else begin)
        assert _told(path).what.startswith(what)


def test_a_tar_is_told_though_its_sign_stands_late(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"name".ljust(257, b"\0") + b"ustar\0" + b"\0" * 300)
    assert _told(path).what == "a packed file"


@pytest.mark.parametrize("length", [0, 1, 2**40, 2**63])
def test_a_header_that_lies_about_its_length_is_no_safetensors(length: int, tmp_path: Path) -> None:
    path = tmp_path / "w.unknown"
    path.write_bytes(struct.pack("<Q", length) + b'{"w": {"dtype": "F32"}}\x01\xff')
    assert detect_kind(path) is None


def test_a_pickle_is_named_and_never_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "model.pkl"
    path.write_bytes(b"\x80\x02cos\nsystem\nq\x00X" + struct.pack("<I", 99) + f"touch {marker}".encode())
    assert "never loads" in _told(path).what
    with pytest.raises(ModelError, match="is a pickle of Python, which mezzo never loads"):
        load(path)
    assert not marker.exists()


def test_an_archive_whose_directory_lies_is_an_archive(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.pt", "a/data.pkl")
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x05\x06")
    data[at + 12 : at + 16] = b"\xff\xff\xff\x7f"  # the size of the directory
    path.write_bytes(data)
    assert _told(path).what == "a zip archive"


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pt")
    assert detect_kind(tmp_path / "pipe.pt") is None
    assert detect_kind(tmp_path) is None and detect_kind(tmp_path / "absent.pt") is None


def test_a_name_tells_where_the_content_does_not(tmp_path: Path) -> None:
    (tmp_path / "weights.onnx.data").write_bytes(np.random.default_rng(0).bytes(64))
    assert _told(tmp_path / "weights.onnx.data").what.startswith("the external data of a model")
    (tmp_path / "model.onnx").write_bytes(b"\xf7" + np.random.default_rng(1).bytes(64))
    assert detect_kind(tmp_path / "model.onnx") is None


def test_a_text_that_is_cut_inside_a_letter_is_a_text(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"a" * 4095 + "é".encode() + b"more")
    assert _told(path).what == "a text file"
    path.write_bytes(b"a" * 100 + b"\xff" * 100)
    assert detect_kind(path) is None


def test_a_remedy_names_the_file_and_keeps_to_one_line(tmp_path: Path) -> None:
    path = tmp_path / "my\nmodel.tflite"
    path.write_bytes(b"\0\0\0\0TFL3")
    with pytest.raises(ModelError) as caught:
        load(path)
    assert "\n" not in str(caught.value) and "--tflite" in str(caught.value)
    assert "a model of TensorFlow Lite" in describe_unsupported(path, _told(path))


def test_a_folder_is_told_by_what_is_in_it(tmp_path: Path) -> None:
    assert describe_folder(tmp_path).endswith("is a folder without an .onnx file; name a model, or a folder of models")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").write_bytes(b"")
    assert f"there is one in {os.fspath(tmp_path / 'onnx')!r}" in describe_folder(tmp_path)
    (tmp_path / "w.safetensors").write_bytes(b"")
    (tmp_path / "a.onnx").write_bytes(b"")
    assert describe_folder(tmp_path).endswith(f"name the model in it, {os.fspath(tmp_path / 'a.onnx')!r}")
    for name in "bcde":
        (tmp_path / f"{name}.onnx").write_bytes(b"")
    assert "with 5 models, a.onnx, b.onnx, c.onnx and 2 more; name one of them" in describe_folder(tmp_path)
