"""Files of every kind that mezzo reads, mutated: each is read or refused in one line, in bounded time and memory."""

import hashlib
import io
import json
import random
import shutil
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hostile_values import mutate, mutate_bytes, mutate_text, spell_json
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.common.documents import parse_json, parse_toml
from mezzo.common.errors import InputError, MezzoError
from mezzo.io.planfile import load_plan
from mezzo.io.provenance import read_text
from mezzo.io.runtime_profiles import read_profiles
from mezzo.numerics.data.datasets import open_data
from mezzo.plugins import discovery
from mezzo.tables.files.policyfile import load_policy
from mezzo.tables.files.targetfile import load_target

# Of processor time, far above what a reader takes; quadratic time passes it by far.
_LONGEST_S = 10.0
_MOST_BYTES = 300 << 20
_LONGEST_LINE = 2100
_TRIALS = swept(24)
_ROUNDED = ".rounded.safetensors"

_POLICY = """base = "balanced"
name = "mine"
deny = ["Softmax", "com.microsoft:Gelu"]
findings = ["epsilon"]
otherwise = "allow"
missing = "warn"
formats = ["fp16"]
[[rule]]
name = "first"
gives = "allow"
op = ["Conv", "MatMul"]
worth = 3
shape = { operand = 1, axis = 2, at_least = 3 }
constant = { operand = 0, at_least = 1.5 }
attribute = { axis = [1, 2] }
node = "re:.*x"
region = "a"
accumulate = "fp32"
"""
_TARGET = """base = "tensorrt"
summary = "mine"
max_opset = 20
newest = 22
notes = ["a"]
formats = ["fp16"]
costs = { cast_launch = 3, linear_factor = 2 }
[[refuse]]
op = ["GridSample"]
format = "fp16"
versions = [11, 13]
attribute = { mode = ["cubic"], antialias = 1 }
because = "no kernel"
[[run]]
format = "bf16"
ops = ["MatMul, Add 7-14"]
[[gain]]
format = "fp16"
faster = true
because = "measured"
"""
_PROFILE = [
    {"cat": "Session", "ph": "X", "name": "model_run", "ts": 0, "dur": 9, "args": {}},
    {"cat": "Node", "ph": "X", "name": "mm_kernel_time", "ts": 1, "dur": 8,
     "args": {"op_name": "MatMul", "input_type_shape": [{"float": [1, 2]}], "node_index": "0"}},
]  # fmt: skip
_LAYERS = {"Layers": [{"Name": "a", "LayerType": "conv", "Inputs": [{"Format/Datatype": "FP16"}], "Outputs": []}]}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, data, plans in FP16 and INT8, and what searches and passes keep."""
    folder, rng = tmp_path_factory.mktemp("world"), random.Random(3)
    model = random_model(rng, 12, is_tame=True)
    onnx.save(model, folder / "m.onnx")
    (folder / "data").mkdir()
    for number in range(2):
        np.savez(folder / "data" / f"{number}.npz", **random_feeds(model, rng))
    source, data = folder / "m.onnx", folder / "data"
    mezzo.save_plan(mezzo.plan(source), folder / "fp16.json")
    mezzo.save_plan(
        mezzo.convert(source, to="int8", data=data, policy="aggressive", resume=folder / "int8.res").plan,
        folder / "int8.json",
    )
    mezzo.tune(source, data=data, max_error=3e-4, resume=folder / "tune.res")
    mezzo.ranges(source, data, resume=folder / "ranges.res")
    _save_rounded(folder)
    return folder


def _save_rounded(folder: Path) -> None:
    """A plan of a matmul's weight that was rounded on data, with the file of it."""
    rng = np.random.default_rng(0)
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n,64] x) => (float[n,64] y) { y = MatMul(x, w) }'
    model = onnx.parser.parse_model(text)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, folder / "w.onnx")
    data = [{"x": rng.standard_normal((200, 64)).astype(np.float32) @ weight} for _ in range(6)]
    tuned = mezzo.tune(folder / "w.onnx", to="int4", target="onnx", data=data, max_error=0.5, check=False)
    assert tuned.plan.rounded is not None, "a plan with a file of weights"
    mezzo.save_plan(tuned.plan, folder / "rounded.json")


def _bounded(read: Callable[[], object], seen: str) -> None:
    """Read; what refuses to says so in one line."""
    started, said = time.process_time(), ""
    try:
        read()
    except MezzoError as error:
        said = str(error)
    except Exception as error:
        raise AssertionError(f"{seen}: {type(error).__name__}: {error}") from error
    assert "\n" not in said and len(said) <= _LONGEST_LINE, seen
    assert time.process_time() - started < _LONGEST_S, seen


def _in_blocks(plan: bytes, path: Path, *, is_fused: bool) -> bytes:
    """The plan with each matrix of the model in blocks."""
    document = json.loads(plan)
    storage = {"bits": 8, "block": 16, "axis": 0, "symmetric": True, "scale_dtype": "f16", "rounding": "nearest"}
    storage |= {"form": "fused", "accuracy_level": 4} if is_fused else {}
    document["in_blocks"] = {f"weight {t.name}": storage for t in onnx.load(path).graph.initializer if len(t.dims) > 1}
    assert document["in_blocks"], "a model with weights"
    return json.dumps(document, indent=1).encode()


def _readers(world: Path) -> Mapping[str, tuple[bytes, str, Callable[[Path], object]]]:
    """By kind: the whole document, the file's name, and what reads it."""
    model, data = world / "m.onnx", world / "data"
    text = mezzo.convert(model).model.metadata_props
    told = next(entry.value for entry in text if entry.key == "mezzo.provenance")

    def replay(path: Path) -> object:
        return mezzo.convert(model, plan=load_plan(path))

    return {
        "plan": ((world / "fp16.json").read_bytes(), "plan.json", replay),
        "plan with blocks": (
            _in_blocks((world / "fp16.json").read_bytes(), model, is_fused=False), "plan.json", replay),
        "plan with fused blocks": (
            _in_blocks((world / "fp16.json").read_bytes(), model, is_fused=True), "plan.json", replay),
        "plan with rounded weights": (
            (world / "rounded.json").read_bytes(), "rounded.json",
            lambda path: mezzo.convert(world / "w.onnx", plan=path, check=False)),
        "plan of INT8": ((world / "int8.json").read_bytes(), "plan.json", replay),
        "search": ((world / "tune.res").read_bytes(), "tune.res", lambda path: mezzo.tune(
            model, data=data, max_error=3e-4, resume=path)),
        "profile": (json.dumps(_PROFILE).encode(), "profile.json", lambda path: read_profiles([path])),
        "layers": (json.dumps(_LAYERS).encode(), "layers.json", lambda path: read_profiles([path])),
        "provenance": (told.encode(), "told.json", lambda path: _read_told(path.read_bytes())),
    }  # fmt: skip


def _read_told(data: bytes) -> object:
    try:
        return read_text(data.decode("utf-8", "replace"))
    except ValueError as error:
        raise InputError(str(error)) from error


@pytest.mark.parametrize(
    "kind",
    [
        "plan", "plan with blocks", "plan with fused blocks", "plan with rounded weights", "plan of INT8", "search",
        "profile", "layers", "provenance",
    ],
)  # fmt: skip
def test_mutated_document_is_read_or_refused_in_one_line(world: Path, tmp_path: Path, kind: str) -> None:
    whole, name, read = _readers(world)[kind]
    shutil.copy(world / f"rounded.json{_ROUNDED}", tmp_path)
    for seed in range(_TRIALS):
        rng = random.Random(f"{kind}{seed}")
        spoiled = spell_json(mutate(json.loads(whole), rng)) if seed % 8 else mutate_bytes(whole, rng)
        path = tmp_path / name
        path.write_bytes(spoiled)
        _bounded(lambda path=path: read(path), f"{kind}, seed {seed}")  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(3 * _TRIALS))
def test_mutated_file_of_weights_is_read_or_refused_in_one_line(world: Path, tmp_path: Path, seed: int) -> None:
    """Also where the plan states its SHA-256: both may come from a stranger."""
    rng, whole = random.Random(seed), (world / f"rounded.json{_ROUNDED}").read_bytes()
    end = 8 + int.from_bytes(whole[:8], "little")
    header = spell_json(mutate(json.loads(whole[8:end]), rng))
    spoiled = len(header).to_bytes(8, "little") + header + whole[end:] if seed % 3 else mutate_bytes(whole, rng)
    (tmp_path / f"rounded.json{_ROUNDED}").write_bytes(spoiled)
    document = json.loads((world / "rounded.json").read_text())
    document["rounded"]["sha256"] = hashlib.sha256(spoiled).hexdigest()
    path = tmp_path / "rounded.json"
    path.write_text(json.dumps(document))
    _measure(lambda: mezzo.convert(world / "w.onnx", plan=path, check=False), f"seed {seed}")


@pytest.mark.parametrize("kind", ["policy", "target"])
def test_mutated_toml_is_read_or_refused_in_one_line(world: Path, tmp_path: Path, kind: str) -> None:
    text = {"policy": _POLICY, "target": _TARGET}[kind]
    path = tmp_path / "mine.toml"
    for seed in range(4 * _TRIALS):
        path.write_text(mutate_text(text, random.Random(f"{kind}{seed}")))

        def read() -> object:
            if kind == "policy":
                load_policy(path, discovery.policy)
                return mezzo.plan(world / "m.onnx", policy=str(path))
            load_target(path, discovery.target)
            return mezzo.plan(world / "m.onnx", target=str(path))

        _bounded(read, f"{kind}, seed {seed}")


def _repack(archive: bytes, change: Callable[[str, np.ndarray[Any, Any]], object]) -> bytes:
    """An .npz file with its arrays changed by name."""
    content = io.BytesIO()
    with np.load(io.BytesIO(archive)) as held:
        np.savez_compressed(content, **{name: change(name, held[name]) for name in held.files})  # type: ignore[arg-type]
    return content.getvalue()


def _spoil_array(array: np.ndarray[Any, Any], rng: random.Random) -> object:
    if array.dtype == np.uint8 and array.ndim == 1 and rng.random() < 0.7:
        return np.frombuffer(spell_json(mutate(json.loads(array.tobytes()), rng)), np.uint8)
    ways: list[Callable[[], object]] = [
        lambda: array[..., None],
        lambda: array.astype("U8"),
        lambda: array.reshape(-1)[:0],
        lambda: np.float32(3),
        lambda: np.tile(array, 2),
        lambda: array.astype(np.float16),
        lambda: np.full_like(array, np.iinfo(array.dtype).max if array.dtype.kind in "iu" else np.inf),
        lambda: -np.abs(array) if array.dtype.kind in "if" else array,
        lambda: array.astype(bool),
        lambda: np.asfortranarray(array),
    ]
    return rng.choice(ways)()


@pytest.mark.parametrize("kept", ["ranges.res", "int8.res.calibration.npz"])
def test_mutated_journal_is_read_or_refused_in_one_line(world: Path, tmp_path: Path, kept: str) -> None:
    whole, path = (world / kept).read_bytes(), tmp_path / kept
    with np.load(io.BytesIO(whole)) as held:
        names = held.files
    for seed in range(_TRIALS):
        rng = random.Random(f"{kept}{seed}")
        name = names[0] if rng.random() < 0.5 else rng.choice(names)
        if seed % 8:
            path.write_bytes(_repack(whole, lambda n, a, name=name, rng=rng: _spoil_array(a, rng) if n == name else a))  # type: ignore[misc]
        else:
            path.write_bytes(mutate_bytes(whole, rng))

        def read() -> object:
            if kept == "ranges.res":
                return mezzo.ranges(world / "m.onnx", world / "data", resume=path)
            return mezzo.convert(
                world / "m.onnx", to="int8", data=world / "data", policy="aggressive", resume=tmp_path / "int8.res"
            )

        _bounded(read, f"{kept}, seed {seed}")


@pytest.mark.parametrize("seed", range(_TRIALS))
def test_mutated_data_is_read_or_refused_in_one_line(world: Path, tmp_path: Path, seed: int) -> None:
    rng, path = random.Random(seed), tmp_path / "x.npz"
    whole = (world / "data" / "0.npz").read_bytes()
    path.write_bytes(
        mutate_bytes(whole, rng) if seed % 2 else _repack(whole, lambda name, array: _spoil_array(array, rng))
    )
    _bounded(lambda: mezzo.compare(world / "m.onnx", world / "m.onnx", data=path), f"seed {seed}")


def _save_archive(path: Path, members: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)


def _header(count: int) -> bytes:
    """What stands before so many numbers."""
    content = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(content, header)  # type: ignore[arg-type]
    return content.getvalue()


def _two_lines_a_node() -> bytes:
    line = {"name": "n", "op": "", "kind": "op", "precision": "f32", "category": None, "rule": "", "because": "",
            "cause": None}  # fmt: skip
    head = {"format": "mezzo-plan/1", "fingerprint": "", "levels": ["f32", "f16"], "base": "f32", "dialect": "onnx",
            "version": 1, "settings": {}, "limits": {}, "notes": []}  # fmt: skip
    return json.dumps({**head, "nodes": [{**line, "name": str(number)} for number in range(40_000)] * 2}).encode()


# By name: the content of a file that would take time or memory out of proportion to what it holds.
_POLICIES: Mapping[str, Callable[[], str]] = {
    "dotted key": lambda: "a." * 400_000 + "a = 1",
    "dotted header": lambda: f"[{'a.' * 400_000}a]",
    "quoted dotted key": lambda: "'a'." * 200_000 + "a = 1",
    "nested arrays": lambda: "a = " + "[" * 500_000,
    "nested tables": lambda: "a = " + "{a=" * 300_000,
    "digits": lambda: "a = " + "1" * 900_000,
    "hexadecimal digits": lambda: "a = 0x" + "f" * 900_000,
    "one long word": lambda: "a" * 900_000,
    "quotes": lambda: "'" * 900_000,
}
_PLANS: Mapping[str, Callable[[], bytes]] = {
    "nested JSON": lambda: b"[" * 5_000_000,
    "objects": lambda: b"[" + b"{}," * 30_000_000 + b"{}]",
    "digits of JSON": lambda: b"1" * 5_000_000,
    "nodes that are there twice": _two_lines_a_node,
}
_ARCHIVES: Mapping[str, Callable[[], Mapping[str, bytes]]] = {
    "many arrays": lambda: {f"a{number}.npy": b"" for number in range(8_000)},
    "too many arrays": lambda: {f"{number:0200}.npy": b"" for number in range(20_000)},
    "a header that lies": lambda: {"x.npy": _header(2**40)},
}


def _measure(read: Callable[[], object], name: str) -> None:
    tracemalloc.start()
    try:
        _bounded(read, name)
        assert tracemalloc.get_traced_memory()[1] < _MOST_BYTES, name
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", _POLICIES)
def test_policy_takes_time_and_memory_in_proportion(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(_POLICIES[name]())
    _measure(lambda: load_policy(path, discovery.policy), name)


@pytest.mark.parametrize("name", _PLANS)
def test_plan_takes_time_and_memory_in_proportion(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(_PLANS[name]())
    _measure(lambda: load_plan(path), name)


@pytest.mark.parametrize("name", _ARCHIVES)
def test_archive_takes_time_and_memory_in_proportion(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.npz"
    _save_archive(path, _ARCHIVES[name]())
    _measure(lambda: next(iter(open_data(path, ["x"]))), name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 66 + "]" * 66, "it is nested more than 64 levels deep"),
        ("1" * 5000, "it holds a whole number of more than 64 bits"),
        (str(2**63), "it holds a whole number of more than 64 bits"),
        ("[1e999]", "it holds a number that is too large"),
        ('{"a": NaN}', "it holds a number that is NaN"),
        (b'"\xff"', "it is no text in UTF-8 (byte 1)"),
    ],
)
def test_what_no_reader_can_hold_is_refused(text: str | bytes, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told.replace('(', '[(]').replace(')', '[)]')}$"):
        parse_json(text)


def test_what_readers_can_hold_is_read() -> None:
    assert parse_json("[" * 64 + "9223372036854775807" + "]" * 64)
    assert parse_toml(".".join(["a"] * 60) + " = -9223372036854775808")
