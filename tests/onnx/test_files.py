"""Models go through files and memory bit by bit, and results appear whole or not at all."""

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mezzo
from mezzo.common.errors import ContractError, InputError
from mezzo.formats.dtypes import DType
from mezzo.onnx.files import files, save, wire
from mezzo.onnx.files.files import ModelSource, from_proto, load
from mezzo.onnx.files.save import materialize, without_payloads

RNG = np.random.default_rng(7)
LARGE = RNG.standard_normal((600, 700)).astype(np.float32)
MEDIUM = RNG.standard_normal((40, 50)).astype(np.float32)


def make_model() -> onnx.ModelProto:
    """A model with tensors in every place a tensor can be, in several encodings."""
    bfloat16 = TensorProto(name="brain", data_type=TensorProto.BFLOAT16, dims=[3000])
    bfloat16.raw_data = RNG.standard_normal(3000).astype(ml_dtypes.bfloat16).tobytes()
    packed = TensorProto(name="packed", data_type=TensorProto.INT4, dims=[10001], raw_data=bytes(5001))
    floats = helper.make_tensor("floats", TensorProto.FLOAT, [2000], MEDIUM.ravel().tolist())
    doubles = helper.make_tensor("doubles", TensorProto.DOUBLE, [2000], MEDIUM.ravel().tolist())
    longs = helper.make_tensor("longs", TensorProto.INT64, [2000], range(2000))
    halves = helper.make_tensor("halves", TensorProto.FLOAT16, [3000], np.linspace(-9, 9, 3000))
    strings = helper.make_tensor("strings", TensorProto.STRING, [2], [b"a" * 5000, b"b"])
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(MEDIUM.ravel(), "sparse"),
        numpy_helper.from_array(np.arange(2000), "sparse_at"),
        [9000],
    )
    body = helper.make_graph(
        [helper.make_node("Constant", [], ["deep"], value=numpy_helper.from_array(MEDIUM, "deep_value"))],
        "body",
        [],
        [helper.make_tensor_value_info("deep", TensorProto.FLOAT, [40, 50])],
        [numpy_helper.from_array(MEDIUM + 1, "in_body")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
        helper.make_node("F", ["y"], ["z"], domain="own"),
    ]
    function = helper.make_function(
        "own",
        "F",
        ["a"],
        ["b"],
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(MEDIUM * 2, "k_value")),
            helper.make_node("Add", ["a", "k"], ["b"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    initializers = [numpy_helper.from_array(LARGE, "large"), bfloat16, packed, floats, doubles, longs, halves, strings]
    initializers += [numpy_helper.from_array(np.float32(0.5), "scalar"), numpy_helper.from_array(MEDIUM, "medium")]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [40, 50])],
        initializers,
        sparse_initializer=[sparse],
        doc_string="a text, its location: here",
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)


def raw(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with every payload as raw bytes, as a streamed one is written."""

    def replace(start: int, stop: int) -> wire.Rope:
        tensor = TensorProto.FromString(data[start:stop])
        if tensor.data_type == TensorProto.INT4:
            tensor.ClearField("data_location")
        elif tensor.data_type != TensorProto.STRING:
            tensor = numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name)
        rope = wire.Rope()
        rope.add_bytes(tensor.SerializeToString())
        return rope

    data = model.SerializeToString()
    source = wire.MemoryBytes(data)
    return onnx.ModelProto.FromString(wire.join(source, wire.rewrite(source, lambda *_: True, replace)))


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if "mezzo" in path.name)


def by_name(source: ModelSource, name: str) -> onnx.TensorProto:
    return next(tensor for tensor in source.model.graph.initializer if tensor.name == name)


@pytest.fixture
def model() -> onnx.ModelProto:
    return make_model()


@pytest.fixture(params=["small", "streamed", "external", "memory"])
def source(request: pytest.FixtureRequest, model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The same model, opened along each road."""
    folder = tmp_path / "in"
    folder.mkdir()
    path = folder / "model.onnx"
    if request.param == "memory":
        return from_proto(model)
    if request.param == "streamed":
        monkeypatch.setattr(files, "_SMALL_BYTES", 0)
    if request.param == "external":
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        onnx.save(copy, path, save_as_external_data=True, location="w.bin", size_threshold=0, convert_attribute=True)
    else:
        onnx.save(model, path)
    return load(path)


def test_descent_table_matches_the_installed_onnx() -> None:
    holders = {message.value: message for message in wire.Message}
    for name, message in holders.items():
        found = {
            field.number: holders[field.message_type.name]
            for field in getattr(onnx, name, None).DESCRIPTOR.fields
            if field.message_type is not None and field.message_type.name in holders
        }
        assert found == dict(wire.NESTED.get(message, {})), name


def test_every_road_keeps_every_bit(source: ModelSource, model: onnx.ModelProto, tmp_path: Path) -> None:
    assert raw(materialize(source.model, source.blobs)) == raw(model)
    for is_external in (False, True):
        path = tmp_path / f"{is_external}.onnx"
        save.save(source.model, replace(source, is_external=is_external), path)
        assert raw(onnx.load(path)) == raw(model)
        assert path.with_name(f"{path.name}.data").exists() == is_external
    assert leftovers(tmp_path) == []


def test_large_payloads_are_not_in_the_skeleton(source: ModelSource, request: pytest.FixtureRequest) -> None:
    is_small = "small" in request.node.name
    assert (source.model.ByteSize() > LARGE.nbytes) == is_small
    assert (len(source.blobs) == 0) == is_small
    assert source.size_bytes > LARGE.nbytes


def test_model_in_memory_is_never_changed(model: onnx.ModelProto) -> None:
    before = model.SerializeToString(deterministic=True)
    source = from_proto(model)
    for tensor in source.model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            source.blobs.retarget(tensor, DType.FLOAT16)
    materialize(source.model, source.blobs)
    assert model.SerializeToString(deterministic=True) == before


def test_arrays_and_chunks_give_the_payload(source: ModelSource) -> None:
    assert np.array_equal(source.blobs.array(by_name(source, "large")), LARGE)
    assert np.array_equal(source.blobs.array(by_name(source, "floats")), MEDIUM.ravel())
    assert source.blobs.array(by_name(source, "packed")).shape == (10001,)
    chunks = [chunk.copy() for chunk in source.blobs.chunks(by_name(source, "large"))]
    assert np.array_equal(np.concatenate(chunks), LARGE.ravel())
    halves = np.concatenate([chunk.copy() for chunk in source.blobs.chunks(by_name(source, "halves"))])
    assert np.array_equal(halves, np.linspace(-9, 9, 3000).astype(np.float16))


def test_one_payload_is_stored_in_two_precisions(source: ModelSource, tmp_path: Path) -> None:
    result = onnx.ModelProto()
    result.CopyFrom(source.model)
    low = result.graph.initializer.add()
    low.CopyFrom(by_name(source, "large"))
    low.name = "large_low"
    source.blobs.retarget(low, DType.BFLOAT16)
    save.save(result, source, tmp_path / "out.onnx")
    stored = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "out.onnx").graph.initializer
    }
    assert np.array_equal(stored["large"], LARGE)
    assert stored["large_low"].tobytes() == LARGE.astype(ml_dtypes.bfloat16).tobytes()


def test_external_result_is_aligned_shared_and_loads_in_onnx_runtime(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    weight = numpy_helper.from_array(np.eye(600, dtype=np.float32), "a")
    twin = numpy_helper.from_array(np.eye(600, dtype=np.float32), "b")
    nodes = [helper.make_node("MatMul", ["x", "a"], ["m"]), helper.make_node("MatMul", ["m", "b"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 600]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [weight, twin])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10),
        tmp_path / "in.onnx",
        save_as_external_data=True,
        location="in.bin",
    )
    shared = onnx.load(tmp_path / "in.onnx", load_external_data=False)
    shared.graph.initializer[1].external_data[1].value = shared.graph.initializer[0].external_data[1].value
    (tmp_path / "in.onnx").write_bytes(shared.SerializeToString())
    source = load(tmp_path / "in.onnx")
    saved = save.save(source.model, source, tmp_path / "out.onnx")
    assert saved.paths == (tmp_path / "out.onnx", tmp_path / "out.onnx.data")
    assert (tmp_path / "out.onnx.data").stat().st_size == 600 * 600 * 4
    x = np.ones((2, 600), np.float32)
    session = ort.InferenceSession(tmp_path / "out.onnx", providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": x})[0], x)


@pytest.mark.parametrize(("named", "wanted"), [("m.onnx_data", "out.onnx_data"), ("weights.bin", "out.onnx.data")])
def test_a_results_data_is_named_as_the_sources(tmp_path: Path, named: str, wanted: str) -> None:
    """Hugging Face's tools look for model.onnx_data beside model.onnx."""
    weight = numpy_helper.from_array(np.ones((600, 600), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 600])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 600])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location=named)
    mezzo.convert(tmp_path / "m.onnx", tmp_path / "out.onnx")
    assert sorted(os.listdir(tmp_path)) == sorted(["m.onnx", named, "out.onnx", wanted])


def test_checker_accepts_a_skeleton_without_its_payloads(source: ModelSource) -> None:
    with without_payloads(source.model, source.blobs) as path:
        onnx.checker.check_model(path, full_check=True)
    assert not os.path.exists(path)


def test_retargeted_scalar_is_rounded_at_once() -> None:
    source = from_proto(make_model())
    scalar = by_name(source, "scalar")
    source.blobs.retarget(scalar, DType.FLOAT16)
    assert scalar.raw_data == struct.pack("<e", 0.5)
    assert scalar.data_type == TensorProto.FLOAT16


def test_input_is_only_overwritten_when_asked(source: ModelSource, model: onnx.ModelProto, tmp_path: Path) -> None:
    if source.path is None:
        pytest.skip("a model in memory has no file")
    before = {path.name: path.read_bytes() for path in source.path.parent.iterdir()}
    for file in source.files:
        with pytest.raises(InputError, match="belongs to the input model; name another file, or pass overwrite"):
            save.save(source.model, source, file.path)
    link = tmp_path / "link.onnx"
    link.symlink_to(source.path)
    with pytest.raises(InputError, match="belongs to the input"):
        save.save(source.model, source, link)
    assert {path.name: path.read_bytes() for path in source.path.parent.iterdir()} == before
    save.save(source.model, source, source.path, overwrite=True)
    assert raw(onnx.load(source.path)) == raw(model)


def test_own_external_file_can_be_replaced_while_it_is_read(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    first = replace(from_proto(model), is_external=True)
    save.save(first.model, first, path)
    again = load(path)
    with pytest.raises(InputError, match="belongs to the input"):
        save.save(again.model, again, path)
    again.blobs.retarget(by_name(again, "large"), DType.FLOAT16)
    save.save(again.model, again, path, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]
    stored = next(tensor for tensor in onnx.load(path).graph.initializer if tensor.name == "large")
    assert np.array_equal(numpy_helper.to_array(stored), LARGE.astype(np.float16))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("bug")])
@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_failing_move_changes_nothing(
    error: BaseException, fails_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.onnx"
    path.write_bytes(b"old model")
    (tmp_path / "out.onnx.data").write_bytes(b"old data")
    source = replace(from_proto(make_model()), is_external=True)
    move = os.replace
    calls = iter(range(100))

    def fail(old: object, new: object) -> None:
        if next(calls) == fails_at:
            raise error
        move(old, new)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError if isinstance(error, OSError) else type(error)):
        save.save(source.model, source, path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "out.onnx": b"old model",
        "out.onnx.data": b"old data",
    }


@pytest.mark.parametrize("is_external", [False, True])
def test_failure_while_writing_leaves_no_file(is_external: bool, tmp_path: Path) -> None:
    source = replace(from_proto(make_model()), is_external=is_external)

    def interrupt(done: int, total: int) -> None:
        assert done <= total
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save.save(source.model, source, tmp_path / "out.onnx", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    source = from_proto(make_model())
    seen: list[tuple[int, int]] = []
    saved = save.save(source.model, source, tmp_path / "o.onnx", progress=lambda *step: seen.append(step))
    assert seen == sorted(seen)
    assert seen[-1] == (saved.size_bytes, saved.size_bytes)
    assert (tmp_path / "o.onnx").stat().st_size == saved.size_bytes


def test_places_that_cannot_be_written_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = from_proto(make_model())
    with pytest.raises(InputError, match="is not a folder; make it first"):
        save.save(source.model, source, tmp_path / "missing" / "out.onnx")
    with pytest.raises(InputError, match="it is a folder; name a file"):
        save.save(source.model, source, tmp_path)
    monkeypatch.setattr(save, "MAX_MESSAGE_BYTES", 100_000)
    with pytest.raises(ContractError, match="a model in memory holds 100000; write it to a file"):
        materialize(source.model, source.blobs)
    assert len(save.save(source.model, source, tmp_path / "out.onnx").paths) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is in KiB on Linux only")
def test_memory_is_bounded_by_pieces_not_by_the_model(tmp_path: Path) -> None:
    weights = [numpy_helper.from_array(np.full((2000, 2500), i, np.float32), f"w{i}") for i in range(10)]
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [], weights)), tmp_path / "in.onnx")
    script = (
        "import resource, sys\n"
        "from mezzo.formats.dtypes import DType\n"
        "from mezzo.onnx.files.files import load\n"
        "from mezzo.onnx.files.magnitudes import facts\n"
        "from mezzo.onnx.files.save import save\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "source = load(sys.argv[1])\n"
        "for tensor in source.model.graph.initializer:\n"
        "    facts(tensor, source.blobs)\n"
        "    source.blobs.retarget(tensor, DType.FLOAT16)\n"
        "save(source.model, source, sys.argv[2])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    paths = [str(tmp_path / "in.onnx"), str(tmp_path / "out.onnx")]
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True)
    # 200 MB of weights; pieces of 1 MiB in three buffers, their results and the writer's buffer are under 16 MiB.
    assert int(done.stdout) < 16 * 1024
