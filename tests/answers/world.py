"""What a newcomer has lying about: models, data, and files of other programs. All of it is made on the spot."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
from model_texts import LAYER_NORM

# Scopes as PyTorch's exporters write them, ids that are looked up, a softmax that stays high.
_BERT = """
<ir_version: 10, opset_import: ["" : 21]>
g (int64[N,8] input_ids, float[N,8] attention_mask) => (float[N,8,4] logits)
<float[16,4] table, float[4,4] q = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}>
{
   e = Gather(table, input_ids)
   h = MatMul(e, q)
   s = Softmax<axis=-1>(h)
   a = Add(s, e)
   k = MatMul(a, q)
   t = Softmax<axis=-1>(k)
   logits = Add(t, a)
}
"""
_NAMES = (
    "/embeddings/Gather",
    "/encoder/layer.0/attention/MatMul",
    "/encoder/layer.0/attention/Softmax",
    "/encoder/layer.0/Add",
    "/encoder/layer.1/attention/MatMul",
    "/encoder/layer.1/attention/Softmax",
    "/encoder/layer.1/Add",
)


def make_world(folder: Path) -> None:
    """Fill an empty folder."""
    _make_models(folder)
    _make_data(folder)
    _make_foreign(folder)
    _make_folders(folder)
    _make_places(folder)


def _make_models(folder: Path) -> None:
    onnx.save(onnx.parser.parse_model(LAYER_NORM), folder / "model.onnx")
    bert = onnx.parser.parse_model(_BERT)
    table = np.linspace(-1, 1, 64, dtype=np.float32).reshape(16, 4)
    bert.graph.initializer.insert(0, onnx.numpy_helper.from_array(table, "table"))
    for node, name in zip(bert.graph.node, _NAMES, strict=True):
        node.name = name
        if "/encoder/" in node.name:
            path = node.name.strip("/").rpartition("/")[0].replace("/", ".")
            node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=repr(["", "encoder", path, node.name]))
    onnx.save(bert, folder / "bert.onnx")
    whole = (folder / "bert.onnx").read_bytes()
    (folder / "truncated.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "model").write_bytes((folder / "model.onnx").read_bytes())  # right, by no name
    (folder / "model.pt.onnx.bak").write_bytes((folder / "model.onnx").read_bytes())
    (folder / "wrongly-named.pt").write_bytes((folder / "model.onnx").read_bytes())
    moved = onnx.parser.parse_model(LAYER_NORM)
    big = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "big")
    moved.graph.initializer.append(big)
    onnx.save(moved, folder / "external.onnx", save_as_external_data=True, location="external.onnx.data")
    named = (folder / "external.onnx").read_bytes()
    (folder / "orphan.onnx").write_bytes(named.replace(b"external.onnx.data", b"weights-gone.data!"))


def _make_data(folder: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((8, 4)).astype(np.float32)
    np.savez(folder / "calib.npz", x=x)
    np.savez(folder / "one.npz", x=x[:1])
    np.savez(folder / "labelled.npz", x=x, label=np.zeros(8, np.int64))
    np.savez(folder / "other-name.npz", X=x)
    np.savez(folder / "positional.npz", x)
    np.savez(folder / "two-names.npz", X=x, z=x)
    np.savez(folder / "two-names.npz", X=x, z=x)
    np.savez(folder / "wrong-rank.npz", x=x[0])
    np.savez(folder / "wrong-length.npz", x=random.standard_normal((8, 5)).astype(np.float32))
    np.savez(folder / "nan.npz", x=np.where(np.arange(32).reshape(8, 4) == 5, np.nan, x).astype(np.float32))
    np.savez(folder / "text.npz", x=np.array(["a", "b"]))
    np.savez(folder / "pickled.npz", x=np.array([{"a": 1}], dtype=object))
    np.savez(folder / "empty.npz")
    np.savez(folder / "no-samples.npz", x=x[:0])
    np.savez(folder / "uneven.npz", input_ids=np.zeros((4, 8), np.int64), attention_mask=np.ones((3, 8), np.float32))
    np.savez(
        folder / "float-ids.npz", input_ids=np.zeros((4, 8), np.float32), attention_mask=np.ones((4, 8), np.float32)
    )
    np.savez(folder / "out-of-table.npz", input_ids=np.full((4, 8), 99), attention_mask=np.ones((4, 8), np.float32))
    np.savez(folder / "bert.npz", input_ids=np.zeros((4, 8), np.int64), attention_mask=np.ones((4, 8), np.float32))
    np.save(folder / "array.npy", x)
    (folder / "my_ranges.py").write_text(
        "def fails(seen):\n    raise ValueError('no such tensor')\n\ndef turned(seen):\n    return 2, 1\n\n"
        "def nothing(seen):\n    return None\n\nnumber = 3\n\n"
        "class Blind:\n    def choose(self, name):\n        return 0, 1\n\n"
        "class Broken(Blind):\n    def collect(self, name, array):\n        return self.kept[name]\n\n"
        "class Wide(Blind):\n    def collect(self, name, array):\n        self.name = name\n\n"
        "    def choose(self, name):\n        return 'wide'\n"
    )
    (folder / "damaged.npz").write_bytes((folder / "calib.npz").read_bytes()[:200])
    (folder / "calib.csv").write_text("x0,x1,x2,x3\n1,2,3,4\n")
    (folder / "ragged.csv").write_text("x0,x1,x2,x3\n1,2,3,4\n1,2,3\n")
    (folder / "words.csv").write_text("x0,x1,x2,x3\n1,2,3,four\n")
    (folder / "notes.txt").write_text("a cat\na dog\n")
    (folder / "ragged.csv").write_text("x0,x1,x2,x3\n1,2,3,4\n1,2,3\n")
    (folder / "words.csv").write_text("x0,x1,x2,x3\n1,2,3,four\n")
    (folder / "notes.txt").write_text("a cat\na dog\n")
    (folder / "calib.pkl").write_bytes(pickle.dumps({"x": [1.0]}))
    (folder / "samples").mkdir()
    (folder / "samples" / "a.txt").write_text("a")
    batches = folder / "batches"
    batches.mkdir()
    for number in range(2):
        np.savez(batches / f"{number}.npz", x=x)


def _zip(names: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, content in names.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def _safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0\0\0\0"


def _make_foreign(folder: Path) -> None:
    torch_zip = _zip({"net/data.pkl": pickle.dumps({}), "net/version": b"3\n", "net/data/0": b"\0" * 8})
    keras_zip = _zip({"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": b"\x89HDF\r\n\x1a\n"})
    contents: dict[str, bytes] = {
        "net.pt": torch_zip,
        "net.pth": pickle.dumps({"w": [1.0]}, protocol=2),
        "pytorch_model.bin": torch_zip,
        "scripted.pt": _zip({"net/code/__torch__.py": b"", "net/data.pkl": b"", "net/version": b"3\n"}),
        "program.pt2": _zip({"archive_format": b"pt2", "models/model.json": b"{}", "version": b"0"}),
        "net.ckpt": torch_zip,
        "net.safetensors": _safetensors(),
        "net.tflite": b"\x1c\0\0\0TFL3" + b"\0" * 32,
        "net.h5": b"\x89HDF\r\n\x1a\n" + b"\0" * 32,
        "net.keras": keras_zip,
        "net.gguf": b"GGUF\x03\0\0\0" + b"\0" * 16,
        "saved_model.pb": b"\x08\x01\x12\x24\n\x05serve" + b"\0" * 16,
        "net.mlmodel": b"\x08\x04\x12\x06\n\x04test",
        "net.xml": b'<?xml version="1.0"?>\n<net name="g" version="11"><layers/></net>\n',
        "net.bin": b"\0" * 64,
        "net.engine": b"ftrt" + b"\0" * 32,
        "net.plan": b"ptrt" + b"\0" * 32,
        "net.ort": b"\x18\0\0\0ORTM" + b"\0" * 32,
        "net.mar": _zip({"MAR-INF/MANIFEST.json": b"{}"}),
        "net.pdmodel": b"\n\x10feed",
        "net.pkl": pickle.dumps([1, 2]),
        "net.joblib": pickle.dumps([1, 2], protocol=4),
        "net.rknn": b"RKNN\0\0\0\0" + b"\0" * 16,
        "net.msgpack": b"\x81\xa1a\x01",
        "net.sqlite": b"SQLite format 3\0" + b"\0" * 16,
        "config.toml": b"a = 1\n",
        "config.yaml": b"a: 1\n",
        "config.json": b'{"a": 1}\n',
        "page.html": b"<!DOCTYPE html><html><body>404</body></html>",
        "page.onnx": b"<!DOCTYPE html><html><body>404</body></html>",
        "notes.onnx": b"to do: export the model\n",
        "pointer.onnx": b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n",
        "empty.onnx": b"",
        "zeros.onnx": b"\0" * 64,
        "torch.onnx": torch_zip,
        "packed.zip": _zip({"model.onnx": b"x", "tokenizer.json": b"{}"}),
        "packed.onnx.gz": gzip.compress(b"x", mtime=0),
        "photo.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 16,
        "script.py": b"import torch\n",
        "policy.toml": b'name = "mine"\nbase = "balanced"\n',
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        file.addfile(tarfile.TarInfo("model.onnx"), io.BytesIO(b""))
    (folder / "packed.tar.gz").write_bytes(archive.getvalue())


def _make_folders(folder: Path) -> None:
    model = (folder / "model.onnx").read_bytes()
    (folder / "nothing-here").mkdir()
    (folder / "nothing-here" / "readme.md").write_text("none\n")
    (folder / "two-models").mkdir()
    for name in ("encoder", "decoder"):
        (folder / "two-models" / f"{name}.onnx").write_bytes(model)
    (folder / "one-model").mkdir()
    (folder / "one-model" / "model.onnx").write_bytes(model)
    hub = folder / "hf-folder"
    hub.mkdir()
    (hub / "config.json").write_text('{"model_type": "bert"}\n')
    (hub / "model.safetensors").write_bytes(_safetensors())
    (hub / "tokenizer.json").write_text("{}\n")
    saved = folder / "saved-model"
    (saved / "variables").mkdir(parents=True)
    (saved / "saved_model.pb").write_bytes((folder / "saved_model.pb").read_bytes())
    package = folder / "net.mlpackage"
    package.mkdir()
    (package / "Manifest.json").write_text("{}\n")


def _make_places(folder: Path) -> None:
    (folder / "taken").mkdir()
    locked = folder / "locked"
    locked.mkdir()
