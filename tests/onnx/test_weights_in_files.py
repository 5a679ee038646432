"""Large weights stay in files while a model runs: the answers are those of a model in memory, bit for bit."""

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper
from random_models import random_feeds, random_model, seeds
from sweeps import swept
from switch_models import is_same, operators

import mezzo
from mezzo.common.errors import InputError, ModelError
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.numerics.statistics.noise import Shaker
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.files import files, runnable_model, weights
from mezzo.onnx.files.blobs import CHUNK_BYTES, Blobs
from mezzo.onnx.files.marks import mark_quantized, mark_rounded, mark_widened
from mezzo.onnx.files.quantized_payloads import payload_of
from mezzo.onnx.opening import Opened, open_model
from mezzo.onnx.protos.rounding import STORAGE, round_through
from mezzo.onnx.run import session
from mezzo.onnx.run.runtime import JUDGING, SessionSettings

# Matrices are of more than stays in a model, and products of so few numbers that engines sum them in one piece: of more
# they sum repacked weights in other pieces.
SIDE = 48
RNG = np.random.default_rng(11)


@pytest.fixture
def in_files() -> Iterator[None]:
    """Every weight of more than 60 bytes is large, and lies in a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "INLINE_BYTES", 60)
        patch.setattr(files, "_SMALL_BYTES", 0)
        _map_all(patch)
        yield


def _map_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(runnable_model, "_LEAST_BYTES", 0)
    patch.setattr(runnable_model, "MAPPED_FROM", 0)


def matrix(scale: float = 0.05, dtype: Any = np.float32) -> np.ndarray:
    return (RNG.standard_normal((SIDE, SIDE)) * scale).astype(np.float32).astype(dtype)


def tensor(array: np.ndarray, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(array, name)


def value(name: str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [SIDE, SIDE])


def body(name: str, nodes: list[onnx.NodeProto], held: list[onnx.TensorProto], *results: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(result) for result in results], held)


def everywhere() -> onnx.ModelProto:
    """A model with weights in every place: shared, in bodies under one name, handed on by a body, in functions called
    twice, as Constants, sparse, in low types, as numbers of a field of their own, overridable, and returned.
    """
    mm, node = "MatMul", helper.make_node
    inner = body(
        "inner", [node(mm, ["s1", "w"], ["i1"]), node("Add", ["i1", "outer"], ["i2"])], [tensor(matrix(), "w")], "i2"
    )
    other = body("other", [node(mm, ["s1", "outer"], ["o1"])], [], "o1")
    then = body(
        "then",
        [node(mm, ["s1", "w"], ["t1"]), node("If", ["c"], ["t2"], then_branch=inner, else_branch=other)],
        [tensor(matrix(), "w"), tensor(matrix(), "handed")],
        "t2",
        "handed",
    )
    otherwise = body(
        "otherwise",
        [
            node("Constant", [], ["k"], value=tensor(matrix(), "k")),
            node(mm, ["s1", "w"], ["e1"]),
            node("Identity", ["k"], ["e2"]),
        ],
        [tensor(matrix(), "w")],
        "e1",
        "e2",
    )
    loop = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node(mm, ["state", "lw"], ["next"])],
        "loop",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            value("state"),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), value("next")],
        [tensor(matrix(), "lw")],
    )
    function = helper.make_function(
        "own", "F", ["a"], ["b"],
        [node("Constant", [], ["k"], value=tensor(matrix(), "k")), node(mm, ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    sparse = helper.make_sparse_tensor(
        tensor(RNG.standard_normal(1500).astype(np.float32), "sparse"),
        tensor(np.arange(1500), "places"),
        [SIDE * SIDE],
    )
    nodes = [
        node(mm, ["x", "shared"], ["s0"]),
        node(mm, ["s0", "shared"], ["s1"]),
        node("If", ["c"], ["f1", "f2"], then_branch=then, else_branch=otherwise),
        node("Add", ["f1", "f2"], ["f3"]),
        node("F", ["f3"], ["g1"], domain="own"),
        node("F", ["g1"], ["g2"], domain="own"),
        node("Loop", ["turns", "", "g2"], ["l1"], body=loop),
        node("Constant", [], ["constant"], value=tensor(matrix(), "constant")),
        node(mm, ["l1", "constant"], ["n1"]),
        node("Cast", ["n1"], ["n2"], to=TensorProto.FLOAT16),
        node(mm, ["n2", "half"], ["n3"]),
        node("Cast", ["n3"], ["n4"], to=TensorProto.FLOAT),
        node("Cast", ["brain"], ["n5"], to=TensorProto.FLOAT),
        node("Add", ["n4", "n5"], ["n6"]),
        node(mm, ["n6", "floats"], ["n7"]),
        node("Add", ["n7", "default"], ["n8"]),
        node("Reshape", ["sparse", "shape"], ["n9"]),
        node("Add", ["n8", "n9"], ["y"]),
    ]
    initializers = [
        tensor(matrix(), "shared"),
        tensor(matrix(), "outer"),
        tensor(matrix(dtype=np.float16), "half"),
        tensor(matrix(dtype=ml_dtypes.bfloat16), "brain"),
        helper.make_tensor("floats", TensorProto.FLOAT, [SIDE, SIDE], matrix().ravel().tolist()),
        tensor(matrix(), "default"),
        tensor(matrix(), "returned"),
        tensor(np.array([SIDE, SIDE]), "shape"),
        tensor(np.array(2), "turns"),
    ]
    inputs = [value("x"), helper.make_tensor_value_info("c", TensorProto.BOOL, []), value("default")]
    graph = helper.make_graph(
        nodes, "g", inputs, [value("y"), value("returned")], initializers, sparse_initializer=[sparse]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)


MODEL = everywhere()
FEEDS = [{"x": matrix(1.0), "c": np.array(flag)} for flag in (True, False)]
MORE = {"x": matrix(1.0), "c": np.array(True), "default": matrix(1.0)}
ROADS = ("memory", "streamed", "external", "aligned")


def open_by(road: str, folder: Path, patch: pytest.MonkeyPatch, model: onnx.ModelProto = MODEL) -> Opened:
    """The model opened along a road, with its weights in files."""
    _map_all(patch)
    if road == "memory":
        return open_model(model)
    path = folder / "model.onnx"
    if road == "streamed":
        patch.setattr(files, "_SMALL_BYTES", 0)
        onnx.save(model, path)
    elif road == "external":
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0, convert_attribute=True)
    else:
        _externalize(model, path)
    return open_model(path)


def _externalize(model: onnx.ModelProto, path: Path) -> None:
    """Write every large initializer at a page of its own."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    data = bytearray()
    for held in copy.graph.initializer:
        raw = numpy_helper.to_array(held).tobytes()
        if len(raw) > 4096:
            data += bytes(-len(data) % 4096)
            held.ClearField("float_data")
            held.ClearField("raw_data")
            held.data_location = TensorProto.EXTERNAL
            for key, number in (("location", "w.bin"), ("offset", len(data)), ("length", len(raw))):
                held.external_data.add(key=key, value=str(number))
            data += raw
    path.with_name("w.bin").write_bytes(data)
    path.write_bytes(copy.SerializeToString())


# -- the same answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("road", ROADS)
def test_answers_are_those_of_the_model_in_memory(road: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_model(MODEL)
    expected = [before.lab.native()(feeds) for feeds in (*FEEDS, MORE)]
    expected += [before.lab.emulated(None)(feeds) for feeds in (*FEEDS, MORE)]
    opened = open_by(road, tmp_path, monkeypatch)
    assert opened.runnable(opened.original).weights is not None, "else nothing is tried"
    found = [opened.lab.native()(feeds) for feeds in (*FEEDS, MORE)]
    found += [opened.lab.emulated(None)(feeds) for feeds in (*FEEDS, MORE)]
    for wanted, answers in zip(expected, found, strict=True):
        assert wanted.keys() == answers.keys()
        for name in wanted:
            assert is_same(wanted[name], answers[name]), name


@pytest.mark.parametrize("road", ROADS)
def test_the_reference_evaluator_gets_the_weights(road: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It steps in where ONNX Runtime fails, and reads weights in memory alone."""
    model = helper.make_model(
        helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value("x")], [value("y")], [
            tensor(matrix(), "w")]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)  # fmt: skip
    opened = open_by(road, tmp_path, monkeypatch, model)
    ready = opened.runnable(opened.original)
    held = session.native_session(model, session.Engine.REFERENCE).run({"x": FEEDS[0]["x"]})
    found = session.native_session(ready.model, session.Engine.REFERENCE, ready.weights).run({"x": FEEDS[0]["x"]})
    assert is_same(held["y"], found["y"])


def _answers_of(model: Any) -> list[Any]:
    data = [*FEEDS]
    return [
        mezzo.ranges(model, data),
        mezzo.compare(model, mezzo.convert(MODEL, exclude=["Loop*"]).model, data),
        mezzo.sensitivity(model, data, max_runs=6),
        mezzo.convert(model, data=data).plan.edits,
        mezzo.convert(model, data=data, to="int8", correct="none").plan.quantized,
        mezzo.sensitivity(model, data, to="int8", max_runs=3),
        mezzo.sensitivity(model, data, to="int8", calibrator="none", max_runs=3),
    ]


@cache
def _answers_in_memory() -> list[Any]:
    return _answers_of(MODEL)


@pytest.mark.parametrize("road", ROADS)
def test_verbs_say_the_same(road: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = _answers_in_memory()
    opened = open_by(road, tmp_path, monkeypatch)
    source = opened.path or MODEL
    for wanted, found in zip(expected, _answers_of(source), strict=True):
        assert _without_names(wanted) == _without_names(found).replace(str(source), "")


def _without_names(answer: Any) -> str:
    return re.sub("'?the (model|reference)'?", "", repr(answer))


@settings(max_examples=swept(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seeds())
def test_any_assignment_of_a_random_model_runs_the_same(in_files: None, pair: tuple[int, int]) -> None:
    """Bodies, functions, Constants and shared weights of random graphs, some nodes low, one after the other."""
    rng = random.Random(pair[0])
    model = random_model(rng, pair[1])
    feeds = random_feeds(model, rng)
    formats = (DType.FLOAT16, DType.BFLOAT16)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "model.onnx")
        onnx.save(model, path)
        opened = open_model(path)
        reading = opened.read(DType.FLOAT16)
        chosen = {number: rng.choice(formats) for number in operators(reading) if rng.random() < 0.6}
        limits = {v: 1000.0 for v in range(len(reading.graph.values)) if rng.random() < 0.2}
        mapped = OnnxEmulator(opened, reading, formats, limits=limits, settings=JUDGING)
        found = [mapped.run(feeds, low) for low in (chosen, {}, chosen)]
        patch.setattr(runnable_model, "MAPPED_FROM", 1 << 60)
        held = OnnxEmulator(opened, opened.read(DType.FLOAT16), formats, limits=limits, settings=JUDGING)
        expected = [held.run(feeds, low) for low in (chosen, {}, chosen)]
    for wanted, answers in zip(expected, found, strict=True):
        assert all(is_same(wanted[name], answers[name]) for name in wanted), f"seed {pair}"


def test_a_model_and_what_it_is_converted_to_are_run_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a weight's bytes are no reason to sum in another order."""
    open_by("external", tmp_path, monkeypatch)
    mezzo.convert(tmp_path / "model.onnx", tmp_path / "low.onnx")
    both = [open_model(tmp_path / name) for name in ("model.onnx", "low.onnx")]
    numbers = [sum(blob.elements for blob in opened.source.blobs.blobs) for opened in both]
    assert both[1].size_bytes < 0.7 * both[0].size_bytes
    assert max(numbers) < 1.3 * min(numbers), "weights that some read in FP32 are there twice"
    for least, is_mapped in ((min(numbers), True), (max(numbers) + 1, False)):
        monkeypatch.setattr(runnable_model, "MAPPED_FROM", least)
        assert [opened.runnable(opened.original).weights is not None for opened in both] == [is_mapped] * 2


# -- once, and in files -----------------------------------------------------------------------------------------------


def test_a_weight_is_rounded_once_for_all_who_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_by("external", tmp_path, monkeypatch)
    read: list[int] = []
    chunks = Blobs.read_chunks

    def counted(self: Blobs, blob: Any, buffers: int = 1) -> Any:
        read.append(blob.size_bytes)
        return chunks(self, blob, buffers)

    def emulator() -> OnnxEmulator:
        return OnnxEmulator(opened, opened.read(DType.FLOAT16), [DType.FLOAT16])

    first = emulator()
    monkeypatch.setattr(Blobs, "read_chunks", counted)
    second = emulator()
    large = [size for size in read if size >= 4 * SIDE * SIDE]
    assert not large, "the first emulator has rounded all of them"
    assert is_same(first.run(FEEDS[0], {})["y"], second.run(FEEDS[0], {})["y"])


def test_what_was_tried_leaves_the_disk_with_the_last_who_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_by("external", tmp_path, monkeypatch)
    shaken = opened.runnable(opened.original).with_moved(Shaker().shake)
    assert shaken.weights is not None
    held = len(opened.source.weights._passing_spill._extent or ()), len(shaken.weights.moved)
    assert held[0] and held[1], "large weights were written"
    opened.source.weights._passing_spill._file = opened.source.weights._passing_spill._extent = None
    inodes = _open_temporary_files()
    del shaken
    assert len(_open_temporary_files()) < len(inodes)


def _open_temporary_files() -> list[str]:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("only Linux says which files are mapped")
    return [line for line in maps.read_text().splitlines() if tempfile.gettempdir() in line and "deleted" in line]


def test_temporary_files_have_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is left behind, however the process ends."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    opened = open_by("streamed", tmp_path, monkeypatch)
    emulator = OnnxEmulator(opened, opened.read(DType.FLOAT16), [DType.FLOAT16])
    assert emulator.run(FEEDS[0], {}) and not list(folder.iterdir())


def test_weights_take_no_memory() -> None:
    """A model of 400 MB is run in true rounding, under an assignment and as it is, in much less of its own."""
    done = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, check=True)
    grown_mb = int(done.stdout.split()[-1])
    assert grown_mb < 150, f"{grown_mb} MB for weights of 400 MB"


_LARGE = """
import sys, tempfile
from pathlib import Path
if not sys.platform.startswith("linux"):
    print(0)
    sys.exit()
import numpy as np, onnx
from onnx import TensorProto, helper
import mezzo
from mezzo.formats.quantization import Quantization
from mezzo.formats.dtypes import DType
from mezzo.onnx.opening import open_model
from mezzo.onnx.emulate.switch import OnnxEmulator

def private_kb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

N = 5000
with tempfile.TemporaryDirectory() as folder:
    with open(Path(folder, "w"), "wb") as file:
        for number in range(4):
            for _ in range(10):
                file.write(np.random.default_rng(number).standard_normal((N // 10, N), np.float32).tobytes())
    nodes = [helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"], name=f"n{n}") for n in range(4)]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, N]) for name in ("x0", "x4")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    for n in range(4):
        held = graph.initializer.add(name=f"w{n}", data_type=1, dims=[N, N], data_location=1)
        for key, text in (("location", "w"), ("offset", n * N * N * 4), ("length", N * N * 4)):
            held.external_data.add(key=key, value=str(text))
    path = Path(folder, "m.onnx")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    feeds = {"x0": np.ones((1, N), np.float32)}
    before = private_kb()
    opened = open_model(path)
    native = opened.lab.native()
    emulator = OnnxEmulator(opened, opened.read(DType.FLOAT16), [DType.FLOAT16])
    native(feeds)
    low = {node.id: DType.FLOAT16 for node in emulator._graph.nodes if node.name.startswith("n")}
    emulator.run(feeds, {})
    emulator.run(feeds, low)
    print((private_kb() - before) // 1024)
"""


# -- numbers in pieces ------------------------------------------------------------------------------------------------


def marked(array: np.ndarray) -> tuple[weights.Weights, onnx.TensorProto]:
    """A marked tensor of an array of several pieces, and what gives its numbers."""
    source = files.from_proto(
        helper.make_model(helper.make_graph([], "g", [], [], [tensor(array, "w")]), ir_version=8)
    )  # fmt: skip
    assert array.nbytes > 2 * CHUNK_BYTES, "the weight comes in pieces"
    return source.weights, source.model.graph.initializer[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("low", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2])
def test_rounded_pieces_are_the_whole_rounded(low: DType, seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = (rng.standard_normal((733, 1013)) * 10.0 ** rng.integers(-8, 6, (733, 1013))).astype(np.float32)
    array.reshape(-1)[rng.integers(0, array.size, 9)] = [np.inf, -np.inf, np.nan, 65520, -65520, 1e38, 448, 464, 0]
    held, one = marked(array)
    limit = None if seed % 2 else float(ml_dtypes.finfo(STORAGE[low]).max)
    found = held.array(mark_rounded(one, low, limit, "rounded"))
    assert is_same(found, round_through(array, low, limit)), f"seed {seed}"
    again = held.array(mark_rounded(mark_rounded(one, low, limit, "a"), DType.BFLOAT16, None, "b"))
    assert is_same(again, round_through(found, DType.BFLOAT16)), f"seed {seed}"


@pytest.mark.parametrize("limit", [None, 65504.0])
def test_a_widened_result_holds_what_is_written_of_it(limit: float | None) -> None:
    array = np.random.default_rng(2).standard_normal((733, 1013)).astype(np.float32)
    array[0, :4] = [1e9, -1e9, np.inf, 65519]
    held, one = marked(array)
    held.blobs.retarget(one, DType.FLOAT16, limit)
    written = np.concatenate([chunk.copy() for chunk in held.blobs.chunks(one)]).reshape(array.shape)
    assert written.dtype == np.float16 and bool(np.isfinite(written[0, :2]).all()) is (limit is not None)
    assert is_same(held.array(mark_widened(one)), written.astype(np.float32))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", [DType.INT8, DType.UINT8, DType.FLOAT8E4M3FN])
def test_quantized_pieces_are_the_whole_quantized(dtype: DType, axis: int | None) -> None:
    rng = np.random.default_rng(3)
    array = rng.standard_normal((733, 1013)).astype(np.float32)
    count = 1 if axis is None else array.shape[axis]
    how = Quantization(
        dtype=dtype,
        scales=tuple(np.float32(rng.uniform(0.001, 0.1, count)).tolist()),
        zero_points=tuple(rng.integers(0, 9, count).tolist()) if dtype is DType.UINT8 else (0,) * count,
        axis=axis,
    )
    held, one = marked(array)
    payload = payload_of(how, array.shape, "w")
    steps = payload.quantize(array.reshape(-1)).reshape(array.shape)
    found = held.array(mark_quantized(one, payload, dtype, "steps"))
    assert found.dtype == steps.dtype and found.tobytes() == steps.tobytes()
    shape = [-1 if place == axis else 1 for place in range(2)] if axis is not None else [1, 1]
    zeros, scales = np.array(how.zero_points, np.float64), np.array(how.scales, np.float32)
    expected = (steps.astype(np.float64) - zeros.reshape(shape)).astype(np.float32) * scales.reshape(shape)
    assert is_same(held.array(mark_quantized(one, payload, DType.FLOAT32, "floats")), expected)


def test_shaking_in_pieces_is_shaking_as_a_whole() -> None:
    numbers = RNG.standard_normal(300_001).astype(np.float32)
    for dtype in (np.float32, np.float64):
        values, shaker = numbers.astype(dtype), Shaker()
        pieces = [shaker.shake(values[start : start + 65536]) for start in range(0, len(values), 65536)]
        assert is_same(np.concatenate(pieces), Shaker().shake(values)), f"seed 11, {dtype}"


def test_moved_weights_are_those_of_the_model_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_model(MODEL)
    expected = before.lab.subject().moved(Shaker().shake, 1 << 30)(FEEDS[0])
    opened = open_by("external", tmp_path, monkeypatch)
    found = opened.lab.subject().moved(Shaker().shake, 1 << 30)(FEEDS[0])
    assert is_same(expected["y"], found["y"])
    assert not is_same(expected["y"], before.lab.native()(FEEDS[0])["y"]), "weights moved"
    kept = opened.lab.subject().moved(Shaker().shake, 1000)(FEEDS[0])
    assert is_same(kept["y"], before.lab.native()(FEEDS[0])["y"]), "too many to be moved"


# -- what may go wrong ------------------------------------------------------------------------------------------------


def test_a_kernel_that_wants_fixed_weights_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_by("external", tmp_path, monkeypatch)
    expected = opened.lab.native()(FEEDS[0])
    load, tried = session.load_runtime, []

    def picky(model: onnx.ModelProto, settings: SessionSettings) -> Any:
        tried.append(len(model.graph.input))
        if any(port.name == "shared" for port in model.graph.input):
            raise RuntimeError("the weight must be a constant initializer")
        return load(model, settings)

    monkeypatch.setattr(session, "load_runtime", picky)
    assert is_same(opened.lab.native()(FEEDS[0])["y"], expected["y"])
    assert len(tried) == 2


def test_a_file_that_was_cut_is_told_before_it_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_by("aligned", tmp_path, monkeypatch)
    with (tmp_path / "w.bin").open("r+b") as file:
        file.truncate(5000)
    with pytest.raises(ModelError, match=r"w\.bin' became shorter while it was read; get it again"):
        opened.lab.native()


def test_a_full_disk_is_told_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_by("streamed", tmp_path, monkeypatch)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(weights.tempfile, "TemporaryFile", full)
    with pytest.raises(InputError, match=r"^cannot write \d+ bytes of weights to the temporary folder '.*': No space"):
        opened.lab.native()


def test_functions_of_another_opset_are_inlined_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX's converter works on weights in memory alone."""
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.functions[0].opset_import[0].version = 16
    opened = open_by("memory", tmp_path, monkeypatch, model)
    assert opened.runnable(opened.original).weights is None
