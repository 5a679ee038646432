"""Weights in blocks: as DequantizeLinear reads them, whole or in pieces, in memory or on their way to a file."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.reference
import onnxruntime as ort
import pytest
from onnx import helper
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.plans import Plan
from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockForm, BlockStorage
from mezzo.formats.dtypes import DType
from mezzo.io.planfile import load_plan
from mezzo.onnx.files import block_payloads
from mezzo.onnx.files.block_payloads import BlockPart, block_payload_of, in_units, read_block_payload
from mezzo.onnx.schema.types import TO_ONNX

F16, F32 = DType.FLOAT16, DType.FLOAT32


def drawn_rows(rng: random.Random) -> BlockStorage:
    """Storage of a matrix of any kind that operators on integers read."""
    return replace(drawn(rng, (1, 1)), block=rng.choice([16, 32]), form=BlockForm.FUSED)


def drawn(rng: random.Random, shape: tuple[int, ...]) -> BlockStorage:
    """Storage of any kind, with blocks that divide the axis, do not, or pass it."""
    return BlockStorage(
        bits=rng.choice([4, 8]), block=rng.choice([1, 2, 3, 4, 16, 32, 100]), axis=rng.randrange(len(shape)),
        is_symmetric=rng.random() < 0.5, scale_dtype=rng.choice([F32, F16]),
    )  # fmt: skip


def weights(rng: random.Random, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of several sizes, with blocks of zeros and of one sign among them."""
    generator = np.random.default_rng(rng.randrange(1 << 32))
    numbers = generator.standard_normal(shape) * np.exp(generator.uniform(-6, 3, shape))
    numbers[generator.random(shape) < 0.2] = 0.0
    return np.float32(np.abs(numbers) if rng.random() < 0.3 else numbers)


def plan_with(model: onnx.ModelProto, tmp_path: Path, storages: dict[str, BlockStorage], **options: str) -> Plan:
    """A plan of the model, with these weights in blocks, as a file says it."""
    plan = mezzo.plan(model, **{"to": "fp16", **options})
    mezzo.save_plan(plan, tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    document["in_blocks"] = {
        name: {
            "bits": s.bits, "block": s.block, "axis": s.axis, "symmetric": s.is_symmetric,
            "scale_dtype": s.scale_dtype.value, "rounding": s.rounding, "form": s.form.value,
        }
        for name, s in storages.items()
    }  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(document))
    return load_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("seed", range(swept(60)))
def test_parts_are_read_as_the_floats_say(seed: int) -> None:
    """ONNX Runtime's DequantizeLinear of integers, scales and zero points gives the part FLOATS, bit for bit."""
    rng = random.Random(seed)
    shape = (2, *(rng.randrange(1, 40) for _ in range(rng.randrange(1, 3))))
    storage, numbers = drawn(rng, shape), weights(rng, shape)
    if np.prod(storage.blocks_shape(shape)) == 1:
        pytest.skip("ONNX Runtime takes no block_size with a single scale, so files have none then")
    part = {part: block_payload_of(storage, shape, part, "w") for part in set(BlockPart) - {BlockPart.TABLE}}
    tensors = []
    for name in (BlockPart.INTEGERS, BlockPart.SCALES, BlockPart.ZERO_POINTS):
        data_type = TO_ONNX[part[name].dtype]
        raw = part[name].convert(numbers.reshape(-1)).tobytes()
        tensors.append(helper.make_tensor(name.value, data_type, part[name].part_shape, raw, raw=True))
    node = helper.make_node(
        "DequantizeLinear", [tensor.name for tensor in tensors], ["y"], axis=storage.axis, block_size=storage.block
    )
    kind = TO_ONNX[storage.scale_dtype]
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", kind, shape)], tensors)
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    expected = part[BlockPart.FLOATS].convert(numbers.reshape(-1)).reshape(shape)
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(np.float32(session.run(None, {})[0]), expected)


@pytest.mark.parametrize("seed", range(swept(40)))
def test_pieces_are_as_the_whole(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.randrange(1, 30) for _ in range(rng.randrange(1, 4)))
    storage, numbers = drawn(rng, shape), weights(rng, shape).reshape(-1)
    cuts = sorted(rng.randrange(numbers.size + 1) for _ in range(rng.randrange(8)))
    for part in set(BlockPart) - {BlockPart.TABLE}:
        payload = block_payload_of(storage, shape, part, "w")
        assert read_block_payload(payload.to_text()) == payload
        pieces = list(in_units(np.split(numbers, cuts), payload.unit))
        np.testing.assert_array_equal(np.concatenate(pieces), numbers)
        joined = np.concatenate([*payload.join(payload.convert(piece) for piece in pieces)])
        np.testing.assert_array_equal(joined, payload.convert(numbers))


def unpacked(row_bytes: np.ndarray, bits: int) -> np.ndarray:
    """The integers in rows of bytes."""
    if bits == 8:
        return np.int32(row_bytes)
    return np.int32(np.stack([row_bytes & 0xF, row_bytes >> 4], axis=-1).reshape(len(row_bytes), -1))


@pytest.mark.parametrize("seed", range(swept(60)))
def test_rows_hold_what_the_floats_say_whole_or_in_pieces(seed: int) -> None:
    rng = random.Random(seed)
    storage, shape = drawn_rows(rng), (rng.randrange(1, 80), rng.randrange(1, 80))
    block, bits, axis = storage.block, storage.bits, storage.axis
    length, rows, numbers = shape[axis], shape[1 - axis], weights(rng, shape).reshape(-1)
    cuts = sorted(rng.randrange(numbers.size + 1) for _ in range(rng.randrange(8)))
    held = {}
    for part in BlockPart:
        if part is BlockPart.TABLE and (axis == 0 or length * bits % 8):
            continue
        payload = block_payload_of(storage, shape, part, "w")
        assert read_block_payload(payload.to_text()) == payload
        pieces = in_units(np.split(numbers, cuts), payload.unit)
        joined = np.concatenate([*payload.join(payload.convert(piece) for piece in pieces)])
        np.testing.assert_array_equal(joined, payload.convert(numbers))
        held[part] = joined.reshape(payload.part_shape)
    blocks = -(-length // block)
    integers = unpacked(held[BlockPart.INTEGERS].reshape(rows, -1), bits)
    zeros = unpacked(held[BlockPart.ZERO_POINTS], bits)[:, :blocks].repeat(block, axis=1)
    scales = np.float32(held[BlockPart.SCALES]).repeat(block, axis=1)
    floats = np.float32(integers - zeros) * scales
    expected = held[BlockPart.FLOATS] if axis else held[BlockPart.FLOATS].T
    np.testing.assert_array_equal(floats[:, :length], expected)
    np.testing.assert_array_equal(integers[:, length:], zeros[:, length:])
    assert not storage.is_symmetric or (zeros == 2 ** (bits - 1)).all()
    if BlockPart.TABLE in held:
        np.testing.assert_array_equal(unpacked(held[BlockPart.TABLE], bits)[:, :length], integers[:, :length])


@pytest.mark.parametrize("seed", range(swept(30)))
def test_error_is_half_a_step_at_most(seed: int) -> None:
    rng = random.Random(seed)
    shape = (rng.randrange(1, 50), rng.randrange(1, 20))
    storage, numbers = drawn(rng, shape), weights(rng, shape)
    flat = numbers.reshape(-1)
    floats = block_payload_of(storage, shape, BlockPart.FLOATS, "w").convert(flat).reshape(shape)
    scales = np.float64(block_payload_of(storage, shape, BlockPart.SCALES, "w").convert(flat))
    scales = scales.reshape(storage.blocks_shape(shape)).repeat(storage.block, axis=storage.axis)
    steps = np.take(scales, range(shape[storage.axis]), axis=storage.axis)
    # Half a step; as much again where the range's end moves with its zero point or a rounded scale; and the product's
    # own rounding, eps of the scales' format.
    eps = 2**-10 if storage.scale_dtype is F16 else 2**-23
    assert (np.abs(floats - numbers) <= steps * (1 + 16 * eps * 2**storage.bits) + 2 * eps * np.abs(numbers)).all()


@pytest.mark.parametrize("seed", range(swept(40)))
def test_replayed_plan_computes_what_its_emulation_says(tmp_path: Path, seed: int) -> None:
    """Of random models: the file is valid, holds the integers, and runs bit for bit as `emulate` runs the plan."""
    rng = random.Random(seed)
    model = random_model(rng, 10, opset=21, is_tame=True)
    shapes = {
        f"weight {t.name}": tuple(t.dims)
        for t in model.graph.initializer
        if t.data_type == 1 and t.dims and t.name != "default"
    }
    storages = {name: drawn(rng, shape) for name, shape in shapes.items() if np.prod(shape) and rng.random() < 0.8}
    plan = plan_with(model, tmp_path, storages)
    result = mezzo.convert(model, plan=plan).model
    assert result is not None
    onnx.checker.check_model(result, full_check=True)
    stored = {t.name for t in result.graph.initializer if t.data_type in (2, 3, 21, 22)}
    assert len([name for name in stored if "quantized" in name]) == len(storages)
    feeds = random_feeds(model, rng)
    ran, emulated = mezzo.emulate(result, feeds), mezzo.emulate(model, feeds, plan=plan)
    for name, numbers in ran.items():
        np.testing.assert_array_equal(numbers, emulated[name])


def large_product(tmp_path: Path, *, is_transposed: bool = False) -> Path:
    """A model with a weight of several chunks in a file."""
    numbers = np.random.default_rng(3).standard_normal((1030, 700)).astype(np.float32)
    numbers = np.ascontiguousarray(numbers.T) if is_transposed else numbers
    weight = onnx.numpy_helper.from_array(numbers, "w")
    ports = helper.make_tensor_value_info("x", 1, [None, 1030]), helper.make_tensor_value_info("y", 1, [None, 700])
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="m")
    if is_transposed:
        node = helper.make_node("Gemm", ["x", "w"], ["y"], name="m", transB=1)
    graph = helper.make_graph([node], "g", [ports[0]], [ports[1]], [weight])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("bits", "block", "axis", "form"),
    [
        (4, 32, 0, "dequantize"), (8, 100, 0, "dequantize"), (4, 64, 1, "dequantize"), (4, 7, 1, "dequantize"),
        (4, 32, 0, "fused"), (8, 64, 0, "fused"), (4, 32, 1, "fused"), (8, 128, 1, "fused"),
    ],
)  # fmt: skip
def test_large_weights_are_streamed_as_in_memory(tmp_path: Path, bits: int, block: int, axis: int, form: str) -> None:
    source = large_product(tmp_path, is_transposed=form == "fused" and axis == 1)
    storage = BlockStorage(bits=bits, block=block, axis=axis, scale_dtype=F16, form=BlockForm(form))
    plan = plan_with(onnx.load(source), tmp_path, {"weight w": storage})
    converted = mezzo.convert(source, tmp_path / "streamed.onnx", plan=plan)
    bytes_by_dtype = {share.dtype: share.weights_bytes for share in converted.picture.shares}
    length = 700 if axis and form == "dequantize" else 1030
    expected_bytes = 1030 * 700 * storage.bits_per_element(length) / 8
    assert bytes_by_dtype == {F16: 0, F32: 0, storage.dtype: round(expected_bytes)}
    whole = mezzo.convert(onnx.load(source), plan=plan).model
    streamed = onnx.load(tmp_path / "streamed.onnx")
    assert whole is not None
    for tensor, expected in zip(streamed.graph.initializer, whole.graph.initializer, strict=True):
        read, kept = map(onnx.numpy_helper.to_array, (tensor, expected))
        np.testing.assert_array_equal(read.astype(np.float32), kept.astype(np.float32))
    size = (tmp_path / "streamed.onnx").stat().st_size + sum(p.stat().st_size for p in tmp_path.glob("streamed*.data"))
    assert size < expected_bytes + 4096  # 4 KB for the rest of the file
    feeds = {"x": np.random.default_rng(1).standard_normal((2, 1030)).astype(np.float32)}
    emulated = mezzo.emulate(source, feeds, plan=plan)
    ran = mezzo.emulate(tmp_path / "streamed.onnx", feeds)["y"]
    # Sums of 1,030 products in another order, within FP32's eps each, may round to the next FP16 number.
    np.testing.assert_allclose(ran, emulated["y"], rtol=0, atol=2**-10 * np.abs(ran).max())


@pytest.mark.parametrize(
    ("name", "changes", "opset", "message"),
    [
        ("weight v", {}, 21, "the plan stores 'weight v' in blocks, and it is no weight"),
        ("weight w", {"axis": 2}, 21, "the plan stores 'weight w' in blocks, and it has no axis 2; change its line"),
        ("weight w", {"scale_dtype": DType.BFLOAT16}, 21, "its scales are bf16, and the plan has f32 and f16"),
        ("weight w", {"rounding": "hqq?"}, 21, "'hqq\\?'"),
        ("weight w", {}, 20, "weight 'w' cannot be stored in blocks at opset 20; make the plan for opset 21 or newer"),
    ],
)
def test_what_cannot_be_stored_is_one_line(
    tmp_path: Path, name: str, changes: dict[str, object], opset: int, message: str
) -> None:
    model = onnx.load(large_product(tmp_path))
    model.opset_import[0].version = opset
    storage = BlockStorage(**{"bits": 4, "block": 32, "axis": 0, "scale_dtype": F16, **changes})  # type: ignore[arg-type]
    plan = plan_with(model, tmp_path, {name: storage})
    with pytest.raises((InputError, ContractError), match=message):
        mezzo.convert(model, tmp_path / "never.onnx", plan=plan)
    assert not (tmp_path / "never.onnx").exists()


def test_weight_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    model = onnx.load(large_product(tmp_path))
    numbers = onnx.numpy_helper.to_array(model.graph.initializer[0]).copy()
    numbers[4, 4] = np.nan
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(numbers, "w"))
    plan = plan_with(model, tmp_path, {"weight w": BlockStorage(bits=4, block=32, axis=0, scale_dtype=F16)})
    with pytest.raises(InputError, match="it holds numbers that are not finite"):
        mezzo.convert(model, plan=plan)


_GOOD = RoundedBlocks(np.array([[0, 7]], np.int32), np.ones(1, np.float32), np.zeros(1, np.int32))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"integers": np.zeros((1, 3), np.int32)}, "arrays of other shapes than the blocks'"),
        ({"zero_points": np.zeros(2, np.int32)}, "arrays of other shapes than the blocks'"),
        ({"scales": np.zeros(1, np.float32)}, "scales that are not finite and above 0"),
        ({"scales": np.full(1, np.inf, np.float32)}, "scales that are not finite and above 0"),
        ({"integers": np.array([[0, 8]], np.int32)}, "integers outside -8 to 7"),
        ({"integers": np.array([[-9, 0]], np.int32)}, "integers outside -8 to 7"),
        ({"zero_points": np.array([8], np.int32)}, "integers outside -8 to 7"),
        ({"zero_points": np.array([1], np.int32)}, "zero points other than 0 for symmetric storage"),
    ],
)
def test_what_a_rounding_returns_is_checked(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, np.ndarray], fault: str
) -> None:
    def returns(rounded: RoundedBlocks) -> SimpleNamespace:
        return SimpleNamespace(round=lambda blocks, storage: rounded)

    payload = block_payload_of(BlockStorage(bits=4, block=2, axis=0, is_symmetric=True), (2,), BlockPart.FLOATS, "w")
    monkeypatch.setattr(block_payloads, "rounding", lambda name: returns(_GOOD))
    assert payload.convert(np.ones(2, np.float32)).tolist() == [0.0, 7.0]
    monkeypatch.setattr(block_payloads, "rounding", lambda name: returns(_GOOD._replace(**changes)))
    with pytest.raises(ContractError, match=f"^rounding 'nearest' returned {re.escape(fault)}; mend it$"):
        payload.convert(np.ones(2, np.float32))


@pytest.mark.parametrize("shape", [(), (3,), (3, 0)])
def test_storage_that_does_not_fit_a_shape_is_refused(shape: tuple[int, ...]) -> None:
    storage = BlockStorage(bits=4, block=2, axis=1, rounding="other")
    whole = block_payload_of(storage, (3, 2), BlockPart.SCALES, "w")
    assert read_block_payload(whole.to_text()) == whole
    message = f"weight 'w' cannot be stored in blocks along axis 1: its shape is {[*shape]}; name an axis of it"
    with pytest.raises(ContractError, match=f"^{re.escape(message)}$"):
        block_payload_of(storage, shape, BlockPart.SCALES, "w")


def test_bits_of_an_element_hold_its_share_of_the_block() -> None:
    storage = BlockStorage(bits=4, block=32, axis=0, scale_dtype=F16)
    assert storage.bits_per_element(64) == 4 + 20 / 32
    assert storage.bits_per_element(33) == 4 + 2 * 20 / 33  # a second block for one element
    symmetric = BlockStorage(bits=8, block=16, axis=0, is_symmetric=True)
    assert symmetric.bits_per_element(16) == 8 + 32 / 16
    assert (storage.dtype, symmetric.dtype, storage.rounding) == (DType.UINT4, DType.INT8, "nearest")
