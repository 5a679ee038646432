"""Detection of file types that are not ONNX models, with the command that converts each to ONNX.

The type is detected from the first kilobytes and the file name. Nothing is unpacked, unpickled or
executed.
"""

import io
import os
import struct
import zipfile
from dataclasses import dataclass

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import open_regular

_HEAD_BYTES = 4096
_LONGEST_CHARACTER = 4  # bytes of UTF-8
# Limits on the bytes and entries read of an archive's directory.
_MOST_DIRECTORY_BYTES = 16 << 20
_MOST_NAMES = 2000
_TAR_AT, _TAR = 257, b"ustar"
_LONGEST_HEADER = 100 << 20

_TORCH = "torch.onnx.export(model, inputs, 'model.onnx', dynamo=True)"
EXPORT_FROM_HUB = "optimum-cli export onnx --model {path} FOLDER"
_UNPACK = "unpack it and name the file inside"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A file type. `what` is its description with an article; `remedy` says how to get an ONNX
    model, with "{path}" for the file. `begins` are magic bytes with their offsets; `endings` are
    file name suffixes. `runtime`: the package that makes such files; a target has its name.
    """

    what: str
    remedy: str
    begins: tuple[tuple[int, bytes], ...] = ()
    endings: tuple[str, ...] = ()
    runtime: str = ""


_BY_CONTENT: tuple[FileKind, ...] = (
    FileKind(
        what="a pointer of Git LFS, in place of the file",
        remedy="run git lfs pull there, or download the file itself",
        begins=((0, b"version https://git-lfs"),),
    ),
    FileKind(
        what="a model of Keras in HDF5",
        remedy=(
            "load it in Keras and export it: keras.models.load_model('{path}').export('model.onnx',"
            " format='onnx')"
        ),
        begins=((0, b"\x89HDF\r\n\x1a\n"),),
        endings=(".h5", ".hdf5", ".hdf"),
    ),
    FileKind(
        what="a GGUF file of llama.cpp, weights that are quantized already",
        remedy=f"export the model that it was made from: {EXPORT_FROM_HUB.format(path='NAME')}",
        begins=((0, b"GGUF"), (0, b"GGML"), (0, b"ggjt"), (0, b"tjgg")),
        endings=(".gguf", ".ggml"),
    ),
    FileKind(
        what="a model of TensorFlow Lite",
        remedy="convert it: python -m tf2onnx.convert --tflite {path} --output model.onnx",
        begins=((4, b"TFL3"),),
        endings=(".tflite", ".lite"),
    ),
    FileKind(
        what="a model in ONNX Runtime's own format",
        remedy="name the .onnx file that it was made from",
        begins=((4, b"ORTM"),),
        endings=(".ort",),
    ),
    FileKind(
        what="an engine of TensorRT, built for one GPU",
        remedy="name the .onnx file that it was built from; {target} converts for TensorRT",
        begins=((0, b"ftrt"), (0, b"ptrt")),
        endings=(".engine", ".trt"),
        runtime="tensorrt",
    ),
    FileKind(
        what="a model of Rockchip's RKNN",
        remedy="name the .onnx file that it was made from",
        begins=((0, b"RKNN"),),
        endings=(".rknn",),
    ),
    FileKind(
        what="one array of numpy without a name",
        remedy="name the model; data is {data}",
        begins=((0, b"\x93NUMPY"),),
        endings=(".npy",),
    ),
    FileKind(
        what="a packed file",
        remedy=_UNPACK,
        begins=(
            (0, b"\x1f\x8b"),
            (0, b"BZh"),
            (0, b"\xfd7zXZ\0"),
            (0, b"\x28\xb5\x2f\xfd"),
            (0, b"7z\xbc\xaf\x27\x1c"),
            (0, b"Rar!"),
            (_TAR_AT, _TAR),
        ),
        endings=(".tar.gz", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar"),
    ),
    FileKind(
        what="a picture",
        remedy="name the model",
        begins=((0, b"\x89PNG"), (0, b"\xff\xd8\xff"), (0, b"GIF8"), (8, b"WEBP")),
        endings=(".png", ".jpg", ".jpeg", ".gif", ".webp"),
    ),
    FileKind(
        what="a PDF document", remedy="name the model", begins=((0, b"%PDF"),), endings=(".pdf",)
    ),
    FileKind(
        what="a database of SQLite", remedy="name the model", begins=((0, b"SQLite format 3\0"),)
    ),
    FileKind(
        what="a program",
        remedy="name the model",
        begins=((0, b"\x7fELF"), (0, b"MZ\x90\0"), (0, b"\xcf\xfa\xed\xfe"), (0, b"#!")),
    ),
)
_BY_ENDING: tuple[FileKind, ...] = (
    FileKind(
        what="the external data of a model, weights without a graph",
        remedy="name the .onnx file that belongs to it",
        endings=(".onnx.data", ".onnx_data", ".onnx.weights", ".data"),
    ),
    FileKind(
        what="a model of Core ML",
        remedy="name the model that it was made from; in PyTorch, " + _TORCH,
        endings=(".mlmodel", ".mlpackage"),
    ),
    FileKind(
        what="a SavedModel of TensorFlow",
        remedy=(
            "convert its folder: python -m tf2onnx.convert --saved-model {folder} --output"
            " model.onnx"
        ),
        endings=("saved_model.pb",),
    ),
    FileKind(
        what="a frozen graph of TensorFlow",
        remedy=(
            "convert it: python -m tf2onnx.convert --graphdef {path} --inputs IN:0 --outputs OUT:0 "
            "--output model.onnx"
        ),
        endings=(".pb", ".pbtxt"),
    ),
    FileKind(
        what="a model of PaddlePaddle",
        remedy="convert it: paddle2onnx --model_dir {folder} --save_file model.onnx",
        endings=(".pdmodel", ".pdiparams", ".pdparams"),
    ),
    FileKind(
        what="a model of Caffe",
        remedy="name an ONNX export of it",
        endings=(".caffemodel", ".prototxt"),
    ),
    FileKind(
        what="a model of ncnn or MNN",
        remedy="name the .onnx file that it was made from",
        endings=(".param", ".mnn"),
    ),
    FileKind(
        what="a file of weights of Flax",
        remedy="export the model with jax2onnx",
        endings=(".msgpack",),
    ),
    FileKind(
        what="a file of weights without a graph, of OpenVINO or PyTorch",
        remedy="name the .onnx file that they were made from; in PyTorch, " + _TORCH,
        endings=(".bin", ".weights"),
    ),
)
_TORCH_CHECKPOINT = FileKind(
    what="a checkpoint of PyTorch",
    remedy=f"load it in the model's own code and export that: {_TORCH}, or compile it there:"
    " mezzo.torch.compile(model)",
    endings=(".pt", ".pth", ".ckpt", ".pth.tar", ".pt2", ".ptl"),
)
_TORCHSCRIPT = FileKind(
    what="a TorchScript program of PyTorch",
    remedy=(
        "export the module that it was made from, or torch.onnx.export(torch.jit.load('{path}'),"
        " inputs, 'model.onnx', dynamo=False)"
    ),
)
_EXPORTED = FileKind(
    what="an exported program of PyTorch",
    remedy=(
        "torch.onnx.export(torch.export.load('{path}').module(), inputs, 'model.onnx', dynamo=True)"
    ),
)
_KERAS = FileKind(
    what="a model of Keras",
    remedy=(
        "load it in Keras and export it: keras.models.load_model('{path}').export('model.onnx',"
        " format='onnx')"
    ),
    endings=(".keras",),
)
_SAFETENSORS = FileKind(
    what="a file of weights in safetensors, without a graph",
    remedy=(
        f"export the model that they are of: {EXPORT_FROM_HUB.format(path='{folder}')}, or in its"
        f" own code {_TORCH}"
    ),
    endings=(".safetensors",),
)
_PICKLE = FileKind(
    what="a pickle of Python, which mezzo never loads",
    remedy=(
        "export the model in it, from the code that wrote it: scikit-learn's with skl2onnx,"
        " PyTorch's with torch.onnx.export"
    ),
    endings=(".pkl", ".pickle", ".joblib"),
)
_SERVED = FileKind(
    what="an archive of TorchServe", remedy="export the model that it was packed from: " + _TORCH
)
_ARRAYS = FileKind(
    what="an .npz file, arrays of numpy",
    remedy="name the model first; data is {data}",
    endings=(".npz",),
)
ZIP_ARCHIVE = FileKind(what="a zip archive", remedy=_UNPACK, endings=(".zip",))
_IR = FileKind(
    what="a model of OpenVINO, its graph",
    remedy="name the .onnx file that it was made from; {target} converts for OpenVINO",
    runtime="openvino",
)
_PAGE = FileKind(
    what="a web page, as a download that needs a login leaves",
    remedy="download the file again",
    endings=(".html",),
)
_PLAN = FileKind(what="a plan of mezzo", remedy="name its model, and the plan with {plan}")
_JSON = FileKind(what="a JSON text", remedy="name the model", endings=(".json",))
_TEXT = FileKind(
    what="a text file",
    remedy="name the model",
    endings=(".txt", ".md", ".py", ".toml", ".yaml", ".yml", ".csv", ".ipynb"),
)
_ZEROS = FileKind(
    what="nothing but zeros, as a broken download leaves", remedy="get the file again"
)
_ALL: tuple[FileKind, ...] = (
    *_BY_CONTENT, _TORCH_CHECKPOINT, _KERAS, _SAFETENSORS, _PICKLE, _ARRAYS, ZIP_ARCHIVE, _PAGE,
    _JSON, _TEXT, *_BY_ENDING,
)  # fmt: skip


def detect_kind(path: str | os.PathLike[str]) -> FileKind | None:
    """Detect the type of a file that is not an ONNX model, by content, else by name. None if
    unknown.

    Reads a few kilobytes, plus the directory of a zip archive. Never raises.
    """
    name = os.fspath(path).lower()
    try:
        handle, status = open_regular(path)
        with handle:
            head = handle.read(_HEAD_BYTES)
            kind = _by_content(head, handle, status.st_size, name)
    except (OSError, InputError, ValueError):
        return None
    return kind or kind_by_name(name)


def kind_by_name(name: str) -> FileKind | None:
    """The file type by the longest matching suffix of a lower-case name; None if none matches."""
    named = [(ending, kind) for kind in _ALL for ending in kind.endings if name.endswith(ending)]
    return max(named, key=lambda match: len(match[0]))[1] if named else None


def _by_content(head: bytes, file: io.FileIO, size_bytes: int, name: str) -> FileKind | None:
    for kind in _BY_CONTENT:
        if any(head[at : at + len(begin)] == begin for at, begin in kind.begins):
            return kind
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _by_members(file)
    if _is_safetensors(head, size_bytes):
        return _SAFETENSORS
    if len(head) > 2 and head[0] == 0x80 and head[1] in range(2, 6):
        return _TORCH_CHECKPOINT if name.endswith((*_TORCH_CHECKPOINT.endings, ".bin")) else _PICKLE
    if head and not head.strip(b"\0"):
        return kind_by_name(name) or _ZEROS
    return _by_text(head, name)


def _by_members(file: io.FileIO) -> FileKind:
    """The type of a zip archive, from its member names. Nothing is unpacked."""
    try:
        file.seek(0)
        names = [
            member.filename for member in zipfile.ZipFile(_Bounded(file)).infolist()[:_MOST_NAMES]
        ]
    except (
        zipfile.BadZipFile,
        OSError,
        ValueError,
        RuntimeError,
        EOFError,
        IndexError,
        OverflowError,
        struct.error,
    ):
        return ZIP_ARCHIVE
    inside = {name.partition("/")[2] for name in names}
    rules = (
        ("archive_format" in {*names, *inside}, _EXPORTED),
        (any(name.startswith("code/") for name in inside), _TORCHSCRIPT),
        ("data.pkl" in inside, _TORCH_CHECKPOINT),
        ("model.weights.h5" in names, _KERAS),
        (any(name.startswith("MAR-INF/") for name in names), _SERVED),
        (all(name.endswith(".npy") for name in names), _ARRAYS),
    )
    return next((kind for holds, kind in rules if holds), ZIP_ARCHIVE)


class _Bounded(io.BytesIO):
    """A file that returns at most `_MOST_DIRECTORY_BYTES` in total, so that a zip directory with a
    false length cannot exhaust memory.
    """

    def __init__(self, file: io.FileIO) -> None:
        super().__init__()
        self._file, self._left = file, _MOST_DIRECTORY_BYTES

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, size: int | None = -1) -> bytes:
        count = self._left if size is None or size < 0 else min(size, self._left)
        data = self._file.read(count)
        self._left -= len(data)
        return data


def _is_safetensors(head: bytes, size_bytes: int) -> bool:
    length = int.from_bytes(head[:8], "little")
    return (
        2 <= length <= min(size_bytes, _LONGEST_HEADER) and head[8:9] == b"{" and b'"' in head[9:64]
    )


def _by_text(head: bytes, name: str) -> FileKind | None:
    """The type of a text file; None for binary content."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        is_cut = len(head) == _HEAD_BYTES and error.start > len(head) - _LONGEST_CHARACTER
        if not is_cut:  # only a last character split by the read limit is fine
            return None
        text = head[: error.start].decode("utf-8")
    if not text or any(sign < " " and sign not in "\t\n\r\f" for sign in text):
        return None
    start = text.lstrip("\ufeff \t\r\n").lower()
    if start.startswith(("<!doctype html", "<html")):
        return _PAGE
    if start.startswith("<") and "<net " in start:
        return _IR
    if start.startswith(("{", "[")):
        return _PLAN if '"mezzo-plan/' in text[:200] else _JSON
    named = kind_by_name(name)
    return named if named in _BY_ENDING else _TEXT
