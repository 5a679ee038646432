"""Which weights are stored in blocks, and how: whole lists over small graphs."""

import dataclasses

import numpy as np
import onnx
import pytest

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan

# One weight of each kind that a plan meets; the small one saves less than a cast costs.
_TEXT = """
<ir_version: 10, opset_import: ["" : 21]>
g (int64[n] ids, float[n, 256] given) =>
  (float[n, 256] y, float[n, 256] z, float[n, 256] w, float[n, 256] t, float[n, 8] few)
<float[300, 256] table, float[256, 256] product, float[256, 256] turned, float[256, 256] shared, float[256, 8] small,
 float[256, 256] scaled>
{
    rows = Gather (table, ids)
    y = MatMul (rows, product)
    t = Gemm <transB = 1> (rows, turned)
    u = Gemm <alpha = 2.0> (given, scaled)
    a = MatMul (given, shared)
    b = MatMul (rows, shared)
    few = MatMul (given, small)
    z = Add (a, b)
    w = Mul (u, given)
}
"""


def _model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(_TEXT)
    for info in [*model.graph.value_info]:
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        size = 1
        for dim in dims:
            size *= dim
        numbers = [((7 * at) % 31 - 15) / 16 for at in range(size)]
        model.graph.initializer.append(onnx.helper.make_tensor(info.name, onnx.TensorProto.FLOAT, dims, numbers))
    del model.graph.value_info[:]
    return model


def _stored(plan: Plan) -> list[str]:
    return [
        f"{name.removeprefix('weight ')}: {storage.bits} bits, blocks of {storage.block} along {storage.axis}"
        + f", {storage.form.value}"
        + (f", level {storage.accuracy_level}" if storage.accuracy_level else "")
        + f", scales {storage.scale_dtype}"
        for name, storage in plan.in_blocks
    ]


def test_schema_takes_every_weight_with_one_reader() -> None:
    assert _stored(mezzo.plan(_model(), to="int4", target="onnx")) == [
        "table: 4 bits, blocks of 32 along 1, dequantize, scales f32",
        "product: 4 bits, blocks of 32 along 0, dequantize, scales f32",
        "turned: 4 bits, blocks of 32 along 1, dequantize, scales f32",
        "scaled: 4 bits, blocks of 32 along 0, dequantize, scales f32",
    ]


def test_fused_form_takes_shared_weights_and_leaves_scaled_products() -> None:
    assert _stored(mezzo.plan(_model(), to="int8w", target="onnxruntime-cpu")) == [
        "table: 8 bits, blocks of 32 along 1, fused, scales f32",
        "product: 8 bits, blocks of 32 along 0, fused, level 4, scales f32",
        "turned: 8 bits, blocks of 32 along 1, fused, level 4, scales f32",
        "shared: 8 bits, blocks of 32 along 0, fused, level 4, scales f32",
    ]


def test_weights_that_are_no_faster_in_blocks_stay_in_floats() -> None:
    """Of ONNX Runtime's CPU; a standard form has no speed."""
    model = onnx.parser.parse_model(_TEXT.replace("256", "128"))
    for info in [*model.graph.value_info]:
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        numbers = np.ones(dims, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, info.name))
    del model.graph.value_info[:]
    plan = mezzo.plan(model, to="int4", target="onnxruntime-cpu")
    assert [name for name, _ in plan.in_blocks] == ["weight table"]
    assert (
        "product: too-small: onnxruntime-cpu is faster with floats in weights of fewer than 65536 elements"
        in _why_floats(plan)
    )
    assert len(mezzo.plan(model, to="int4", target="onnx").in_blocks) == 4


def _table(width: int) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (int64[n] ids) => (float[n, {width}] rows)'
        f" <float[300, {width}] table> {{ rows = Gather (table, ids) }}"
    )
    table = onnx.helper.make_tensor("table", onnx.TensorProto.FLOAT, [300, width], [0.5] * (300 * width))
    model.graph.initializer.append(table)
    return model


def test_kernel_of_whole_blocks_takes_sizes_that_divide_a_row() -> None:
    def block(width: int, to: str, target: str = "onnxruntime-cuda") -> int:
        ((_, storage),) = mezzo.plan(_table(width), to=to, target=target).in_blocks
        return storage.block

    # In four bits an even number of blocks.
    assert [block(width, "int4") for width in (128, 64, 96)] == [32, 32, 16]
    assert [block(width, "int8w") for width in (128, 64, 96, 48)] == [32, 32, 32, 16]
    assert _why_floats(mezzo.plan(_table(100), to="int8w", target="onnxruntime-cuda")) == [
        "table: no-block-kernel: onnxruntime-cuda reads whole blocks only, which an axis of its shape (300, 100) is not"
    ]
    ((_, storage),) = mezzo.plan(_table(100), to="int8w", target="onnxruntime-cpu").in_blocks
    assert storage.block == 32
    # OpenVINO refuses to load a DequantizeLinear whose last block is shorter.
    assert [block(width, "int4", "openvino-cpu") for width in (256, 96, 64)] == [32, 32, 32]
    # Nor does it load a table with one block in a row.
    assert block(128, "int4", "openvino-cpu") == 32
    for width in (100, 32):
        assert mezzo.plan(_table(width), to="int4", target="openvino-cpu").in_blocks == ()


def test_scales_have_the_type_of_their_readers() -> None:
    plan = mezzo.plan(_model(), to="int4,fp16", target="onnx")
    levels = {node.name: str(node.precision.compute) for node in plan.nodes}
    assert {line.rpartition(" ")[2] for line in _stored(plan)} == {"f16"}
    assert {levels[node.name] for node in plan.nodes if node.op == "MatMul"} == {"f16"}


def test_readers_stay_in_a_type_that_their_kernel_computes_in() -> None:
    plan = mezzo.plan(_model(), to="int4,bf16", target="openvino-cpu")
    low = [node.name for node in plan.nodes if node.op in ("Gemm", "MatMul") and str(node.precision.compute) == "bf16"]
    assert {line.rpartition(" ")[2] for line in _stored(plan)} == {"f32"}
    assert low == ["Gemm:u", "MatMul:few"]  # they read floats


def test_excluded_readers_keep_their_weights() -> None:
    plan = mezzo.plan(_model(), to="int4", target="onnx", exclude=["op:Gemm", "op:Gather"])
    assert [name for name, _ in plan.in_blocks] == ["weight product"]


def test_older_opset_rises_for_blocks_alone_where_it_may() -> None:
    model = onnx.version_converter.convert_version(_model(), 17)
    assert mezzo.plan(model, to="int4", target="onnx").version == 21
    assert mezzo.plan(model, to="int4", target="onnxruntime-cpu").version is None


def test_target_without_rows_is_named_with_those_that_have_some() -> None:
    with pytest.raises(InputError, match="target 'any' names no kernel that reads weights in int4; choose one of"):
        mezzo.plan(_model(), to="int4", target="any")


def test_tensorrt_reads_symmetric_blocks_of_matmuls_in_four_bits() -> None:
    plan = mezzo.plan(_model(), to="int4,fp16", target="tensorrt")
    assert all(storage.is_symmetric for _, storage in plan.in_blocks)
    assert _stored(plan) == [
        "product: 4 bits, blocks of 128 along 0, dequantize, scales f16",
        "turned: 4 bits, blocks of 128 along 1, dequantize, scales f16",
    ]
    with pytest.raises(InputError, match="target 'tensorrt' names no kernel that reads weights in int8w"):
        mezzo.plan(_model(), to="int8w", target="tensorrt")


def test_webgpu_reads_tables_of_an_even_number_of_blocks_in_four_bits() -> None:
    stored = _stored(mezzo.plan(_model(), to="int4,fp16", target="onnxruntime-web"))
    assert stored[:2] == [
        "table: 4 bits, blocks of 32 along 1, fused, scales f16",
        "product: 4 bits, blocks of 32 along 0, fused, scales f16",
    ]
    ((_, storage),) = mezzo.plan(_table(96), to="int4", target="onnxruntime-web").in_blocks
    assert storage.block == 16


def _stored_as(**options: object) -> list[str]:
    plan = mezzo.plan(_model(), to="int4,int8", target="onnxruntime-cpu", calibrator="none", **options)
    return [f"{weight.value}: {weight.stored_as}, {weight.rule}" for weight in plan.weights]


def test_int4_and_int8_share_a_plan_by_the_share_of_time_at_one_row() -> None:
    assert _stored_as() == [
        "table: int4, blocks",
        "product: int4, blocks",
        "turned: int4, blocks",
        "shared: int4, blocks",
        "small: int8, quantized",
        "scaled: floats, no-block-kernel",
    ]
    at_many_rows = [
        "table: int4, blocks",
        "product: int8, quantized",
        "turned: int8, quantized",
        "shared: int8, quantized",
        "small: int8, quantized",
        "scaled: floats, no-block-kernel",
    ]
    assert _stored_as(decode=0.8) == _stored_as(decode=0) == at_many_rows
    excluded = _stored_as(decode=0, exclude=["op:Gemm"])
    assert excluded == [
        line.replace("turned: int8, quantized", "turned: floats, excluded").replace("no-block-kernel", "excluded")
        for line in at_many_rows
    ]


def test_what_may_not_run_in_int8_is_stored_in_blocks() -> None:
    assert _stored_as(decode=0, policy="off")[:4] == [
        "table: int4, blocks",
        "product: int4, blocks",
        "turned: int4, blocks",
        "shared: int4, blocks",
    ]


@pytest.mark.parametrize("share", [-0.1, 1.5, "most", float("nan")])
def test_share_is_a_number_from_0_to_1(share: object) -> None:
    with pytest.raises(InputError, match=r"^decode is .*; give a number from 0 to 1$"):
        mezzo.plan(_model(), to="int4,int8", target="onnxruntime-cpu", calibrator="none", decode=share)


def _why_floats(plan: Plan) -> list[str]:
    return [f"{w.value}: {w.rule}: {w.because}" for w in plan.weights if w.storage is None]


def test_every_weight_in_floats_says_why() -> None:
    model = _model()
    model.graph.initializer[1].float_data[5] = float("nan")  # `product`
    assert _why_floats(mezzo.plan(model, to="int4", target="onnx", exclude=["op:Gather"])) == [
        "table: excluded: 'Gather:rows' reads it, which exclude or keep_region leaves as it is",
        "product: not-finite: it holds NaN or infinity, which no integer can stand for",
        "shared: several-readers: 2 operators read it, and onnx computes a DequantizeLinear that several read anew at"
        " each run",
        "small: too-small: with fewer than 4096 elements it is not worth the nodes",
    ]
    assert _why_floats(mezzo.plan(_model(), to="int4", target="onnxruntime-cpu")) == [
        "small: too-small: with fewer than 4096 elements it is not worth the nodes",
        "scaled: no-block-kernel: 'Gemm:u' reads it, and onnxruntime-cpu has no Gemm that reads such an operand in"
        " int4",
    ]


def test_plan_that_leaves_a_weight_in_floats_says_so() -> None:
    plan = mezzo.plan(_model(), to="int4", target="onnx")
    without = dataclasses.replace(plan, in_blocks=tuple(p for p in plan.in_blocks if p[0] != "weight product"))
    replayed = mezzo.convert(_model(), plan=without).plan
    assert "product: left-in-floats: int4 would do, and the plan keeps it in floats" in _why_floats(replayed)


def test_weights_have_their_bytes_and_readers() -> None:
    weights = {w.value: w for w in mezzo.plan(_model(), to="int4,fp16", target="onnx").weights}
    product, small = weights["product"], weights["small"]
    # Half a byte an element, and for each of 2048 blocks a scale of two bytes and half a byte of zero point.
    sizes = product.size_bytes, product.stored_bytes
    assert (sizes, product.readers) == ((4 << 16, (1 << 15) + 2048 * 2 + 1024), ("MatMul:y",))
    assert (small.size_bytes, small.stored_bytes) == (8192, 4096)
    assert mezzo.plan(_model(), to="fp16", target="onnx").weights == ()


def test_explanation_tells_how_a_weight_is_stored() -> None:
    plan = mezzo.plan(_model(), to="int4", target="onnx")
    words = " ".join(str(plan.explain("product")).split())
    assert words.startswith(
        "value product: stored, or of no floats, and read by MatMul:y MatMul:y (MatMul) runs in f32:"
    )
    assert words.endswith(
        "Rule weights-only. how its weights are stored weight product: int4, 262 KB before, 42.0 KB after 32 elements"
        " along axis 0 share a scale in f32, with a zero point; rounded by 'k-quant' onnx reads it so (ONNX"
        " DequantizeLinear-21: a standard, and no kernel of anybody's; opset 21) (rule blocks) what would change it"
        " exclude=['MatMul:y'] keeps weight product in floats"
    )
    assert [weight.value for weight in plan.explain("shared").weights] == ["shared"]


def test_reader_kept_in_fp32_by_its_weight_says_so() -> None:
    plan = mezzo.plan(_model(), to="int4,bf16", target="openvino-cpu")
    reader = plan.by_name["MatMul:y"]
    assert (reader.rule, reader.because) == (
        "blocks", "openvino-cpu reads 'weight product' in int4 blocks only with operands in f32"
    )  # fmt: skip


@pytest.mark.on_runtime
def test_random_inputs_alone_call_no_weights_wrong() -> None:
    """The difference of two products whose weights are nearly equal is lost in four bits, by any inputs."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21]>
        g (float[n, 256] x) => (float[n, 256] y) <float[256, 256] first, float[256, 256] second> {
            a = MatMul (x, first)
            b = MatMul (x, second)
            y = Sub (a, b)
        }""")
    del model.graph.value_info[:]
    for name, off in (("first", 0.0), ("second", 0.01)):
        numbers = [((7 * at) % 31 - 15) / 16 + off * ((at % 3) - 1) for at in range(256 * 256)]
        model.graph.initializer.append(onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [256, 256], numbers))
    measured = mezzo.convert(model, to="int4", target="onnxruntime-cpu").measured
    assert measured is not None and measured.ruling is None
    assert [note.partition(" are off by ")[0] for note in measured.notes if "random" in note] == [
        "on random inputs the outputs"
    ]
