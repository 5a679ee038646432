"""Files that are damaged, or made to do harm, are refused with one line, and nothing outside the folder is read."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError, ModelError
from mezzo.formats.dtypes import FLOATING
from mezzo.onnx.edit.opset import upgrade
from mezzo.onnx.files import files, wire
from mezzo.onnx.files.files import ModelSource, from_proto, load
from mezzo.onnx.files.magnitudes import facts
from mezzo.onnx.files.save import materialize, save
from mezzo.onnx.schema.types import FROM_ONNX

WEIGHT = np.arange(6000, dtype=np.float32)


def make_model(*tensors: TensorProto) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        tensors or [numpy_helper.from_array(WEIGHT, "w")],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])


def external(location: str, size: int = 6000, **entries: object) -> onnx.ModelProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return make_model(tensor)


def refusal(call: Callable[[], object], kind: type[InputError] = InputError) -> str:
    """The one line a call is refused with."""
    with pytest.raises(kind) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(path: Path, model: onnx.ModelProto) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(params=["small", "streamed"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Files are read at once or piece by piece, by size; both must refuse the same."""
    if request.param == "streamed":
        monkeypatch.setattr(files, "_SMALL_BYTES", 0)
    return str(request.param)


def use(path: Path) -> ModelSource:
    source = load(path)
    for tensor in source.model.graph.initializer:
        if FROM_ONNX.get(tensor.data_type) in FLOATING:
            facts(tensor, source.blobs)
    materialize(source.model, source.blobs)
    return source


def outcome(path: Path) -> str | None:
    """What a model is refused with, None where it is read."""
    try:
        use(path)
    except InputError as error:
        return str(error)
    return None


def test_files_that_are_no_models(tmp_path: Path, road: str) -> None:
    path = tmp_path / "m.onnx"
    assert refusal(lambda: load(path)) == f"cannot read '{path}': No such file or directory; name an ONNX model file"
    assert (
        refusal(lambda: load(tmp_path))
        == f"'{tmp_path}' is a folder without an .onnx file; name a model, or a folder of models"
    )
    assert "embedded null byte" in refusal(lambda: load("a\0b"))
    path.touch()
    assert refusal(lambda: load(path), ModelError) == f"'{path}' is empty; name an ONNX model file"
    path.write_text("This is a text file, and not a short one.\n" * 10)
    assert refusal(lambda: load(path), ModelError) == f"'{path}' is a text file, not an ONNX model; name the model"
    path.write_bytes(numpy_helper.from_array(WEIGHT, "w").SerializeToString())
    assert "is not an ONNX model, or is damaged: found" in refusal(lambda: load(path), ModelError)
    path.write_bytes(b"\x08\x0a")
    assert refusal(lambda: load(path), ModelError).endswith("found no graph; get the file again")
    path.write_bytes(b"\x3a\x00")
    assert refusal(lambda: load(path), ModelError).endswith("found no ir_version; get the file again")


def test_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(lambda: load(tmp_path / "pipe")).endswith("is a FIFO; name a file")
    path = write(tmp_path / "m.onnx", external("pipe"))
    assert "is a FIFO" in refusal(lambda: load(path), ModelError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_permission(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", make_model())
    path.chmod(0)
    assert "Permission denied" in refusal(lambda: load(path))


def test_every_truncation_is_refused(tmp_path: Path, road: str) -> None:
    data = make_model().SerializeToString()
    path = tmp_path / "m.onnx"
    for size in [*range(1, 60), *range(60, len(data), 997), len(data) - 1]:
        path.write_bytes(data[:size])
        if outcome(path) is None:
            # Cut between two fields: what is left is a smaller model.
            assert onnx.ModelProto.FromString(data[:size]).HasField("graph")


def test_damaged_bytes_give_a_model_or_one_line(tmp_path: Path, road: str) -> None:
    path = tmp_path / "m.onnx"
    data = write(path, make_model(numpy_helper.from_array(WEIGHT, "w"), helper.make_tensor("s", 1, [2], [1.0, 2.0])))
    original = data.read_bytes()
    # The payload is most of the file, so damage goes to the bytes before and after it.
    places = [*range(60), *range(len(original) - 60, len(original))]
    for seed in range(swept(1500)):
        rng = np.random.default_rng(seed)
        damaged = bytearray(original)
        for place in rng.choice(places, rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        assert "\n" not in (outcome(path) or ""), seed


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number of more than 10 bytes at byte 1"),
        (b"\x3a\xff\xff\xff\xff\x07a", "a field at byte 0 that reaches 2147483646 bytes past the end of its message"),
        (b"\x3a\x80", "the end of the data inside a field at byte 0"),
        (b"\x08", "the end of the data inside a field at byte 0"),
        (b"\x0b\x0c", "an unknown wire type 3 at byte 0"),
        (b"\x02\x00", "a field number 0 at byte 0"),
    ],
)
def test_wire_errors_say_what_and_where(data: bytes, found: str, tmp_path: Path, road: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    assert found in refusal(lambda: load(path), ModelError) or road == "small"
    with pytest.raises(wire.WireError) as caught:
        wire.rewrite(wire.MemoryBytes(data), lambda *_: True, lambda *_: None)
    assert str(caught.value) == found


def test_nesting_deeper_than_protobuf_allows(tmp_path: Path, road: str) -> None:
    def nest(number: int, content: bytes) -> bytes:
        return wire.encode_varint(number << 3 | 2) + wire.encode_varint(len(content)) + content

    graph = nest(5, numpy_helper.from_array(WEIGHT).SerializeToString())
    for _ in range(60):
        graph = nest(1, nest(5, nest(6, graph)))
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x0a" + nest(7, graph))
    assert "damaged: found" in refusal(lambda: load(path), ModelError)


@pytest.mark.parametrize(
    ("dims", "found"),
    [
        ([5999], "the data has 24000 bytes, the shape [5999] of f32 needs 23996"),
        ([-1, 6000], "the shape [-1, 6000] has a negative dimension"),
        ([-2, -3000], "the shape [-2, -3000] has a negative dimension"),
        ([1 << 40, 1 << 40], "has more than 2**62 elements"),
        ([1 << 62] * 500, "the shape [4611686018427387904, 4611686018427387904, … 500 dimensions] has more than"),
        ([1 << 40, 0], "the data has 24000 bytes, the shape [1099511627776, 0] of f32 needs 0"),
    ],
)
def test_shapes_that_do_not_fit(dims: list[int], found: str, tmp_path: Path, road: str) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=WEIGHT.tobytes())
    path = write(tmp_path / "m.onnx", make_model(tensor))
    assert found in refusal(lambda: use(path), ModelError)

    def use_in_memory() -> None:
        source = from_proto(make_model(tensor))
        facts(source.model.graph.initializer[0], source.blobs)

    assert found in refusal(use_in_memory, ModelError)


def test_small_tensors_are_checked_when_used() -> None:
    for tensor in (
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=b"\0" * 4),
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[-1, -1], raw_data=b"\0" * 4),
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], float_data=[1.0, 2.0]),
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], raw_data=b"\0" * 3),
        TensorProto(name="w", data_type=99, dims=[1], raw_data=b"\0" * 4),
    ):
        source = from_proto(make_model(tensor))
        assert "tensor 'w'" in refusal(lambda t=source.model.graph.initializer[0], s=source: facts(t, s.blobs))


def test_unknown_element_type(tmp_path: Path) -> None:
    model = external("w.bin")
    model.graph.initializer[0].data_type = 77
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    path = write(tmp_path / "m.onnx", model)
    assert "element type number 77 is unknown; valid are 1 to" in refusal(lambda: load(path), ModelError)


@pytest.mark.parametrize(
    ("location", "found"),
    [
        ("../secret", "outside the model's folder"),
        ("a/../../secret", "outside the model's folder"),
        ("..\\secret", "outside the model's folder"),
        ("/etc/passwd", "it must be a name in the model's folder"),
        ("C:\\secret", "it must be a name in the model's folder"),
        ("\\secret", "it must be a name in the model's folder"),
        ("", "it must be a name in the model's folder"),
        ("a\0b", "it must be a name in the model's folder"),
        (".", "is a folder"),
        ("gone\nnow", "No such file or directory"),
        ("x" * 300, "File name too long"),
    ],
)
@pytest.mark.parametrize("trust", [False, True])
def test_places_outside_the_folder_are_refused_even_when_trusted(
    location: str, found: str, trust: bool, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    (tmp_path / "models" / "a").mkdir(parents=True)
    path = write(tmp_path / "models" / "m.onnx", external(location))
    assert found in refusal(lambda: load(path, trust_external_paths=trust), ModelError)


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ({"offset": -1}, "the offset of its external data is '-1'; it must be a whole number from 0"),
        ({"offset": "1e3"}, "the offset of its external data is '1e3'"),
        ({"offset": "٣"}, "the offset of its external data is"),
        ({"length": "9" * 5000}, "the length of its external data is"),
        ({"offset": 4}, "its data ends at byte 24004 of"),
        ({"offset": 10**18}, "its data ends at byte"),
        ({"length": 100}, "the data has 100 bytes, the shape [6000] of f32 needs 24000"),
    ],
)
def test_ranges_outside_the_external_file(entries: dict[str, object], found: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    path = write(tmp_path / "m.onnx", external("w.bin", **entries))
    assert found in refusal(lambda: load(path), ModelError)


def test_absurd_external_shape_allocates_nothing(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"x")
    path = write(tmp_path / "m.onnx", external("w.bin", size=1 << 50))
    assert "which has 1 bytes; get the file again" in refusal(lambda: load(path), ModelError)


def test_model_hub_cache_opens_only_when_trusted(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    write(blobs / "aaa", external("model.onnx_data"))
    (blobs / "bbb").write_bytes(WEIGHT.tobytes())
    (snapshot / "model.onnx").symlink_to("../../blobs/aaa")
    (snapshot / "model.onnx_data").symlink_to("../../blobs/bbb")
    path = snapshot / "model.onnx"
    message = refusal(lambda: load(path), ModelError)
    assert "'model.onnx_data' is a link out of the model's folder" in message
    assert "trust_external_paths=True" in message
    source = load(path, trust_external_paths=True)
    assert np.array_equal(source.blobs.array(source.model.graph.initializer[0]), WEIGHT)
    assert "belongs to the input" in refusal(lambda: save(source.model, source, blobs / "bbb"))
    save(source.model, source, tmp_path / "out.onnx")
    assert np.array_equal(numpy_helper.to_array(onnx.load(tmp_path / "out.onnx").graph.initializer[0]), WEIGHT)


def test_links_inside_the_folder_open_and_hard_links_need_trust(tmp_path: Path) -> None:
    (tmp_path / "real.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "link.bin").symlink_to("real.bin")
    soft = write(tmp_path / "soft.onnx", external("link.bin"))
    source = load(soft)
    assert np.array_equal(source.blobs.array(source.model.graph.initializer[0]), WEIGHT)
    os.link(tmp_path / "real.bin", tmp_path / "hard.bin")
    hard = write(tmp_path / "hard.onnx", external("hard.bin"))
    assert "'hard.bin' is a hard link" in refusal(lambda: load(hard), ModelError)
    assert load(hard, trust_external_paths=True).is_external


def test_linked_folder_out_of_the_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "w.bin").write_bytes(WEIGHT.tobytes())
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "sub").symlink_to(tmp_path / "outside")
    path = write(tmp_path / "models" / "m.onnx", external("sub/w.bin"))
    assert "is a link out of the model's folder" in refusal(lambda: load(path), ModelError)


def test_model_in_memory_with_external_data_is_refused() -> None:
    message = refusal(lambda: from_proto(external("w.bin")))
    assert message.endswith("but a model in memory has no folder; pass the model's path instead")
    assert "has no graph" in refusal(lambda: from_proto(onnx.ModelProto()), ModelError)


def test_file_that_changes_after_it_was_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    source = load(write(tmp_path / "m.onnx", external("w.bin")))
    source.blobs.close()
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes() + b"x")
    assert "changed while it was in use; read the model again" in refusal(
        lambda: materialize(source.model, source.blobs)
    )
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "w.bin"]


def test_tensor_stored_in_two_parts_cannot_pass_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """protobuf merges a message that occurs twice, so two markers could end up in one tensor."""
    monkeypatch.setattr(files, "_SMALL_BYTES", 0)
    tensor = numpy_helper.from_array(WEIGHT, "w").SerializeToString()
    field = b"\x2a" + wire.encode_varint(len(tensor)) + tensor
    attribute = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR).SerializeToString() + field * 2
    node = helper.make_node("Constant", [], ["k"]).SerializeToString()
    node += b"\x2a" + wire.encode_varint(len(attribute)) + attribute
    graph = make_model().graph.SerializeToString() + b"\x0a" + wire.encode_varint(len(node)) + node
    path = tmp_path / "m.onnx"
    path.write_bytes(struct.pack("BB", 8, 10) + b"\x3a" + wire.encode_varint(len(graph)) + graph)
    source = load(path)
    assert "is stored in two parts" in refusal(lambda: materialize(source.model, source.blobs), ModelError)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", external("w_data.bin"))
    path.write_bytes(path.read_bytes().replace(b"w_data", b"w\xff\xfe\xff\xff\xff"))
    assert "described in bytes that are not UTF-8" in refusal(lambda: load(path), ModelError)
    model = make_model()
    model.graph.name = "graph_name"
    renamed = onnx.ModelProto.FromString(model.SerializeToString().replace(b"graph_name", b"graph_\xff\xff\xff\xff"))
    assert "has a name that is not UTF-8" in refusal(lambda: from_proto(renamed), ModelError)


def test_many_external_files_do_not_use_up_the_open_files(tmp_path: Path) -> None:
    tensors = []
    for number in range(300):
        (tmp_path / f"w{number}").write_bytes(WEIGHT.tobytes())
        tensors.append(external(f"w{number}").graph.initializer[0])
    path = write(tmp_path / "m.onnx", make_model(*tensors))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    source = load(path)
    assert all(np.array_equal(source.blobs.array(tensor), WEIGHT) for tensor in source.model.graph.initializer)
    if before:
        assert len(os.listdir("/proc/self/fd")) - before <= 64
    source.blobs.close()


@pytest.mark.parametrize("domains", [("",), ("", "ai.onnx")])
@pytest.mark.parametrize("version", [-(2**63), -3, 0, onnx.defs.onnx_opset_version() + 1, 2**63 - 1])
def test_opset_that_onnx_does_not_define_is_refused_in_one_line(
    domains: tuple[str, ...], version: int, tmp_path: Path
) -> None:
    model = make_model()
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(domain, 21) for domain in domains)
    model.opset_import[-1].version = version
    path = write(tmp_path / "m.onnx", model)
    newest = onnx.defs.onnx_opset_version()
    update = ", or pip install --upgrade onnx" if version > 0 else ""
    assert refusal(lambda: mezzo.convert(path), ModelError) == (
        f"{str(path)!r} imports opset {version}, and onnx {onnx.__version__} defines opsets 1 to {newest}; export the"
        f" model at one of them{update}"
    )


def test_opset_of_a_function_is_read_as_the_model_s_is() -> None:
    function = helper.make_function("f", "F", ["x"], ["y"], [], [helper.make_opsetid("", 999)])
    model = make_model()
    model.functions.append(function)
    assert "the model imports opset 999" in refusal(lambda: mezzo.convert(model), ModelError)


def test_second_import_of_the_default_domain_is_not_counted_up_from_its_version() -> None:
    """A fuzzer wrote this: from -2^63 to the newest opset no step ends."""
    model = make_model()
    model.opset_import.append(helper.make_opsetid("ai.onnx", -(2**63)))
    assert [entry.version for entry in upgrade(model, 21).model.opset_import] == [21, -(2**63)]
